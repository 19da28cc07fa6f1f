"""Compares lake tables with the database: with its rows at the end, and with every state that a row ever had."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import Any

from properties.source_database.database import Change, Snapshot, Transaction
from properties.source_database.dialects import DIALECTS
from properties.source_database.scenario import Scenario, Simulation
from properties.source_database.tables import NULL_ARRAYS, OMITTED, is_stored_out_of_line, key_columns
from properties.source_database.wire import key_document

LakeRow = Mapping[str, Any]


class Judge:
    """The judge of one scenario. ``key_of`` returns the number of a row for its key's values."""

    def __init__(self, scenario: Scenario, truth: Simulation) -> None:
        self._scenario = scenario
        self._truth = truth
        kind = scenario.setup.key_kind
        self._numbers = {tuple(key_columns(kind, number).items()): number for number in range(11)}
        self._key_names = list(key_columns(kind, 0))
        self._omitted = {
            column.name for layout in truth.database.layouts for each in layout for column in each
            if column.type in OMITTED
        }  # fmt: skip
        self._hidden = {each.name for each in NULL_ARRAYS if each.type == "doubles" and scenario.setup.null_arrays}
        features = scenario.features
        self._by_cell = scenario.sink.database or features.snapshots
        self.answers: defaultdict[tuple[int, str], list[tuple[int, Any]]] = defaultdict(list)
        self._origins = origins(truth)
        self.halves_apart = False
        """Whether the halves of a key change may have been read further apart than they wait for each other."""
        nulls = scenario.sink.unresolved == "null"
        self._hollow = hollow_keys(scenario, truth) if nulls else set()
        self._hollow_apart = hollow_keys(scenario, truth, apart=True) if nulls else set()
        self._updated_behind_reads = _updated_behind_reads(truth)
        without_catalog = scenario.setup.dialect == "postgresql" and not scenario.sink.database
        self._like_generated = _like_generated(scenario, truth) if without_catalog else frozenset()
        # docs/guarantees.md, "Rows that return for a moment with nulls"
        self._returns_hollow = scenario.sink.unresolved == "null" and bool(scenario.deaths or scenario.moves)

    def at_commit(self, table: int, rows: Sequence[LakeRow]) -> str:
        """The rows of a table after a commit that equal no earlier state of the source row; empty if there are none."""
        found = []
        for row in rows:
            key = self._number(row)
            states = self._truth.database.states.get((table, key), [])
            if not self._was(table, key, row, states):
                found.append(f"t{table}: {dict(row)} is no state that the row ever had; those were {states}")
        return "\n".join(found)

    def at_end(self, table: int, rows: Sequence[LakeRow]) -> str:
        """The differences between a table and its source at the end."""
        ours = {self._number(row): row for row in rows}
        theirs = self._truth.database.final[table]
        found = [] if len(ours) == len(rows) else [f"t{table}: several rows of one key"]
        for key in sorted({*ours, *theirs}):
            if key not in ours or key not in theirs or not self._equals(table, key, ours[key], theirs[key]):
                is_now, should_be = ours.get(key), theirs.get(key)
                found.append(f"t{table} key {key}: is {is_now}, should be {should_be}")
        return "\n".join(found)

    def _number(self, row: LakeRow) -> int:
        return self._numbers[tuple((name, row[name]) for name in self._key_names)]

    def _was(self, table: int, key: int, row: LakeRow, states: Sequence[LakeRow]) -> bool:
        if not self._by_cell:
            return any(self._equals(table, key, row, state, at_end=False) for state in states)
        return all(
            any(self._cell(table, key, name, value, state, at_end=False) for state in states)
            or (value is None and name in self._omitted)  # the database answered that the row does not exist
            or self._came_along(table, key, name, value)
            or self._is_behind_a_null(table, key, name, value)
            for name, value in row.items()
        )

    def _came_along(self, table: int, key: int, name: str, value: Any) -> bool:
        """Whether a cell was reselected for an earlier key of the row, and belongs to a later row with that key.

        The row itself does not exist in the source any more, so its delete follows in the topic.
        """
        known = self.answers.get((table, name), ())
        return any(value == answer for origin, answer in known if origin in self._origins.get((table, key), ()))

    def _is_behind_a_null(self, table: int, key: int, name: str, value: Any) -> bool:
        """Whether a key change carried an array because its NULL might have hidden it.

        This happens if the row has left its new key too, so that the database does not have it (docs/guarantees.md,
        "Nulls of PostgreSQL's types that have no placeholder").
        """
        states = self._truth.database.states
        return (
            name in self._hidden
            and any(state.get(name) is None for state in states.get((table, key), ()))
            and any(
                value == state.get(name)
                for origin in self._origins.get((table, key), ())
                for state in states.get((table, origin), ())
            )
        )

    def _is_of_a_read_ahead(self, table: int, key: int, name: str, value: Any) -> bool:
        """Whether a key change carried a cell from a later row with its old key that a snapshot had read before.

        docs/guarantees.md, "Key changes that follow a newer snapshot read".
        """
        states = self._truth.database.states
        return (table, key) in self._updated_behind_reads and any(
            value == state.get(name)
            for origin in self._origins.get((table, key), ())
            for state in states.get((table, origin), ())
        )

    def _equals(self, table: int, key: int, row: LakeRow, state: LakeRow, *, at_end: bool = True) -> bool:
        missing = [name for name, value in state.items() if name not in row and value is not None]
        return not missing and all(
            self._cell(table, key, name, value, state, at_end=at_end) for name, value in row.items()
        )

    def _cell(self, table: int, key: int, name: str, value: Any, state: LakeRow, *, at_end: bool) -> bool:
        """Whether a cell equals that of a state. A dropped column keeps its last value until the next complete row."""
        hollow = self._hollow_apart if self.halves_apart else self._hollow
        if value is None and (table, key) in hollow and name in self._omitted:
            return True
        if value is None and not at_end and self._returns_hollow and name in self._omitted:
            return True
        if name in self._omitted and self._is_of_a_read_ahead(table, key, name, value):
            return True
        if name in state:
            return bool(value == state[name])
        if value is None and (table, name) in self._like_generated:
            return True
        remains = self._truth.database.tables[table].remains.get(key, {})
        if at_end and not (self._scenario.features.snapshots or self._scenario.features.incremental):
            return bool(value == remains.get(name))
        return value is None or any(value == each.get(name) for each in self._truth.database.states[table, key])


def _like_generated(scenario: Scenario, truth: Simulation) -> Set[tuple[int, str]]:
    """The columns, by table, that reads contained and that the first streamed changes of their table did not.

    They were dropped before, which looks like a generated column (docs/guarantees.md, "Generated columns of
    PostgreSQL"): without a database their cells are NULL after a change of their row.
    """
    tables = {scenario.setup.topic(table): table for table in range(scenario.setup.tables)}
    read, streamed, absent = set(), set(), set()
    for record in truth.arrivals:
        document = json.loads(record.value or b"null") or {}
        payload = document.get("payload", document)
        row, op = payload.get("after", payload), payload.get("op", payload.get("__op"))
        table = tables.get(record.topic)
        if table is None or not row:
            continue
        columns = {(table, name) for name in row}
        if op == "r":
            read |= columns
        elif op in ("c", "u"):
            absent |= {each for each in read if each[0] == table} - columns - streamed
            streamed |= columns
    return absent


def origins(truth: Simulation) -> Mapping[tuple[int, int], set[int]]:
    """The keys from which rows moved to each key, directly or not, by table and key."""
    found: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    moves = _key_changes(truth)
    for _ in moves:
        for change in moves:
            found[change.table, change.new_key] |= {change.key, *found[change.table, change.key]}
    return found


def _key_changes(truth: Simulation) -> list[Change]:
    return [
        change
        for entry in truth.database.log
        if isinstance(entry, Transaction)
        for change in entry.changes
        if change.what == "move"
    ]


def hollow_keys(scenario: Scenario, truth: Simulation, *, apart: bool = False) -> set[tuple[int, int]]:
    """The rows, by table and key, that may lose a value without a database (reselect.unresolved.insert.mode).

    Their key change omits the value, and it is behind a snapshot that reads ahead, or a fenced worker writes it, or its
    halves are in two partitions and may have been read too far ``apart`` (``docs/guarantees.md``); or they moved from
    such a row.
    """
    setup, ahead = scenario.setup, _behind_reads(truth)
    omits_nulls = DIALECTS[setup.dialect].omits_nulls
    found: set[tuple[int, int]] = set()
    moves = _key_changes(truth)
    for _ in moves:
        for change in moves:
            omitted = any(
                (is_stored_out_of_line(column, change.after[column.name]) or (omits_nulls and column.type == "large"))
                and change.after[column.name] == change.before.get(column.name)
                for column in change.columns
            )
            old, new = (
                setup.partition(key_document(setup.key_kind, key_columns(setup.key_kind, key), schemas=setup.schemas))
                for key in (change.key, change.new_key)
            )
            unsafe = (apart and old != new) or change.position in ahead or scenario.overtaking is not None
            if (omitted and unsafe) or (change.table, change.key) in found:
                found.add((change.table, change.new_key))
    return found


def _behind_reads(truth: Simulation) -> set[int]:
    """The positions of key changes of a table that a snapshot read before it continued with older events."""
    read: set[int] = set()
    found: set[int] = set()
    for entry in truth.database.log:
        if isinstance(entry, Snapshot) and entry.ahead:
            read |= {*entry.rows}
        elif isinstance(entry, Transaction):
            found |= {change.position for change in entry.changes if change.what == "move" and change.table in read}
    return found


def _updated_behind_reads(truth: Simulation) -> set[tuple[int, int]]:
    """The rows, by table and key, with an update and then a key change behind a snapshot that reads ahead."""
    read: set[int] = set()
    updated: set[tuple[int, int]] = set()
    found: set[tuple[int, int]] = set()
    for entry in truth.database.log:
        if isinstance(entry, Snapshot) and entry.ahead:
            read |= {*entry.rows}
        elif isinstance(entry, Transaction):
            for change in (change for change in entry.changes if change.table in read):
                if change.what == "update":
                    updated.add((change.table, change.key))
                elif change.what == "move" and (change.table, change.key) in updated:
                    updated.add((change.table, change.new_key))
                    found.add((change.table, change.new_key))
    return found
