"""The store of the column cache: tests that use ``cache_rows`` run for every type of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.task.cache_harness import rows_in

from headrace.core.reselect.cache.rows import CacheLimits, MemoryRowStore
from headrace_connectors.rocksdb import RocksRowStore


@pytest.fixture(params=["memory", "rocksdb"])
def cache_rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the type of the store that the harness opens."""
    opened: list[RocksRowStore] = []

    def on_disk(limits: CacheLimits) -> RocksRowStore:
        opened.append(RocksRowStore(tmp_path / f"rows-{len(opened)}", limits))
        return opened[-1]

    with rows_in(MemoryRowStore if request.param == "memory" else on_disk):
        yield request.param
    for store in opened:
        store.close()
