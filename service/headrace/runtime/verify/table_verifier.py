"""Compares one source table with its lake table, and mends what differs: the steps of `headrace verify`.

    survey   read both sides once, keep a digest per row -> checksums per range -> the keys that differ
    settle   read those rows again, until each is equal or proven different (``core/verify/verification.py``)
    repair   read the rows that differ again and write them through the normal path

Memory holds one piece of the tables at a time, and the rows of a limited number of keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.model.arrow_columns import arrow_type
from headrace.core.model.catalog import CatalogTable
from headrace.core.model.events import Column, TableId
from headrace.core.model.positions import position_format, positions
from headrace.core.reselect.rows import RowRequest
from headrace.core.verify.checksums import differing_ranges, portions, unmatched
from headrace.core.verify.digest import row_digests
from headrace.core.verify.verification import (
    Comparison,
    Rows,
    Sighting,
    Verdict,
    Where,
    judge,
    judge_at_the_end,
    lake_rows,
    sightings,
    source_rows,
)
from headrace.ports import LakeTable, LogPosition, TableSource
from headrace.runtime.verify.digest_file import KEY, ROW, DigestFile, digests
from headrace.runtime.verify.lake_progress import LakeProgress

log = logging.getLogger(__name__)

KEYS_AT_ONCE = 2000
ROWS_AT_ONCE = 1_000_000
QUICK_ROUNDS = 3
"""So many times rows are looked at again before anything is waited for: most of what differs has only just changed."""
PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """``patience``: seconds to wait for the lake to pass a position. ``epoch``: ``source.position.epoch``.

    ``keep_values`` lets differences carry cell values.
    """

    patience: float = 180.0
    epoch: int = 0
    keep_values: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that differs. ``key`` is a table of one row, the key columns in lake types.

    ``values`` holds, by column, the texts of source and lake, if asked for.
    """

    verdict: Verdict
    where: Where
    key: pa.Table
    columns: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Round:
    """The rows of some keys as both sides had them: the source at ``position``, the lake after that."""

    source: Rows
    lake: Rows
    position: LogPosition
    passed: bool
    found: Mapping[int, Sighting]


@dataclass(frozen=True, slots=True)
class VerifiedTable:
    """What is compared: a table of the catalog with its columns, and the lake table of its topic."""

    id: TableId
    catalog: CatalogTable
    wanted: Comparison
    source: TableSource
    lake: LakeTable


class Clock:
    """Monotonic seconds, and letting them pass."""

    def __init__(self, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self.now = now
        self.sleep = sleep


Progress = Callable[[str, int], None]
"""Hears of the rows that were read so far, with what is being done."""


class TableVerifier:
    """Compares one table. ``folder`` is for digests, about 30 bytes and the key for each row and side."""

    def __init__(
        self,
        table: VerifiedTable,
        progress: LakeProgress,
        options: VerifyOptions,
        clock: Clock,
        folder: Path,
        tell: Progress = lambda step, rows: None,
    ) -> None:
        self._table = table
        self._progress = progress
        self._options = options
        self._clock = clock
        self._folder = folder
        self._tell = tell
        self.rows = 0

    def differences(self) -> Iterator[Difference]:
        """The rows that differ, as they are found. Raises Retriable, ConfigError or Fatal."""
        for suspects in self._survey():
            for begin in range(0, len(suspects), KEYS_AT_ONCE):
                yield from self.settle(suspects.slice(begin, KEYS_AT_ONCE).combine_chunks())

    # -- survey -------------------------------------------------------------------------------------------------------

    def _survey(self) -> Iterator[pa.Table]:
        """The keys (columns in lake types) of rows that were not the same when each side was read once."""
        wanted = self._table.wanted
        keys = pa.schema([(name, wanted.types[wanted.names.index(name)]) for name in wanted.key_fields])
        with (
            DigestFile(self._folder / "source.digests", keys) as source,
            DigestFile(self._folder / "lake.digests", keys) as lake,
        ):
            self._read("source", self._source_pieces(), source)
            self._read("lake", self._lake_pieces(), lake)
            self.rows = source.rows
            ranges = differing_ranges(source.checksums, lake.checksums)
            for some in portions(ranges, source.checksums, lake.checksums, ROWS_AT_ONCE):
                yield _suspects(source.select(some), lake.select(some), keys.names)

    def _read(self, side: str, pieces: Iterator[Rows], into: DigestFile) -> None:
        for piece in pieces:
            into.add(piece)
            self._tell(side, into.rows)

    def _source_pieces(self) -> Iterator[Rows]:
        table = self._table
        for values in table.source.scan(table.catalog, table.wanted.fields):
            yield source_rows(table.wanted, values)

    def _lake_pieces(self) -> Iterator[Rows]:
        wanted = self._table.wanted
        for piece in self._table.lake.scan(wanted.lake_names) if wanted.lake_names else ():
            yield lake_rows(wanted, piece)

    # -- settle -------------------------------------------------------------------------------------------------------

    def settle(self, keys: pa.Table) -> Iterator[Difference]:
        """Compare the rows under ``keys`` until each is equal, proven different, or time is up."""
        deadline = self._clock.now() + self._options.patience
        before: Mapping[int, Sighting] = {}
        number = 0
        while len(keys):
            if number:
                self._clock.sleep(PAUSE_SECONDS)
            patient = number >= QUICK_ROUNDS
            seen = self.look(keys, deadline if patient else None)
            verdicts = self._judged(seen, before, keys)
            if (patient and not seen.passed) or self._clock.now() >= deadline:
                verdicts = self._at_the_end(seen, before, verdicts)
            yield from self._told(seen, verdicts, keys)
            keys = under(keys, {key for key, verdict in verdicts.items() if verdict is Verdict.OPEN})
            before, number = seen.found, number + 1

    def look(self, keys: pa.Table, deadline: float | None = None) -> Round:
        """Read the rows under ``keys`` from both sides; with a deadline the lake only when it has passed the source."""
        source = self.fetch(keys)
        position = self._table.source.log_position()
        passed = deadline is not None and self._progress.wait(position, deadline)
        lake = lake_rows(self._table.wanted, self._table.lake.read(keys))
        return Round(source, lake, position, passed, sightings(self._table.wanted, source, lake))

    def fetch(self, keys: pa.Table) -> Rows:
        """The rows under ``keys`` as the source has them now."""
        table = self._table
        request = _request(table.id, table.wanted, keys)
        size = max(1, KEYS_AT_ONCE // 4)
        pieces = [
            self._fetched(request.slice(begin, begin + size), keys.slice(begin, size))
            for begin in range(0, len(keys), size)
        ]
        return source_rows(
            table.wanted, [[cell for piece in pieces for cell in piece[n]] for n in range(len(table.wanted.names))]
        )

    def _fetched(self, request: RowRequest, keys: pa.Table) -> list[list[Any]]:
        answer = self._table.source.fetch(self._table.catalog, request)
        found = np.flatnonzero(answer.found).tolist()
        return [[values[place] for place in found] for values in answer.values]

    def _judged(self, seen: Round, before: Mapping[int, Sighting], keys: pa.Table) -> dict[int, Verdict]:
        again: Mapping[int, int] = {}
        missing = {key for key, now in seen.found.items() if now.lake is None}
        if seen.passed and missing:
            rows = self.fetch(under(keys, missing))
            again = dict(zip(rows.key.tolist(), rows.cells.tolist(), strict=True))
        return {key: judge(before.get(key), now, seen.passed, again.get(key)) for key, now in seen.found.items()}

    def _at_the_end(
        self, seen: Round, before: Mapping[int, Sighting], verdicts: Mapping[int, Verdict]
    ) -> dict[int, Verdict]:
        form = position_format(seen.position.connector)
        end = bytes(positions(form, self._options.epoch, [[part] for part in seen.position.end], 1)[0])
        return {
            key: judge_at_the_end(before.get(key), seen.found[key], end) if verdict is Verdict.OPEN else verdict
            for key, verdict in verdicts.items()
        }

    def _told(self, seen: Round, verdicts: Mapping[int, Verdict], keys: pa.Table) -> Iterator[Difference]:
        decided = {key for key, verdict in verdicts.items() if verdict is not Verdict.OPEN}
        for row, key in _rows_under(keys, decided):
            now = seen.found[key]
            values = _values(seen, key, now.columns) if self._options.keep_values else {}
            yield Difference(verdicts[key], now.where, keys.slice(row, 1), now.columns, values)


def _suspects(source: pa.Table, lake: pa.Table, names: Sequence[str]) -> pa.Table:
    own, other = (digests(source, KEY), digests(source, ROW)), (digests(lake, KEY), digests(lake, ROW))
    ahead, behind = source.take(pa.array(unmatched(*own, *other))), lake.take(pa.array(unmatched(*other, *own)))
    both = pa.concat_tables([ahead, behind])
    _, first = np.unique(digests(both, KEY), return_index=True) if len(both) else (None, np.empty(0, np.int64))
    return both.take(pa.array(first)).select(list(names))


def _rows_under(keys: pa.Table, wanted: set[int]) -> list[tuple[int, int]]:
    """Place and digest of the keys that are wanted."""
    return [(place, key) for place, key in enumerate(key_digests(keys)) if key in wanted]


def key_digests(keys: pa.Table) -> list[int]:
    """The digest of each key, as ``Rows.key`` has it."""
    found: list[int] = row_digests([column.combine_chunks() for column in keys.columns]).tolist() if len(keys) else []
    return found


def under(keys: pa.Table, wanted: set[int]) -> pa.Table:
    """Those of ``keys`` whose digest is wanted."""
    places = [place for place, _ in _rows_under(keys, wanted)]
    return keys.take(pa.array(places, pa.int64())).combine_chunks()


def _request(table: TableId, wanted: Comparison, keys: pa.Table) -> RowRequest:
    """Every compared column of the rows under ``keys``."""
    schemas = {member.name: member.schema for member in wanted.fields}
    key = tuple(
        Column(name, schemas[name], keys[name].combine_chunks().cast(arrow_type(schemas[name])))
        for name in wanted.key_fields
    )
    columns = tuple(Column(name, schema, pa.nulls(0, arrow_type(schema))) for name, schema in schemas.items())
    needs = np.ones((len(keys), len(columns)), np.bool_)
    return RowRequest(table, key, columns, needs, np.full(len(keys), -1, np.int64))


def _values(seen: Round, key: int, columns: Sequence[str]) -> Mapping[str, tuple[str, str]]:
    if not columns:  # the row stands on one side only
        return {}
    source, lake = int(np.flatnonzero(seen.source.key == key)[0]), int(np.flatnonzero(seen.lake.key == key)[0])
    return {
        name: (_shown(seen.source.columns[name][source]), _shown(seen.lake.columns[name][lake])) for name in columns
    }


def cell_text(cell: pa.Scalar) -> str:
    """A cell as text; what Python's own types cannot hold as its count."""
    try:
        value = cell.as_py()
    except (ValueError, OverflowError):
        value = cell.cast(pa.int64()).as_py()
    return value.hex() if isinstance(value, bytes) else str(value)


def _shown(cell: pa.Scalar) -> str:
    """A cell so that a null is no text, and an empty text is something."""
    if not cell.is_valid:
        return "null"
    return f"'{cell_text(cell)}'" if pa.types.is_string(cell.type) else cell_text(cell)
