"""The order of a run that two processes share (``make test``): what takes long to start comes first.

Each process takes file after file (``pytest -n 2 --dist loadfile``), so that a server or a Spark session is started
once in each, and what a file's tests share stays theirs. Large files come early and the many small ones that start
nothing at the end, so that neither process waits for the other.
"""

from __future__ import annotations

from collections import Counter

import pytest

_STARTED = {"_stack", "warehouse"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with a test that needs a server or Spark, by the number of tests; all others in random order as ever."""
    heavy = {item.path for item in items if _STARTED.intersection(getattr(item, "fixturenames", ()))}
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: -tests[item.path] if item.path in heavy else 0)
