"""Compares one source table with its lake table: the steps of `headrace verify`.

    survey   read both sides once, keep a digest per row -> checksums per range -> the keys that differ
    compare  read those rows again, until each is equal or proven different (``core/verify/verification.py``)
    repair   read the rows that differ again and write them through the normal path (``table_repair.py``)

Memory contains one piece of the tables at a time, and the rows of a limited number of keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.core.model.arrow_columns import arrow_type
from headrace.core.model.events import Column
from headrace.core.model.positions import position_format, positions
from headrace.core.reselect.rows import RowRequest
from headrace.core.verify.digest import differing_ranges, find_unmatched, portions, row_digests
from headrace.core.verify.table_digest import TableDigest
from headrace.core.verify.verification import (
    Rows,
    Sighting,
    Verdict,
    Where,
    judge,
    judge_at_the_end,
    sightings,
    source_rows,
)
from headrace.ports import LogPosition, TableSource, TopicPartition
from headrace.runtime.verify.digest_file import KEY, ROW, DigestFile, digests
from headrace.runtime.verify.verified_table import VerifiedTable

POLL_SECONDS = 0.5


class Offsets(Protocol):
    """The offsets of a connector's topics and of its group in Kafka. Raises Retriable if Kafka does not answer."""

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        """Return the next offset of every partition of the topic."""

    def committed_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the next offsets that the connector's group has committed."""


class LakeProgress:
    """Waits for one table's topic. After a wait without success the next calls only check, because nothing advances."""

    def __init__(
        self,
        source: TableSource,
        offsets: Offsets,
        topic: str,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._source = source
        self._offsets = offsets
        self._topic = topic
        self._clock = clock
        self._sleep = sleep
        self._stalled = False

    def wait(self, position: LogPosition, deadline: float) -> bool:
        """Return whether the lake has passed ``position`` before ``deadline``, a time of the clock."""
        ends: Mapping[TopicPartition, int] | None = None
        while True:
            published = self._source.log_position().published if ends is None else None
            if published is not None and published >= position.end:
                ends = self._offsets.ends(self._topic)
            if ends is not None:
                committed = self._offsets.committed_offsets()
                if all(committed.get(partition, 0) >= end for partition, end in ends.items()):
                    return True
            if self._stalled or self._clock() >= deadline:
                self._stalled = True
                return False
            self._sleep(POLL_SECONDS)


log = logging.getLogger(__name__)

KEYS_AT_ONCE = 2000
ROWS_AT_ONCE = 1_000_000
QUICK_ROUNDS = 3
"""Comparisons before the first wait for the lake: most of the rows that differ have only just changed."""
PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """``timeout``: seconds to wait for the lake to pass a position. ``epoch``: ``source.position.epoch``.

    ``keep_values`` adds cell values to differences, ``digest`` computes the digest of the lake table.
    """

    timeout: float = 180.0
    epoch: int = 0
    keep_values: bool = False
    digest: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that differs. ``key`` is a table of one row, the key columns in lake types.

    ``values`` contains the texts of source and lake by column, if requested.
    """

    verdict: Verdict
    where: Where
    key: pa.Table
    columns: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Round:
    """The rows of some keys on both sides: the source at ``position``, the lake after that."""

    source: Rows
    lake: Rows
    position: LogPosition
    passed: bool
    sightings: Mapping[int, Sighting]


class Clock:
    """Monotonic seconds, and a sleep."""

    def __init__(self, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self.now = now
        self.sleep = sleep


class TableVerifier:
    """Compares one table. ``folder`` is for digests: about 30 bytes and the key for each row and side.

    ``report_progress`` is called with the side that is read and the number of rows read so far.
    """

    def __init__(
        self,
        table: VerifiedTable,
        progress: LakeProgress,
        options: VerifyOptions,
        clock: Clock,
        folder: Path,
        report_progress: Callable[[str, int], None] = lambda side, rows: None,
    ) -> None:
        self._table = table
        self._progress = progress
        self._options = options
        self._clock = clock
        self._folder = folder
        self._report_progress = report_progress
        self.rows = 0
        self.digest: TableDigest | None = None

    def differences(self) -> Iterator[Difference]:
        """Yield the rows that differ as they are found. Raises Retriable, ConfigError or Fatal."""
        for suspects in self._survey():
            for begin in range(0, len(suspects), KEYS_AT_ONCE):
                yield from self.compare(suspects.slice(begin, KEYS_AT_ONCE).combine_chunks())

    # -- survey -------------------------------------------------------------------------------------------------------

    def _survey(self) -> Iterator[pa.Table]:
        """The keys (columns in lake types) of rows that differed when each side was read once."""
        table, wanted = self._table, self._table.wanted
        keys = pa.schema([(name, wanted.types[wanted.names.index(name)]) for name in wanted.key_fields])
        with (
            DigestFile(self._folder / "source.digests", keys) as source,
            DigestFile(self._folder / "lake.digests", keys) as lake,
        ):
            for values in table.source.scan(table.catalog, wanted.source_fields):
                source.add(source_rows(wanted, values))
                self._report_progress("source", source.rows)
            self.digest = table.new_digest() if self._options.digest else None
            for rows in table.lake_rows(self.digest):
                lake.add(rows)
                self._report_progress("lake", lake.rows)
            self.rows = source.rows
            ranges = differing_ranges(source.checksums, lake.checksums)
            for some in portions(ranges, source.checksums, lake.checksums, ROWS_AT_ONCE):
                yield _differing(source.select(some), lake.select(some)).select(keys.names)

    # -- compare ------------------------------------------------------------------------------------------------------

    def compare(self, keys: pa.Table) -> Iterator[Difference]:
        """Compare the rows under ``keys`` until each is equal or proven different, or until the timeout ends."""
        deadline = self._clock.now() + self._options.timeout
        before: Mapping[int, Sighting] = {}
        rounds = 0
        while len(keys):
            if rounds:
                self._clock.sleep(PAUSE_SECONDS)
            waits = rounds >= QUICK_ROUNDS
            seen = self.look(keys, deadline if waits else None)
            again: Mapping[int, int] = {}
            missing = {key for key, now in seen.sightings.items() if now.lake is None}
            if seen.passed and missing:  # the source may have deleted them since: read them a second time
                rows = self.fetch(under(keys, missing))
                again = dict(zip(rows.key.tolist(), rows.cells.tolist(), strict=True))
            verdicts = {
                key: judge(before.get(key), now, seen.passed, again.get(key)) for key, now in seen.sightings.items()
            }
            if (waits and not seen.passed) or self._clock.now() >= deadline:
                form = position_format(seen.position.connector)
                end = bytes(positions(form, self._options.epoch, [[part] for part in seen.position.end], 1)[0])
                for key in [key for key, verdict in verdicts.items() if verdict is Verdict.OPEN]:
                    verdicts[key] = judge_at_the_end(before.get(key), seen.sightings[key], end)
            decided = {key for key, verdict in verdicts.items() if verdict is not Verdict.OPEN}
            for row, key in _rows_under(keys, decided):
                now = seen.sightings[key]
                values = _values(seen, key, now.columns) if self._options.keep_values else {}
                yield Difference(verdicts[key], now.where, keys.slice(row, 1), now.columns, values)
            keys = under(keys, verdicts.keys() - decided)
            before, rounds = seen.sightings, rounds + 1

    def look(self, keys: pa.Table, deadline: float | None = None) -> Round:
        """Read the rows under ``keys`` from both sides; with a deadline, wait first until the lake has the source's."""
        source = self.fetch(keys)
        position = self._table.source.log_position()
        passed = deadline is not None and self._progress.wait(position, deadline)
        lake = self._table.lake_rows_under(keys)
        return Round(source, lake, position, passed, sightings(self._table.wanted, source, lake))

    def fetch(self, keys: pa.Table) -> Rows:
        """Return the current rows of the source under ``keys``."""
        table, wanted = self._table, self._table.wanted
        schemas = {member.name: member.schema for member in wanted.source_fields}
        sources = dict(zip(wanted.names, wanted.sources, strict=True))
        key = tuple(
            Column(sources[name], schema, keys[name].combine_chunks().cast(arrow_type(schema)))
            for name, schema in ((name, schemas[sources[name]]) for name in wanted.key_fields)
        )
        columns = tuple(Column(name, schema, pa.nulls(0, arrow_type(schema))) for name, schema in schemas.items())
        needs = np.ones((len(keys), len(columns)), np.bool_)
        request = RowRequest(table.id, key, columns, needs, np.full(len(keys), -1, np.int64))
        size = max(1, KEYS_AT_ONCE // 4)
        values: list[list[object]] = [[] for _ in columns]
        for begin in range(0, len(keys), size):
            answer = table.source.fetch(table.catalog, request.slice(begin, begin + size))
            for number, column in enumerate(values):
                column += answer.of_found(number)
        return source_rows(wanted, values)


def _differing(source: pa.Table, lake: pa.Table) -> pa.Table:
    """Return the rows of each side without an equal one in the other, each key once.

    A function, because the digests of a portion must not stay in memory until the next portion is read.
    """
    source_digests = digests(source, KEY), digests(source, ROW)
    lake_digests = digests(lake, KEY), digests(lake, ROW)
    only_in_source = source.take(pa.array(find_unmatched(*source_digests, *lake_digests)))
    only_in_lake = lake.take(pa.array(find_unmatched(*lake_digests, *source_digests)))
    both = pa.concat_tables([only_in_source, only_in_lake])
    first = np.unique(digests(both, KEY), return_index=True)[1] if len(both) else np.empty(0, np.int64)
    return both.take(pa.array(first))


def _rows_under(keys: pa.Table, wanted: set[int]) -> list[tuple[int, int]]:
    """Index and digest of the keys whose digest is wanted."""
    return [(index, key) for index, key in enumerate(key_digests(keys)) if key in wanted]


def key_digests(keys: pa.Table) -> list[int]:
    """Return the digest of each key, as in ``Rows.key``."""
    digest_of_key: list[int] = []
    if len(keys):
        digest_of_key = row_digests([column.combine_chunks() for column in keys.columns]).tolist()
    return digest_of_key


def under(keys: pa.Table, wanted: set[int]) -> pa.Table:
    """Return those of ``keys`` whose digest is wanted."""
    rows = [index for index, _ in _rows_under(keys, wanted)]
    return keys.take(pa.array(rows, pa.int64())).combine_chunks()


def _values(seen: Round, key: int, columns: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    if not columns:  # only one side has the row
        return {}
    source, lake = int(np.flatnonzero(seen.source.key == key)[0]), int(np.flatnonzero(seen.lake.key == key)[0])
    return {
        name: (_shown(seen.source.columns[name][source]), _shown(seen.lake.columns[name][lake])) for name in columns
    }


def cell_text(cell: pa.Scalar) -> str:
    """Return a cell as text; a value that Python's types cannot represent as its integer."""
    try:
        value = cell.as_py()
    except (ValueError, OverflowError):
        value = cell.cast(pa.int64()).as_py()
    return value.hex() if isinstance(value, bytes) else str(value)


def _shown(cell: pa.Scalar) -> str:
    """A cell as text that distinguishes null from the empty text."""
    if not cell.is_valid:
        return "null"
    return f"'{cell_text(cell)}'" if pa.types.is_string(cell.type) else cell_text(cell)
