"""The order of a run that two processes share (``make test``): what takes long to start comes first.

Each process takes file after file (``pytest -n 2 --dist loadfile``), so that a server or a Spark session is started
once in each, and what a file's tests share stays theirs. The many small files at the end leave neither of them waiting.
"""

from __future__ import annotations

import pytest

_STARTED = {"_stack", "warehouse"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with a test that needs a server or Spark, then all others; among each, the order is random as ever."""
    heavy = {item.path for item in items if _STARTED.intersection(getattr(item, "fixturenames", ()))}
    items.sort(key=lambda item: item.path not in heavy)
