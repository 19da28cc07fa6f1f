"""The short form of a suite, and the order of a run in two processes (``make test``).

A class that runs a suite may name the suite's tests of which ``make test`` needs the proof in ``SHORT_FORM``. The other
tests get the marker ``long``, so that ``make soak`` runs them.

Tests with a server or Spark come first.

Each process runs file after file (``pytest -n 2 --dist loadfile``): it starts a server or a Spark session once, and
the tests of a file share their fixtures. Large files come first, then files that start servers of their own, and the
many small ones without a server last, so that neither process waits for the other.
"""

from __future__ import annotations

from collections import Counter

import pytest

_STARTED = {"_stack", "warehouse"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that its class does not name in ``SHORT_FORM`` as long. Raises UsageError for an unknown name."""
    tests = getattr(item, "cls", None)
    short = getattr(tests, "SHORT_FORM", None)
    if short is None:
        return
    if unknown := [name for name in short if not hasattr(tests, name)]:
        raise pytest.UsageError(f"{item.nodeid}: SHORT_FORM names tests that do not exist: {', '.join(unknown)}")
    if getattr(item, "originalname", None) not in short:
        item.add_marker(pytest.mark.long)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files that share a server or Spark by their number of tests; the order of others remains random."""
    sharing = {item.path for item in items if _STARTED.intersection(getattr(item, "fixturenames", ()))}
    starting = {item.path for item in items if item.get_closest_marker("stack") or item.get_closest_marker("spark")}
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: -tests[item.path] if item.path in sharing else item.path not in starting)
