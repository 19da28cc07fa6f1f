"""The cached rows in RocksDB: the suite of row stores, and failures of files and directories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from contracts.row_store_suite import OpenRows, RowStoreSuite, row

from headrace.core.model.errors import ConfigError, Retriable
from headrace.core.reselect.cache.rows import CacheLimits, RowKey, StoreFailed
from headrace.ports import RowStoreOptions
from headrace_connectors.rocksdb import RocksRowStore, open_rows

KEY = RowKey(1, "k")


class TestRocksRowStore(RowStoreSuite):
    """The suite of row stores on RocksDB."""

    @pytest.fixture
    def open_rows(self, tmp_path: Path) -> Iterator[OpenRows]:
        """Open each store in a new directory."""
        opened: list[RocksRowStore] = []

        def opener(limits: CacheLimits) -> RocksRowStore:
            opened.append(RocksRowStore(tmp_path / str(len(opened)), limits))
            return opened[-1]

        yield opener
        for store in opened:
            store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksRowStore]:
    """Open a store in the directory ``rows``."""
    store = RocksRowStore(tmp_path / "rows", CacheLimits())
    yield store
    store.close()


def rows_of(store: RocksRowStore) -> list[bytes]:
    return [key for key in store._db.keys() if key.startswith(b"r")]  # noqa: SIM118 - not a dict


def options(path: Path | str, **properties: str) -> RowStoreOptions:
    return RowStoreOptions(CacheLimits(), "shop", 0, {"path": str(path), **properties})


def test_rows_and_their_sizes_outlive_the_process(tmp_path: Path, store: RocksRowStore) -> None:
    """A reopened store has its rows, sizes and saved state, and evicts rows by its limits."""
    store.put(KEY, row("A"))
    store.put(RowKey(2, "k"), row("B"))
    size = store.size
    store.save(b"state")
    store.close()
    again = RocksRowStore(tmp_path / "rows", CacheLimits(max_rows=2))
    assert again.load() == b"state"
    assert (len(again), again.size, again.get(KEY)) == (2, size, row("A"))
    again.put(RowKey(3, "k"), row("C"))
    assert set(again.keys(None)) == {KEY, RowKey(3, "k")}
    again.close()


def test_a_connectors_name_stays_below_the_path(tmp_path: Path) -> None:
    """A connector name with ``../`` becomes the name of a directory in the configured path."""
    folder = tmp_path / "cache"
    open_rows(replace(options(folder), connector="../../shop")).close()
    assert [each.name.rpartition("-")[0] for each in folder.iterdir()] == ["..%2F..%2Fshop"]


def test_saved_state_is_loaded_once(tmp_path: Path, store: RocksRowStore) -> None:
    """The first load deletes the saved state, so that a crash after it leaves no outdated state."""
    store.save(b"state")
    store.close()
    for expected in (b"state", None):
        again = RocksRowStore(tmp_path / "rows", CacheLimits())
        assert again.load() == expected
        again.close()


def test_undecodable_stored_bytes_are_deleted_and_treated_as_miss(store: RocksRowStore) -> None:
    """A row whose stored bytes are corrupt is deleted and is a cache miss."""
    store.put(KEY, row("A"))
    (stored,) = rows_of(store)
    store._db[stored] = store._db[stored][:-1] + b"\x00"
    assert store.get(KEY) is None
    assert (len(store), list(store.keys(None))) == (0, [])


def test_unsupported_value_type_is_skipped_not_fatal(store: RocksRowStore) -> None:
    """A row that cannot be serialized is not cached, and the stored row of its key is deleted."""
    store.put(KEY, row("A"))
    store.put(KEY, row("\ud800"))
    assert (store.get(KEY), len(store)) == (None, 0)


def test_failures_are_store_failures(store: RocksRowStore) -> None:
    """Every operation raises StoreFailed for an error of RocksDB."""
    store.put(KEY, row("A"))
    store.close()
    for call in (lambda: store.get(KEY), lambda: store.put(KEY, row("B")), lambda: store.drop(KEY)):
        with pytest.raises(StoreFailed):
            call()
    with pytest.raises(StoreFailed):
        store.drop_table(1)


def test_directory_belongs_to_one_task_at_a_time(tmp_path: Path) -> None:
    """Opening a directory that another task has open raises Retriable; it succeeds after that task has closed it."""
    first = open_rows(options(tmp_path))
    with pytest.raises(Retriable, match="shop-0"):
        open_rows(options(tmp_path))
    first.close()
    open_rows(options(tmp_path)).close()


def test_unreadable_files_are_deleted(tmp_path: Path, store: RocksRowStore) -> None:
    """A store whose files RocksDB cannot open is deleted and starts empty."""
    store.put(KEY, row("A"))
    store.close()
    (tmp_path / "rows" / "CURRENT").write_bytes(b"nonsense")
    again = RocksRowStore(tmp_path / "rows", CacheLimits())
    assert again.get(KEY) is None
    again.close()


@pytest.mark.parametrize("path", ["", "/proc/none/here"])
def test_a_path_that_cannot_be_written_is_a_config_error(path: str) -> None:
    """The error names the option reselect.cache.rocksdb.path."""
    with pytest.raises(ConfigError, match=r"reselect\.cache\.rocksdb\.path") as refused:
        open_rows(options(path))
    assert refused.value.key == "reselect.cache.rocksdb.path"


def test_cleanup_removes_the_files(tmp_path: Path) -> None:
    """With ``cleanup`` the store deletes its directory when it closes."""
    store = open_rows(options(tmp_path, cleanup="true"))
    store.put(KEY, row("A"))
    store.close()
    assert list(tmp_path.iterdir()) == []
