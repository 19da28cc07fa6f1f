"""An Oracle server in memory: tables with their history, a dictionary, privileges, and failures on request.

Values have the form in which the database stores them (``sql.py`` describes times); ``driver.py`` is the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from fake_oracle import sql
from sqlglot import exp

_parse = lru_cache(maxsize=64)(sql.parse)


@dataclass(frozen=True, slots=True)
class OracleColumn:
    """A column in the form of ALL_TAB_COLS."""

    name: str
    data_type: str
    precision: int | None = None
    scale: int | None = None
    not_null: bool = False
    length: int = 22
    virtual: bool = False
    collation: str | None = None


@dataclass(slots=True)
class OracleTable:
    """A table and its history: its rows from each SCN on, in the order of SCNs."""

    owner: str
    name: str
    columns: Sequence[OracleColumn]
    primary_key: Sequence[str] = ()
    unique: Mapping[str, Sequence[str]] = field(default_factory=dict)
    versions: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=lambda: [(1, [])])
    ddl_scn: int = 0
    ddl_time: str = "2024-01-01 00:00:00"
    may_select: bool = True
    may_flashback: bool = True
    too_young: bool = False

    def rows(self, scn: int) -> list[dict[str, Any]]:
        """The rows as of an SCN."""
        return next(rows for since, rows in reversed(self.versions) if since <= scn)


class OracleServer:
    """``failures`` are raised one by one, each at its step (``connect``, ``execute``, ``fetch``), as ORA codes.

    ``statements`` has the text and binds of every query of tables. ``logins`` has the passwords of all connections;
    ``password`` is the right one, None if any is.
    """

    def __init__(self, role: str = "PRIMARY", version: str = "19.3.0.0.0") -> None:
        self.role = role
        self.version = version
        self.scn = 100
        self.time = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
        self.oldest_scn = 0
        self.tables: dict[tuple[str, str], OracleTable] = {}
        self.failures: list[tuple[str, str]] = []
        self.statements: list[tuple[str, Mapping[str, Any]]] = []
        self.logins: list[str] = []
        self.password: str | None = None

    def add(self, table: OracleTable, rows: Sequence[dict[str, Any]] = ()) -> None:
        """Create a table whose rows exist from the first SCN on."""
        table.versions = [(0, list(rows))]
        self.tables[table.owner, table.name] = table

    def commit(self, owner: str, name: str, *rows: dict[str, Any]) -> int:
        """Replace a table's rows. Returns the SCN from which they are visible."""
        self.scn += 10
        self.tables[owner, name].versions.append((self.scn, list(rows)))
        return self.scn

    def fail(self, where: str) -> None:
        """Raise the next failure of the step ``where``, if there is one."""
        if self.failures and self.failures[0][0] == where:
            raise Failure(self.failures.pop(0)[1])

    def query(self, text: str, binds: Mapping[str, Any]) -> tuple[list[Any], list[tuple[Any, ...]]]:
        """The selected expressions and rows. Raises Failure."""
        self.fail("execute")
        tree = _parse(text)
        if sql.bind_names(tree) != set(binds):
            raise Failure("ORA-01036: unrecognized bind variable")
        if any(table.db for table in tree.find_all(exp.Table)):
            self.statements.append((text, binds))
        if isinstance(tree.expressions[0], exp.Anonymous):
            return tree.expressions, [(self.role,)]
        try:
            return tree.expressions, sql.select(tree, binds, lambda node: self._relation(node, binds))
        except sql.Refused as error:
            raise Failure(f"ORA-{error.code:05d}: {error}") from None

    def _relation(self, node: exp.Table, binds: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        if not node.db:
            return self._dictionary(node.name.upper())
        assert node.args["db"].quoted, "an owner without quotes"
        assert node.this.quoted, "a table without quotes"
        table = self.tables.get((node.db, node.name))
        if table is None or not table.may_select:
            raise Failure("ORA-00942: table or view does not exist")
        return [_typed(table, row) for row in table.rows(self._moment(table, node.args.get("version"), binds))]

    def _moment(self, table: OracleTable, version: exp.Expression | None, binds: Mapping[str, Any]) -> int:
        if version is None:
            return self.scn
        if not table.may_flashback:
            raise Failure("ORA-01031: insufficient privileges")
        if version.this == "TIMESTAMP":
            if table.too_young:
                raise Failure("ORA-01466: unable to read data - table definition has changed")
            return self.scn
        assert isinstance(version.expression, exp.Placeholder), "a literal SCN leaks a cursor"
        scn = int(binds[str(version.expression.this)])
        for code, gone in (("08181", scn > self.scn), ("01466", scn < table.ddl_scn), ("01555", scn < self.oldest_scn)):
            if gone:
                raise Failure(f"ORA-{code}: of the SCN that was asked for")
        return scn

    # -- the dictionary -----------------------------------------------------------------------------------------------

    def _dictionary(self, view: str) -> Sequence[Mapping[str, Any]]:
        if view == "DUAL":
            return [{"SYSTIMESTAMP": f"{self.time:%Y-%m-%d %H:%M:%S.%f}000"}]
        if view == "V$DATABASE":
            return [{"CURRENT_SCN": Decimal(self.scn)}]
        visible = [table for table in self.tables.values() if table.may_select]
        return [row for table in visible for row in _VIEWS[view](table)]


class Failure(Exception):
    """An error with the message of the server: ``ORA-01555: …``."""


def _typed(table: OracleTable, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with CHAR values as ``Char``; a missing column is null."""
    return {column.name: _value(column, row.get(column.name)) for column in table.columns}


def _value(column: OracleColumn, value: Any) -> Any:
    return sql.Char(value) if value is not None and column.data_type in ("CHAR", "NCHAR") else value


def _objects(table: OracleTable) -> list[dict[str, Any]]:
    names = {"OWNER": table.owner, "OBJECT_NAME": table.name, "OBJECT_TYPE": "TABLE"}
    return [{**names, "LAST_DDL_TIME": table.ddl_time}]


def _tab_cols(table: OracleTable) -> list[dict[str, Any]]:
    return [_tab_col(table, column, number) for number, column in enumerate(table.columns, 1)]


def _tab_col(table: OracleTable, column: OracleColumn, number: int) -> dict[str, Any]:
    return {
        "OWNER": table.owner,
        "TABLE_NAME": table.name,
        "COLUMN_NAME": column.name,
        "COLUMN_ID": Decimal(number),
        "INTERNAL_COLUMN_ID": Decimal(number),
        "DATA_TYPE": column.data_type,
        "DATA_LENGTH": Decimal(column.length),
        "DATA_PRECISION": column.precision,
        "DATA_SCALE": column.scale,
        "NULLABLE": "N" if column.not_null or column.name in table.primary_key else "Y",
        "VIRTUAL_COLUMN": "YES" if column.virtual else "NO",
        "HIDDEN_COLUMN": "NO",
        "COLLATION": column.collation,
    }


def _constraints(table: OracleTable) -> list[dict[str, Any]]:
    names = {"OWNER": table.owner, "TABLE_NAME": table.name, "CONSTRAINT_NAME": f"PK_{table.name}"}
    return [{**names, "CONSTRAINT_TYPE": "P"}] if table.primary_key else []


def _cons_columns(table: OracleTable) -> list[dict[str, Any]]:
    names = {"OWNER": table.owner, "TABLE_NAME": table.name, "CONSTRAINT_NAME": f"PK_{table.name}"}
    return [{**names, "COLUMN_NAME": column, "POSITION": n} for n, column in enumerate(table.primary_key, 1)]


def _indexes(table: OracleTable) -> list[dict[str, Any]]:
    names = {"OWNER": table.owner, "TABLE_OWNER": table.owner, "TABLE_NAME": table.name, "UNIQUENESS": "UNIQUE"}
    return [{**names, "INDEX_NAME": name} for name in table.unique]


def _ind_columns(table: OracleTable) -> list[dict[str, Any]]:
    return [
        {"INDEX_OWNER": table.owner, "INDEX_NAME": name, "COLUMN_NAME": column, "COLUMN_POSITION": number}
        for name, columns in table.unique.items()
        for number, column in enumerate(columns, 1)
    ]


_VIEWS = {
    "ALL_OBJECTS": _objects,
    "ALL_TAB_COLS": _tab_cols,
    "ALL_CONSTRAINTS": _constraints,
    "ALL_CONS_COLUMNS": _cons_columns,
    "ALL_INDEXES": _indexes,
    "ALL_IND_COLUMNS": _ind_columns,
}
