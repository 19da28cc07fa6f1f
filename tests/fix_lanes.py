"""The order of a run in two processes (``make test``): tests with a server or Spark come first.

Each process runs file after file (``pytest -n 2 --dist loadfile``): it starts a server or a Spark session once, and
the tests of a file share their fixtures. Large files come first and the many small ones without a server last, so
that neither process waits for the other.
"""

from __future__ import annotations

from collections import Counter

import pytest

_STARTED = {"_stack", "warehouse"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files with a test that needs a server or Spark by their number of tests; others remain in random order."""
    heavy = {item.path for item in items if _STARTED.intersection(getattr(item, "fixturenames", ()))}
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: -tests[item.path] if item.path in heavy else 0)
