"""The rows of the reselect cache in RocksDB (``reselect.md`` section 5): a ``ports.RowStore`` on disk.

    r <table> <key>    a row: its rank in the order of use, then the row as in ``core/reselect/cache/codec.py``
    o <table> <rank>   the key of the row with this rank
    s                  the cache's state and the sizes of tables; only between two processes

Numbers are big-endian, so that the entries of a table are adjacent and in the order of their use. One process at a time
opens the directory (RocksDB's own lock). The one file that imports rocksdict.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec
import rocksdict

from headrace.config.reselect import RocksDbOptions
from headrace.core.connect.typed_options import parse_options
from headrace.core.model.errors import ConfigError, Retriable
from headrace.core.reselect.cache.codec import decode_row, encode_row
from headrace.core.reselect.cache.rows import CacheLimits, Row, RowKey, StoreFailed
from headrace.ports import RowStoreOptions

_ROW, _ORDER, _STATE = b"r", b"o", b"s"
_RANK = 8
_PATH = "reselect.cache.rocksdb.path"
MEMORY_BYTES = 16 << 20
"""The bytes that RocksDB holds back before it writes a file; it has two such buffers."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(slots=True)
class _Use:
    """The sizes of a table, and a rank below which it has no row any more."""

    rows: int = 0
    bytes: int = 0
    floor: int = 0


class _Saved(msgspec.Struct, array_like=True):
    """The value of ``_STATE``."""

    state: bytes
    last_rank: int
    uses: dict[int, tuple[int, int, int]]


def open_rows(options: RowStoreOptions) -> RocksRowStore:
    """Open the store of one task, in its own directory below ``reselect.cache.rocksdb.path``.

    Raises ConfigError for a path that cannot be written, Retriable while another process has it.
    """
    settings = parse_options(RocksDbOptions, options.properties)
    if not settings.path:
        raise ConfigError(f"{_PATH} is missing; set it to the directory for the cache's files", _PATH)
    connector = options.connector.replace("/", "%2F")  # names of connectors may contain slashes
    return RocksRowStore(Path(settings.path) / f"{connector}-{options.task}", options.limits, cleanup=settings.cleanup)


class RocksRowStore:
    """Rows on disk, with limits for rows and written bytes, and an optional quota per table.

    The least recently used row is evicted first; a row that is read often moves up in steps, not at each read.
    ``cleanup`` removes the files when the store is closed.
    """

    durable = True

    def __init__(self, path: Path, limits: CacheLimits, *, cleanup: bool = False) -> None:
        self._path = path
        self._limits = limits
        self._cleanup = cleanup
        self._uses: dict[int, _Use] = {}
        self._last_rank = 0
        self.evicted = 0
        self._db: Any = _open_database(path)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def get(self, key: RowKey) -> Row | None:
        """Return the row and mark it as used. A row that cannot be decoded is deleted, and missing."""
        entry = self._entry(key)
        if entry is None:
            return None
        try:
            row = decode_row(entry[_RANK:])
        except ValueError:
            self.drop(key)
            return None
        if self._last_rank - _rank_of(entry) >= max(len(self) // 2, 1):
            self._write(key, entry, entry[_RANK:])
        return row

    def put(self, key: RowKey, row: Row) -> None:
        """Store the row and evict rows above the bounds; a row that cannot be written or is too large is not stored."""
        try:
            body = encode_row(row)
        except ValueError:
            self.drop(key)
            return
        if self._limits.max_bytes and len(body) > self._limits.max_bytes:
            self.drop(key)
            return
        self._write(key, self._entry(key), body)
        limits, table = self._limits, key.table
        while limits.max_table_bytes and table in self._uses and self._uses[table].bytes > limits.max_table_bytes:
            self._evict_first(table)
        while self._uses and (
            (limits.max_rows and len(self) > limits.max_rows) or (limits.max_bytes and self.size > limits.max_bytes)
        ):
            self._evict_first(min(self._uses, key=lambda candidate: self._first(candidate)[0]))

    def drop(self, key: RowKey) -> None:
        entry = self._entry(key)
        if entry is not None:
            self._remove(key.table, _rank_of(entry), key, len(entry))

    def keys(self, table: int | None) -> Collection[RowKey]:
        """Return the keys of a table, or of all tables."""
        prefix = _ROW if table is None else _ROW + _number(table)
        return [
            RowKey(int.from_bytes(stored[1:5], "big"), stored[5:].decode())
            for stored, _ in _run_or_fail(list, self._range(prefix))
        ]

    def holds(self, table: int) -> bool:
        return table in self._uses

    def drop_table(self, table: int | None) -> int:
        """Remove all rows of a table, or of all tables, at once; return their number."""
        suffix = b"" if table is None else _number(table)
        for prefix in (_ROW + suffix, _ORDER + suffix):
            # The first key after all that begin with the prefix, which does not end in 0xff.
            end = (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
            _run_or_fail(self._db.delete_range, prefix, end)
        gone = list(self._uses) if table is None else [table] if table in self._uses else []
        return sum(self._uses.pop(dropped).rows for dropped in gone)

    def __len__(self) -> int:
        return sum(use.rows for use in self._uses.values())

    @property
    def size(self) -> int:
        """Return the bytes of the rows as written; files are compressed, and contain dropped rows for some time."""
        return sum(use.bytes for use in self._uses.values())

    # -- between processes --------------------------------------------------------------------------------------------

    def oldest(self) -> int | None:
        """Return None: the store would have to read all rows for it."""
        return None

    def load(self) -> bytes | None:
        """Read the state of the last process, if it ended cleanly, and remove it from the disk."""
        entry = _run_or_fail(self._db.get, _STATE)
        _run_or_fail(self._db.delete, _STATE)
        _run_or_fail(self._db.flush_wal, True)
        try:
            saved = None if entry is None else msgspec.msgpack.decode(entry, type=_Saved)
        except msgspec.DecodeError:
            return None
        if saved is None:
            return None
        self._last_rank = saved.last_rank
        self._uses = {table: _Use(*use) for table, use in saved.uses.items()}
        return saved.state

    def save(self, state: bytes) -> None:
        """Write the state after all rows, with a sync to the disk."""
        uses = {table: (use.rows, use.bytes, use.floor) for table, use in self._uses.items()}
        _run_or_fail(self._db.flush_wal, True)
        _run_or_fail(self._db.put, _STATE, msgspec.msgpack.encode(_Saved(state, self._last_rank, uses)))
        _run_or_fail(self._db.flush_wal, True)

    def close(self) -> None:
        """Close the files, and remove them if ``cleanup`` is set. Idempotent."""
        with suppress(rocksdict.DbClosedError):
            self._db.close()
        if self._cleanup:
            shutil.rmtree(self._path, ignore_errors=True)

    # -- order and bounds ---------------------------------------------------------------------------------------------

    def _entry(self, key: RowKey) -> bytes | None:
        entry: bytes | None = _run_or_fail(self._db.get, _row_key(key))
        return entry

    def _write(self, key: RowKey, old: bytes | None, body: bytes) -> None:
        """Move the row to the end of the order, in one step."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        if old is not None:
            batch.delete(_order_key(key.table, _rank_of(old)))
        rank = self._last_rank + 1
        batch.put(_order_key(key.table, rank), key.key.encode())
        batch.put(_row_key(key), _long(rank) + body)
        _run_or_fail(self._db.write, batch)
        self._last_rank = rank
        use = self._uses.setdefault(key.table, _Use())
        use.rows += old is None
        use.bytes += _RANK + len(body) - (0 if old is None else len(old))

    def _remove(self, table: int, rank: int, key: RowKey, size: int) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.delete(_order_key(table, rank))
        batch.delete(_row_key(key))
        _run_or_fail(self._db.write, batch)
        use = self._uses[table]
        use.rows -= 1
        use.bytes -= size
        if use.rows == 0:
            del self._uses[table]

    def _evict_first(self, table: int) -> None:
        self.evicted += 1
        rank, key = self._first(table)
        entry = self._entry(key)
        self._remove(table, rank, key, len(entry or b""))

    def _first(self, table: int) -> tuple[int, RowKey]:
        """The rank and key of a table's least recently used row."""
        prefix, use = _ORDER + _number(table), self._uses[table]
        stored, key = _run_or_fail(next, self._range(prefix, prefix + _long(use.floor)))
        use.floor = int.from_bytes(stored[-_RANK:], "big")
        return use.floor, RowKey(table, key.decode())

    def _range(self, prefix: bytes, begin: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        for stored, value in self._db.items(from_key=begin or prefix):
            if not stored.startswith(prefix):
                return
            yield stored, value


def _open_database(path: Path) -> Any:
    """Delete files that cannot be read: a cache may always be empty."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(MEMORY_BYTES)
    options.set_max_write_buffer_number(2)
    options.set_keep_log_file_num(2)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{_PATH}: {path.parent} cannot be created: {error.strerror}; choose another directory", _PATH
        ) from error
    try:
        return rocksdict.Rdict(str(path), options)
    except Exception as error:  # rocksdict raises no more specific errors
        if "lock" in str(error).lower():
            raise Retriable(f"the reselect cache in {path} is open in another process or task") from error
    shutil.rmtree(path, ignore_errors=True)
    try:
        return rocksdict.Rdict(str(path), options)
    except Exception as error:
        raise ConfigError(f"{_PATH}: the reselect cache in {path} cannot be opened: {error}", _PATH) from error


def _run_or_fail(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    try:
        return call(*args, **kwargs)
    except Exception as error:  # rocksdict raises no more specific errors
        raise StoreFailed(str(error)) from error


def _row_key(key: RowKey) -> bytes:
    return _ROW + _number(key.table) + key.key.encode()


def _order_key(table: int, rank: int) -> bytes:
    return _ORDER + _number(table) + _long(rank)


def _rank_of(entry: bytes) -> int:
    return int.from_bytes(entry[:_RANK], "big")


def _number(table: int) -> bytes:
    return table.to_bytes(4, "big")


def _long(rank: int) -> bytes:
    return rank.to_bytes(_RANK, "big")
