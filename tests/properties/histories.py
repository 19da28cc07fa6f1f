"""Random changes of a database with a few small tables, and the events that its connector sends.

Two sessions work in transactions: the position of a change is that of its statement, and its event is sent after the
commit. Every random decision comes from a ``Random``, so that Hypothesis and plain seeds generate the same histories.

A table may hold many *lanes*: keys with a common prefix that only interact with each other (a key change stays in its
lane). Each lane is a history of its own, but truncates and schema changes apply to the table. So one table of a slow
engine serves hundreds of histories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from properties.columns import BEGIN, altered, value
from properties.reference_model import Cells, Columns, Event

from headrace.core.model.events import CellState, Operation, RowVersion

KEYS = 4
LANE = 10
"""Keys per lane, at the most: the prefix of a key is its lane."""

VALUE, NULL, UNCHANGED = CellState.VALUE, CellState.NULL, CellState.UNCHANGED
UNKNOWN, ABSENT = CellState.UNKNOWN, CellState.ABSENT

FULL = (VALUE, VALUE, NULL, ABSENT)
HOLLOW = (VALUE, NULL, UNCHANGED, UNKNOWN)
"""Inserts of sources that leave values out of those as well."""
PARTIAL = (VALUE, NULL, UNCHANGED, UNCHANGED, UNKNOWN, ABSENT)

CHANGES = ("insert", "insert", "update", "update", "update", "delete", "move", "move", "shift")
OF_TABLES = ("truncate", "truncate", "alter")

Unit = list[Event]
"""Events of one partition that are delivered together: a delete and its tombstone, the halves of a key change."""


@dataclass(frozen=True)
class Size:
    """The number of changes.

    ``statements`` counts those of one lane, ``of_tables`` those that change a complete table.
    """

    tables: int = 1
    lanes: int = 1
    statements: int = 16
    of_tables: int = 2


@dataclass
class Table:
    """A table of the database: its columns, its keys, and the locks that sessions hold until they commit."""

    number: int
    topic: str
    partitions: int
    columns: Columns = BEGIN
    live: set[int] = field(default_factory=set)
    locks: dict[int, tuple[int, bool]] = field(default_factory=dict)
    whole: int | None = None

    def lock(self, key: int, session: int) -> bool:
        """Lock a row for the session until it commits; False if another session holds the lock."""
        if self.whole not in (None, session) or self.locks.get(key, (session,))[0] != session:
            return False
        self.locks.setdefault(key, (session, key in self.live))
        return True

    def lock_whole(self, session: int) -> bool:
        """Lock the table for the session in the same way."""
        free = self.whole in (None, session) and all(holder == session for holder, _ in self.locks.values())
        self.whole = session if free else self.whole
        return free

    def visible(self, key: int) -> bool:
        """Whether other sessions see a row under the key."""
        return self.whole is None and self.locks.get(key, (0, key in self.live))[1]

    def unlock(self, session: int) -> None:
        """Release the locks of a session that has committed."""
        self.locks = {key: lock for key, lock in self.locks.items() if lock[0] != session}
        self.whole = None if self.whole == session else self.whole


@dataclass
class Transaction:
    """The uncommitted changes of a session; ``taken`` are the keys that rows took over from other rows."""

    number: int
    units: list[Unit] = field(default_factory=list)
    taken: set[tuple[int, int]] = field(default_factory=set)


class Database:
    """Tables with changes, and ``log``: the events in the order of their commits, without offsets."""

    def __init__(self, choose: Random, tables: Sequence[Table], grain: int, moved: Sequence[CellState]) -> None:
        self.log: list[Unit] = []
        self.tables = tables
        self._choose = choose
        self._grain = grain
        self._moved = moved
        self._place = 0
        self._session = 0
        self._open = [Transaction(0), Transaction(1)]

    def change(self, what: str, table: Table, key: int) -> None:
        """Run one statement of one session, if the stored rows allow it."""
        self._place += 1
        self._session = self._choose.randint(0, 1)
        if what in OF_TABLES:
            self.commit(1 - self._session)  # which it waits for
            if table.lock_whole(self._session):
                self._change_table(what, table)
        elif what == "read":
            if table.visible(key):
                stamp = self._version(table, key, positioned=False)
                self.log.append([self._event(Operation.READ, table, key, stamp, FULL)])
        elif table.lock(key, self._session):
            self._change_row(what, table, key)
        if not self._choose.randint(0, 2):
            self.commit(self._session)

    def commit(self, session: int) -> None:
        """Append the changes of a session to the log with the current time."""
        time = self._time()
        for unit in self._open[session].units:
            self.log.append([replace(event, version=replace(event.version, source_time=time)) for event in unit])
        self._open[session] = Transaction(self._place + 2)
        for table in self.tables:
            table.unlock(session)

    # -- statements ---------------------------------------------------------------------------------------------------

    def _change_table(self, what: str, table: Table) -> None:
        if what == "alter":
            table.columns = altered(table.columns, self._choose)
            return
        stamp = replace(self._version(table, 0), partition=self._choose.randint(0, table.partitions - 1))
        self._add(self._event(Operation.TRUNCATE, table, 0, stamp))
        table.live.clear()

    def _change_row(self, what: str, table: Table, key: int) -> None:
        stamp = self._version(table, key)
        if what == "insert" and key not in table.live:
            states = self._choose.choice((FULL, FULL, HOLLOW))
            self._add(self._event(Operation.CREATE, table, key, stamp, states))
            table.live.add(key)
        elif what == "update":  # also of an unknown row: its insert was before the begin of the topic
            self._add(self._event(Operation.UPDATE, table, key, stamp, PARTIAL))
            table.live.add(key)
        elif what == "delete":
            gone, tombstone = self._deleted(table, key)
            self._add(*self._choose.choice(((gone, tombstone), (gone,))))
            table.live.discard(key)
        elif what == "remnant":  # compaction has removed the delete, and perhaps more
            self._add(self._deleted(table, key)[1])
            table.live.discard(key)
        elif what == "move" and key in table.live:
            self._move(table, key)
        elif what == "shift":
            self._shift(table, key)

    def _shift(self, table: Table, key: int) -> None:
        """``UPDATE t SET id = id + 1`` of some rows with deferred constraints: most rows move to an existing key."""
        lane = key // LANE * LANE
        keys = [each for each in range(lane + 1, lane + KEYS + 1) if each in table.live and each >= key]
        if all(table.lock(each, self._session) for old in keys for each in (old, old + 1)):
            for old in keys:
                self._send_move(table, old, old + 1)
                self._place += 1
            table.live -= set(keys)
            table.live |= {old + 1 for old in keys}

    def _move(self, table: Table, key: int) -> None:
        """Move a row, also to an existing key: with deferred constraints rows can swap keys."""
        lane = key // LANE * LANE
        target = lane + self._choose.choice([other for other in range(1, KEYS + 1) if lane + other != key])
        if not table.lock(target, self._session):
            return
        self._send_move(table, key, target)
        table.live.discard(key)
        table.live.add(target)

    def _send_move(self, table: Table, key: int, target: int) -> None:
        first = [replace(event, moved=True, new_key=target) for event in self._deleted(table, key)]
        stamp = self._version(table, target)
        together = stamp.partition == first[0].version.partition
        taken = self._open[self._session].taken
        if target in table.live:
            taken.add((table.number, target))
        # With deferred constraints, a source sends complete rows (replica identity FULL, Oracle).
        partial = together and (table.number, key) not in taken
        second = self._event(Operation.CREATE, table, target, stamp, self._moved if partial else FULL, key)
        for unit in [[*first, second]] if together else [first, [second]]:
            self._add(*unit)

    def _deleted(self, table: Table, key: int) -> Unit:
        stamp = self._version(table, key)
        without = replace(stamp, position=b"")
        return [
            self._event(Operation.DELETE, table, key, stamp),
            self._event(Operation.TOMBSTONE, table, key, without),
        ]

    # -- events -------------------------------------------------------------------------------------------------------

    def _event(
        self,
        operation: Operation,
        table: Table,
        key: int,
        stamp: RowVersion,
        states: Sequence[CellState] = (),
        old_key: int | None = None,
    ) -> Event:
        return Event(
            operation,
            key,
            stamp,
            self._cells(table.columns, states),
            old_key,
            columns=table.columns,
            table=table.number,
            transaction=self._open[self._session].number if stamp.position else -1,
        )

    def _cells(self, columns: Columns, states: Sequence[CellState]) -> Cells:
        """A cell for every column, each in one of the states; none without states."""
        cells: Cells = {}
        for name, kind in columns[1:] if states else ():
            state = self._choose.choice(states)
            cells[name] = (state, value(kind, self._choose) if state is VALUE else None)
        return cells

    def _version(self, table: Table, key: int, positioned: bool = True) -> RowVersion:
        position = b"00000.%020d" % (self._place * 10) if positioned else b""
        return RowVersion(position, table.topic, (table.number + key) % table.partitions, 0, self._time())

    def _time(self) -> int:
        return self._place // self._grain * 1000

    def _add(self, *events: Event) -> None:
        self._open[self._session].units.append(list(events))


def history(choose: Random, size: Size, *, in_order: bool, wandering: bool, again: bool) -> list[Unit]:
    """A history of a database as its connector sends it. Events have no offsets yet.

    ``wandering``: the number of partitions grows, so that events of a key come from several. ``again``: workers are
    killed and read again; then histories with wandering keys have no snapshots, and no key change omits a cell
    (``docs/guarantees.md`` explains why). Only histories that are delivered ``in_order`` may have tombstones whose
    delete is lost: such a tombstone has no position, so it cannot be compared with late events.
    """
    remnants = in_order and choose.randint(0, 1) == 1
    partitions = 1 if remnants else choose.choice((1, 1, 2, 3))
    one_topic = choose.randint(0, 1) == 1
    tables = [Table(n, "t" if one_topic else f"t{n}", partitions) for n in range(size.tables)]
    limited = wandering and again
    database = Database(choose, tables, choose.choice((1, 3)), FULL if limited else PARTIAL)
    statements = _statements(choose, size, (*CHANGES, *["read"] * (not limited), *["remnant"] * remnants))
    more_partitions_at = choose.randint(0, 2 * len(statements)) if wandering and not remnants else -1
    for place, (what, table, key) in enumerate(statements):
        for each in tables if place == more_partitions_at else ():
            each.partitions += 1
        database.change(what, tables[table], key)
    database.commit(0)
    database.commit(1)
    return database.log


def _statements(choose: Random, size: Size, changes: Sequence[str]) -> list[tuple[str, int, int]]:
    """The statement, table and key of each change: those of a lane in its own table, lanes in any order."""
    found = []
    for lane in range(size.lanes):
        table = choose.randint(0, size.tables - 1) if size.lanes > 1 else None
        for _ in range(choose.randint(1, size.statements)):
            of = choose.randint(0, size.tables - 1) if table is None else table
            found.append((choose.choice(changes), of, lane * LANE + choose.randint(1, KEYS)))
    choose.shuffle(found)
    for _ in range(choose.randint(0, size.of_tables)):
        place = choose.randint(0, len(found) * 2 // 3)  # not as the last statement, or all tables would be empty
        found.insert(place, (choose.choice(OF_TABLES), choose.randint(0, size.tables - 1), 0))
    return found
