"""The load: change events of one table as Debezium's PostgreSQL connector writes them, and the rows that must result.

300,000 events of 100,000 keys (40 % inserts, 50 % updates, 10 % deletes; schema-embedded JSON, 4 kB each) for a table
that holds 1,000,000 rows before the first of them. The keys are spread evenly over the whole range of the table's ids,
and every stored position is lower than that of any event. The events are consistent with the stored rows: an insert
takes an id that is absent, an update or a delete one that exists. With this mix at most a tenth of the keys can stand
at the beginning, so a tenth does.

All values follow from the seed. Nothing here uses Headrace's code, so that the expected rows are an independent
oracle.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

TOPIC = "bench.public.acct"
KEY = "id"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("email", pa.string()),
        ("balance", pa.decimal128(12, 2)),
        ("qty", pa.int32()),
        ("active", pa.bool_()),
        ("score", pa.float64()),
        ("created", pa.timestamp("us")),
        ("updated", pa.timestamp("us", tz="UTC")),
        ("note", pa.string()),
    ]
)
"""The table's columns in the lake."""

FIRST_LSN = 1_000_000_000
"""The position of the first event; stored rows have their id as their position, which is lower."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_START = 1_767_225_600_000_000  # 2026-01-01, microseconds
_PRESENT = 10  # one key in so many exists in the table at the beginning
_INSERTS, _UPDATES = 0.4, 0.9  # bounds of a random number: 40 % inserts, 50 % updates, the rest deletes
_RECENT_DELETES = 1000

Row = dict[str, Any]
"""A row as an event contains it: Connect values in JSON."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change. ``before`` is None for an insert, ``after`` for a delete."""

    number: int
    operation: str
    before: Row | None
    after: Row | None

    @property
    def lsn(self) -> int:
        """Return its position in the source's log."""
        return FIRST_LSN + self.number * 64

    @property
    def key(self) -> int:
        """Return the row's id."""
        row = self.after or self.before
        assert row is not None
        return int(row[KEY])


@dataclass(frozen=True, slots=True)
class Workload:
    """The size of the load: the table has ``rows`` rows before ``events`` changes of ``keys`` keys."""

    events: int = 300_000
    keys: int = 100_000
    rows: int = 1_000_000
    seed: int = 7

    @property
    def key_ids(self) -> npt.NDArray[np.int64]:
        """The ids that have events, spread over the whole range."""
        range_of_ids = self.rows + self.keys - len(range(0, self.keys, _PRESENT))
        return 1 + np.arange(self.keys, dtype=np.int64) * range_of_ids // self.keys

    def stored(self) -> pa.Table:
        """Return the rows of the table before the first event, by id."""
        absent = np.delete(self.key_ids, np.s_[::_PRESENT])
        ids = np.setdiff1d(np.arange(1, self.rows + len(absent) + 1), absent, assume_unique=True)
        return stored_rows(ids, np.random.default_rng(self.seed))


class Source:
    """The source table's rows whose keys have events, during these events."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._random = random.Random(workload.seed)
        self._stored = workload.stored()
        keys = pa.array(workload.key_ids)
        touched = self._stored.filter(pc.is_in(self._stored[KEY], keys))
        self._rows = {row[KEY]: _as_event_row(row) for row in touched.to_pylist()}
        self._live = list(self._rows)
        self._absent = [key for key in keys.to_pylist() if key not in self._rows]
        self._random.shuffle(self._absent)

    def events(self) -> Iterator[Event]:
        """Yield all events in order. Consume the iterator completely and once; ``expected`` then returns the result."""
        for number in range(self._workload.events):
            chosen = self._random.random()
            if (chosen < _INSERTS and self._absent) or not self._live:
                yield self._insert(number)
            elif chosen < _UPDATES:
                yield self._update(number)
            else:
                yield self._delete(number)

    def expected(self) -> pa.Table:
        """Return the rows that the table must contain after all events, by id."""
        untouched = self._stored.filter(pc.invert(pc.is_in(self._stored[KEY], pa.array(self._workload.key_ids))))
        changed = pa.Table.from_pylist([_as_lake_row(row) for row in self._rows.values()], SCHEMA)
        return pa.concat_tables([untouched, changed]).sort_by(KEY)

    def _insert(self, number: int) -> Event:
        key = self._absent.pop()
        row = self._rows[key] = _new_row(self._random, key, number)
        self._live.append(key)
        return Event(number, "c", None, row)

    def _update(self, number: int) -> Event:
        key = self._random.choice(self._live)
        before = self._rows[key]
        after = self._rows[key] = _changed_row(self._random, before, number)
        return Event(number, "u", before, after)

    def _delete(self, number: int) -> Event:
        place = self._random.randrange(len(self._live))
        key, self._live[place] = self._live[place], self._live[-1]
        self._live.pop()
        # Some ids occur again soon, most much later.
        near = self._random.randrange(len(self._absent) + 1) if len(self._absent) < _RECENT_DELETES else 0
        self._absent.insert(near, key)
        return Event(number, "d", self._rows.pop(key), None)


# -- rows -------------------------------------------------------------------------------------------------------------


def stored_rows(ids: npt.NDArray[np.int64], chance: np.random.Generator) -> pa.Table:
    """Return rows with these ids, and other values by chance."""
    count = len(ids)
    text = pc.cast(pa.array(ids), pa.string())
    created = pa.array(_START - 1_000_000 * (len(ids) - np.arange(count)))
    mails = pc.cast(pa.array(chance.integers(0, 1_000_000, count)), pa.string())
    notes = pc.cast(pa.array(chance.integers(10**14, 10**15, count)), pa.string())
    columns = [
        pa.array(ids),
        pc.binary_join_element_wise("name", text, "-"),
        _with_nulls(pc.binary_join_element_wise("u", mails, "@example.com", ""), chance, 0.1),
        _decimals(chance.integers(-(10**6), 10**8, count)),
        pa.array(chance.integers(0, 1000, count), pa.int32()),
        pa.array(chance.random(count) < 0.5),
        pa.array(np.round(chance.random(count) * 100, 3)),
        created.view(pa.timestamp("us")),
        created.view(pa.timestamp("us", tz="UTC")),
        _with_nulls(pc.binary_join_element_wise("note ", notes, ""), chance, 0.3),
    ]
    return pa.table(columns, SCHEMA)


def _with_nulls(values: pa.Array, chance: np.random.Generator, share: float) -> pa.Array:
    return pc.if_else(pa.array(chance.random(len(values)) < share), None, values)


def _decimals(cents: npt.NDArray[np.int64]) -> pa.Array:
    """Convert cents to decimals: in memory, a decimal128 is its unscaled number in 16 bytes."""
    words = np.ascontiguousarray(np.column_stack([cents, cents >> 63]))
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), [None, pa.py_buffer(words)])


def _new_row(chance: random.Random, key: int, number: int) -> Row:
    return {
        "id": key,
        "name": f"name-{key}",
        "email": None if chance.random() < 0.1 else f"u{chance.randrange(10**6)}@example.com",
        "balance": _unscaled(chance.randrange(-(10**6), 10**8)),
        "qty": chance.randrange(1000),
        "active": chance.random() < 0.5,
        "score": round(chance.random() * 100, 3),
        "created": _START + number * 1000,
        "updated": _zoned(_START + number * 1000),
        "note": _note(chance),
    }


def _changed_row(chance: random.Random, row: Row, number: int) -> Row:
    changed = dict(row, updated=_zoned(_START + number * 1000), qty=chance.randrange(1000))
    changed["balance"] = _unscaled(chance.randrange(-(10**6), 10**8))
    if chance.random() < 0.2:
        changed["note"] = _note(chance)
    if chance.random() < 0.1:
        changed["email"] = f"v{chance.randrange(10**6)}@example.com"
    return changed


def _note(chance: random.Random) -> str | None:
    return None if chance.random() < 0.3 else f"note {chance.getrandbits(96):x}"


def _unscaled(cents: int) -> str:
    """A Connect Decimal in JSON: the unscaled number, two's complement, big-endian, base64."""
    return base64.b64encode(cents.to_bytes(cents.bit_length() // 8 + 1, "big", signed=True)).decode()


def _zoned(micros: int) -> str:
    """Debezium's ZonedTimestamp."""
    return (_EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _as_event_row(row: Row) -> Row:
    return {
        **row,
        "balance": _unscaled(int(row["balance"] * 100)),
        "created": (row["created"].replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1),
        "updated": _zoned((row["updated"] - _EPOCH) // timedelta(microseconds=1)),
    }


def _as_lake_row(row: Row) -> Row:
    cents = int.from_bytes(base64.b64decode(row["balance"]), "big", signed=True)
    return {
        **row,
        "balance": Decimal(cents).scaleb(-2),
        "created": (_EPOCH + timedelta(microseconds=row["created"])).replace(tzinfo=None),
        "updated": datetime.fromisoformat(row["updated"]),
    }
