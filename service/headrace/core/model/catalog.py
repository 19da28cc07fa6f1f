"""The catalog of a source database, and the handling modes of its connector.

``headrace_connectors/sql`` reads them, and the core uses them. The names are those of PostgreSQL (``pg_attribute``,
``pg_type``, ``pg_class``), because they serve its rules for values that are stored out of line. Other databases have
additional fields.

Tests: ``tests/contracts/row_source_suite.py``, ``tests/recordings/test_reselected_values.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from headrace.core.model.events import TableId
from headrace.core.model.schema import Schema

MODES: Mapping[str, tuple[str, ...]] = {
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"),
    "decimal.handling.mode": ("precise", "double", "string"),
    "hstore.handling.mode": ("json", "map"),
    "interval.handling.mode": ("numeric", "string"),
    "time.precision.mode": (
        "adaptive",
        "adaptive_time_microseconds",
        "connect",
        "isostring",
        "microseconds",
        "nanoseconds",
        "structured",
    ),
}
"""The source connector's options for the form of values, and their possible values; the first is the default."""


@dataclass(frozen=True, slots=True)
class HandlingModes:
    """The source connector's handling modes, which event schemas do not always show (``reselect.md`` section 8.1)."""

    binary: str = MODES["binary.handling.mode"][0]
    decimal: str = MODES["decimal.handling.mode"][0]
    hstore: str = MODES["hstore.handling.mode"][0]
    interval: str = MODES["interval.handling.mode"][0]
    time_precision: str = MODES["time.precision.mode"][0]
    money_fraction_digits: int = 2
    lob_enabled: bool = False


class Dialect(StrEnum):
    """A database system; the value is that of ``reselect.database.type``."""

    POSTGRESQL = "postgresql"
    ORACLE = "oracle"


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type of the source database. ``kind`` is ``pg_type.typtype`` (b base, d domain, e enum, r range, m multirange).

    ``element`` is set for arrays, ``base`` and ``typmod`` for domains, ``labels`` for enums in their order. Oracle's
    types have a name only: ``NUMBER``, ``TIMESTAMP WITH TIME ZONE``.
    """

    oid: int
    schema: str
    name: str
    kind: str = "b"
    element: SqlType | None = None
    base: SqlType | None = None
    typmod: int = -1
    labels: tuple[str, ...] = ()

    def base_type(self) -> SqlType:
        """Return the base type of a domain, otherwise the type itself."""
        return self if self.base is None else self.base.base_type()


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column of the catalog; ``typmod`` is -1 if none is declared.

    ``recoverable`` is whether the log contains the old value (REPLICA IDENTITY FULL), so that it is never omitted.
    Oracle has ``precision`` and ``scale`` (of a time: its fraction digits) instead of ``typmod``; None if undeclared.
    ``has_default`` is whether a default may be declared.
    """

    name: str
    number: int
    type: SqlType
    typmod: int = -1
    attlen: int = -1
    attstorage: str = "p"
    not_null: bool = False
    generated: bool = False
    recoverable: bool = False
    precision: int | None = None
    scale: int | None = None
    has_default: bool = field(default=True, compare=False)  # no event depends on it

    @property
    def omittable(self) -> bool:
        """Whether events may omit an unchanged value: stored out of line, and the old value is not in the log."""
        return self.attlen == -1 and self.attstorage != "p" and not self.recoverable


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the row's identity, with the equality operator of its index (``schema`` qualifies ``operator``)."""

    name: str
    type: SqlType
    operator_schema: str = "pg_catalog"
    operator: str = "="
    deterministic: bool = True


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table of the catalog. ``relkind`` is ``p`` for a partitioned root.

    ``key`` is the identity in key order: the primary key, else the replica identity's index, else empty.
    ``replica_identity`` is ``pg_class.relreplident``; ``identity_index`` is the name of the index of ``i``, unless it
    is that of the primary key. ``version`` changes with every DDL statement, if the database provides it (Oracle's
    ``LAST_DDL_TIME``). ``partition`` is whether it is a partition of a table. ``published`` is False if no publication
    contains the table under its own name, so that only snapshots send its rows.
    """

    table: TableId
    relkind: str
    replica_identity: str
    columns: tuple[CatalogColumn, ...]
    key: tuple[KeyColumn, ...] = ()
    primary_key: bool = True
    identity_index: str | None = None
    partition: bool = False
    published: bool = True
    version: str = ""
    dialect: Dialect = Dialect.POSTGRESQL

    def column(self, name: str) -> CatalogColumn | None:
        """Return the column with ``name`` in events, or None if there is none or the name is ambiguous.

        A connector with ``field.name.adjustment.mode=avro`` replaces characters that Avro does not allow by ``_``.
        """
        exact = next((column for column in self.columns if column.name == name), None)
        if exact is not None:
            return exact
        adjusted = [column for column in self.columns if avro_name(column.name) == name]
        return adjusted[0] if len(adjusted) == 1 else None

    @property
    def sends_wrong_keys(self) -> bool:
        """Whether PostgreSQL's log identifies deleted rows by other columns than the primary key of the messages.

        Debezium then sends deletes of key 0 or '', and no delete for a row whose key changes
        (``reselect.md`` section 11).
        """
        return self.primary_key and self.identity_index is not None

    @property
    def fingerprint(self) -> int:
        """A hash that changes when a column is retyped, renamed, dropped or added again, or when the key changes."""
        return hash((self.relkind, self.replica_identity, self.columns, self.key, self.version))


def avro_name(name: str) -> str:
    """Return a field name with Debezium's Avro adjustment: characters except letters, digits and ``_`` become ``_``.

    Java replaces UTF-16 units, so that a character above U+FFFF becomes two.
    """
    first = "_" + name if name[:1].isdigit() else name
    return "".join(
        letter if letter.isascii() and (letter.isalnum() or letter == "_") else "_" * (1 + (letter > "\uffff"))
        for letter in first
    )


class Catalog(Protocol):
    """The catalog of the source database, if one is configured."""

    def table(self, table: TableId) -> CatalogTable | None:
        """Return the table's catalog entry, or None without a database or such a table."""

    def schema(self, table: TableId) -> Schema | None:
        """Return the ``after`` schema that Debezium would send for the table, or None."""

    def schema_now(self, table: TableId) -> Schema | None:
        """Return the same from a catalog entry that is at least as new as the decoded records."""


class NoCatalog:
    """The catalog of a connector without a database."""

    def table(self, table: TableId) -> CatalogTable | None:
        return None

    def schema(self, table: TableId) -> Schema | None:
        return None

    def schema_now(self, table: TableId) -> Schema | None:
        return None
