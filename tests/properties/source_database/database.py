"""A simulated source database: sessions, transactions, a log in the order of commits, and all states of every row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from properties.source_database.servers import Reading
from properties.source_database.statements import KEYS, Statement
from properties.source_database.tables import ARRAYS, COLUMNS, NULL_ARRAYS, Column, Row, key_columns, new_value


@dataclass(frozen=True)
class Change:
    """A change of one row (or a truncate).

    ``position`` is its position in the log; ``serial`` counts within a statement.

    ``what``: insert, update, delete, move (from ``key`` to ``new_key``) or truncate. ``columns`` are those that the
    table had then.
    """

    what: str
    table: int
    key: int
    before: Row
    after: Row
    columns: tuple[Column, ...]
    statement: int
    serial: int
    position: int
    new_key: int = 0


@dataclass(frozen=True)
class Transaction:
    """Changes that became visible in one commit of ``server``, as the connector reads them from ``log``."""

    id: int
    changes: tuple[Change, ...]
    time: int
    version: int
    server: int = 0
    log: int = 0


@dataclass(frozen=True)
class Snapshot:
    """The connector reads tables: ``rows`` by table and key, as committed at that moment.

    ``ahead``: streaming continues that many transactions earlier (a blocking snapshot of a connector that lags).
    """

    kind: str
    rows: Mapping[int, Mapping[int, Row]]
    columns: Mapping[int, tuple[Column, ...]]
    statement: int
    time: int
    version: int
    ahead: int = 0


@dataclass(frozen=True)
class Restart:
    """The connector restarts and sends the last ``back`` transactions again."""

    statement: int
    back: int


@dataclass(frozen=True)
class Failover:
    """The connector reads another ``log`` from now on, with GTIDs from ``back`` transactions before."""

    log: int
    back: int


@dataclass(frozen=True)
class AddedPartitions:
    """The topics get more partitions: from now on, keys may be in another partition than before."""


Entry = Transaction | Snapshot | Restart | Failover | AddedPartitions
Rows = dict[int, Row]


@dataclass
class Table:
    """``rows`` includes uncommitted changes, ``committed`` does not.

    ``remains`` has, by key, the last values of columns that were dropped since the row got its key.
    """

    number: int
    key_kind: str
    columns: tuple[Column, ...]
    rows: Rows = field(default_factory=dict)
    committed: Rows = field(default_factory=dict)
    locks: dict[int, int] = field(default_factory=dict)
    remains: dict[int, dict[str, Any]] = field(default_factory=dict)


class Database:
    """Executes statements. A statement that is not possible now (a locked row, an existing key) has no effect.

    ``states`` has all states that a row of each table and key ever had, by ``(table, key)``; ``versions`` the committed
    tables after each transaction.
    """

    def __init__(
        self,
        tables: int,
        key_kind: str,
        arrays: bool,
        together: str = "moves",
        *,
        gtids: bool = True,
        null_arrays: bool = False,
    ) -> None:
        self._together = together
        self._gtids = gtids
        self._reading = Reading()
        columns = COLUMNS + (NULL_ARRAYS if null_arrays else ARRAYS if arrays else ())
        self.tables = [Table(number, key_kind, columns) for number in range(tables)]
        self.log: list[Entry] = []
        self.states: defaultdict[tuple[int, int], list[Row]] = defaultdict(list)
        self.versions: list[list[Rows]] = [[{} for _ in self.tables]]
        self.layouts: list[list[tuple[Column, ...]]] = [[table.columns for table in self.tables]]
        self._open: dict[int, list[Change]] = {}
        self._position = 100
        self._time = 1_000
        self._transactions = 500
        self._added = 0
        self._connected = False

    def run(self, statements: Sequence[Statement]) -> None:
        """Execute all statements, and commit open transactions at the end."""
        for statement in statements:
            self._execute(statement)
        self._commit(0)
        self._commit(1)

    @property
    def final(self) -> Sequence[Rows]:
        """The rows of each table at the end."""
        return [table.committed for table in self.tables]

    def _execute(self, statement: Statement) -> None:
        table, session = self.tables[statement.table], statement.session
        if statement.what == "commit":
            self._commit(session)
        elif statement.what == "start connector":
            self._start_connector(statement)
        elif statement.what in ("snapshot", "incremental"):
            self._snapshot(statement)
        elif statement.what == "restart":
            self._commit(session)
            self.log += [Restart(statement.number, statement.other)] * self._connected
        elif statement.what == "failover":
            self._fail_over(statement)
        elif statement.what == "add partitions":
            self.log.append(AddedPartitions())
        elif statement.what in ("add column", "widen", "drop column"):
            self._alter(table, statement)
        else:
            statement = _aimed(table, statement)
            together = statement.what in ("shift", "swap")
            if together and any(change.what == "move" for change in self._open.get(session, ())):
                self._commit(session)  # docs/guarantees.md, "Keys that the database checks late"
            if statement.what == "truncate" and self._together != "moves":
                self._commit(session)
            keys = set(table.rows) if statement.what in ("shift", "truncate") else {statement.key, statement.other}
            locked = table.locks if statement.what == "truncate" else keys | {key + 1 for key in keys}
            if all(table.locks.get(key, session) == session for key in locked):
                self._change_rows(table, statement)
            if together:
                self._commit(session)
            if statement.what == "truncate" and self._together != "moves":
                self._commit(session)  # MySQL's truncate is a separate transaction; SQL Server's may be

    # -- statements ---------------------------------------------------------------------------------------------------

    def _change_rows(self, table: Table, statement: Statement) -> None:
        rows, key, other = table.rows, statement.key, statement.other
        steps: list[tuple[str, int, int]] = []
        match statement.what:
            case "insert" if key not in rows:
                steps = [("insert", key, 0)]
            case "update" | "delete" if key in rows:
                steps = [(statement.what, key, 0)]
            case "move" if key in rows and other not in rows:
                steps = [("move", key, other)]
            case "there and back" if key in rows and other not in rows:
                steps = [("move", key, other), ("move", other, key)]
            case "reuse" if key in rows and other not in rows:
                steps = [("move", key, other), ("insert", key, 0), ("delete", key, 0)][: 2 + statement.pick % 2]
            case "take over" if key in rows and other in rows and key != other:
                steps = [("delete", other, 0), ("move", key, other)]
            case "swap" if key in rows and other in rows and key != other:
                self._move_together(table, statement, [(key, other), (other, key)])
            case "shift" if rows and max(rows) < 9:
                ordered = sorted(rows, reverse=statement.pick % 3 == 0)
                self._move_together(table, statement, [(each, each + 1) for each in ordered])
            case "truncate":
                self._add(statement, "truncate", table, 0, {}, {})
                rows.clear()
        for what, old, new in steps:
            self._step(table, statement, what, old, new)

    def _step(self, table: Table, statement: Statement, what: str, key: int, new_key: int) -> None:
        before = table.rows.pop(key, {})
        if what == "insert":
            after = self._written(table, statement, {}, key, all_columns=True)
        elif what == "delete":
            after = {}
        else:
            few = what == "move" and statement.pick % 3 > 0  # most key changes change only the key
            after = dict(before) if few else self._written(table, statement, before, new_key or key, all_columns=False)
            after |= key_columns(table.key_kind, new_key or key)
        if after:
            table.rows[new_key or key] = after
        self._add(statement, what, table, key, before, after, new_key)

    def _move_together(self, table: Table, statement: Statement, moves: Sequence[tuple[int, int]]) -> None:
        """Several keys in one statement, which the database checks when the statement ends.

        "moves": the log shows one key change after the other, in any order. "descending": keys are checked row by row,
        so only what never meets an existing key works. "collapsed": the log shows what becomes of each key.
        """
        before = dict(table.rows)
        if self._together == "descending":
            moves = sorted(moves, reverse=True)
            if {key for key, _ in moves} >= {new for _, new in moves}:
                return  # a swap
        for key, _ in moves:
            del table.rows[key]
        for key, new_key in moves:
            table.rows[new_key] = {**before[key], **key_columns(table.key_kind, new_key)}
            if self._together != "collapsed":
                self._add(statement, "move", table, key, before[key], table.rows[new_key], new_key)
        for key in sorted({*before, *table.rows}) if self._together == "collapsed" else ():
            old, new = before.get(key, {}), table.rows.get(key, {})
            what = "update" if old and new else "insert" if new else "delete"
            if old != new:
                self._add(statement, what, table, key, old, new)

    def _written(
        self, table: Table, statement: Statement, before: Row, key: int, *, all_columns: bool
    ) -> dict[str, Any]:
        row = dict(before) | key_columns(table.key_kind, key)
        number = statement.number * 100 + len(self._open.get(statement.session, ())) % 10 * 10
        for place, column in enumerate(table.columns):
            if all_columns or statement.pick >> place & 1:
                row[column.name] = new_value(column, number + place, (statement.pick >> 6) + place)
        return row

    def _add(
        self, statement: Statement, what: str, table: Table, key: int, before: Row, after: Row, new_key: int = 0
    ) -> None:
        self._position += 10
        mine = self._open.setdefault(statement.session, [])
        serial = sum(change.statement == statement.number for change in mine)
        change = Change(
            what, table.number, key, before, after, table.columns, statement.number, serial, self._position, new_key
        )
        mine.append(change)
        table.locks |= dict.fromkeys((key, new_key) if new_key else (key,), statement.session)
        if what == "truncate":
            table.locks |= dict.fromkeys(range(11), statement.session)

    def _alter(self, table: Table, statement: Statement) -> None:
        if table.locks:
            return
        columns = {column.name: column for column in table.columns}
        if statement.what == "add column":
            self._added += 1
            kind = ("int32", "text", "large")[statement.pick % 3]
            columns[f"added{self._added}"] = Column(f"added{self._added}", kind)
        elif statement.what == "widen" and columns.get("n"):
            columns["n"] = replace(columns["n"], type="int64")
        elif statement.what == "drop column" and len(columns) > 1:
            name = sorted(columns)[statement.pick % len(columns)]
            for key, row in table.rows.items():
                table.remains.setdefault(key, {})[name] = row[name]
            del columns[name]
        table.columns = tuple(columns.values())
        for key, row in table.rows.items():
            table.rows[key] = key_columns(table.key_kind, key) | {column: row.get(column) for column in columns}
            self.states[table.number, key].append(table.rows[key])
        table.committed = dict(table.rows)
        self._remember_version()

    # -- the log ------------------------------------------------------------------------------------------------------

    def _commit(self, session: int) -> None:
        changes = self._open.pop(session, [])
        if not changes:
            return
        self._time += 10
        self._transactions += 1
        for change in changes:
            self._make_visible(change)
        for table in self.tables:
            table.locks = {key: holder for key, holder in table.locks.items() if holder != session}
        self._remember_version()
        if self._connected:
            reading, version = self._reading, len(self.versions) - 1
            self.log.append(
                Transaction(self._transactions, tuple(changes), self._time, version, reading.server, reading.log)
            )

    def _remember_version(self) -> None:
        self.versions.append([dict(table.committed) for table in self.tables])
        self.layouts.append([table.columns for table in self.tables])

    def _make_visible(self, change: Change) -> None:
        """Publish a transaction. Its keys are locked, so its session's view of them becomes the committed one."""
        table, key = self.tables[change.table], change.new_key or change.key
        if change.what == "truncate":
            table.committed.clear()
            table.remains.clear()
            return
        for each in (change.key, key):
            table.committed.pop(each, None)
            if each in table.rows:
                table.committed[each] = table.rows[each]
        if change.what != "update":
            table.remains.pop(change.key, None)
            table.remains.pop(key, None)
        if change.after:
            self.states[change.table, key].append(change.after)

    def _start_connector(self, statement: Statement) -> None:
        self._commit(0)
        self._commit(1)
        self._connected = True
        self.log.append(self._read("initial", statement, range(len(self.tables))))

    def _fail_over(self, statement: Statement) -> None:
        if self._connected:
            self._commit(0)
            self._commit(1)
            self._reading = self._reading.after_failover(statement.pick, gtids=self._gtids)
            self.log.append(Failover(self._reading.log, statement.other))

    def _snapshot(self, statement: Statement) -> None:
        if not self._connected:
            return
        self._commit(statement.session)
        kind = "blocking" if statement.what == "snapshot" else "incremental"
        snapshot = self._read(kind, statement, [statement.table])
        ahead = statement.pick % 4 if kind == "blocking" else 0
        if not ahead:
            self.log.append(snapshot)
            return
        begin = max(len(self.log) - ahead, 1)
        self.log.insert(begin, replace(snapshot, ahead=len(self.log) - begin))

    def _read(self, kind: str, statement: Statement, tables: Sequence[int]) -> Snapshot:
        self._time += 10
        return Snapshot(
            kind,
            {number: dict(self.tables[number].committed) for number in tables},
            {number: self.tables[number].columns for number in tables},
            statement.number,
            self._time,
            len(self.versions) - 1,
        )


def _aimed(table: Table, statement: Statement) -> Statement:
    """The statement with keys for which it has an effect."""
    rows = sorted(table.rows)
    free = [key for key in range(1, KEYS + 1) if key not in table.rows]
    key, other = statement.key, statement.other
    if statement.what == "insert":
        key = free[key % len(free)] if free else key
    elif rows:
        key = rows[key % len(rows)]
        rest = [each for each in rows if each != key] if statement.what in ("take over", "swap") else free
        other = rest[other % len(rest)] if rest else other
    return replace(statement, key=key, other=other)
