"""What reselect and verify need: the source database, whose rows are read again, and the store of the cache's rows.

``RowStore`` itself is declared where the core calls it.

Tests: ``tests/contracts/row_source_suite.py``, ``tests/contracts/row_store_suite.py``,
``tests/integration/test_doctor_postgres.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from headrace.core.doctor.clocks import ClockReading
from headrace.core.doctor.findings import Finding
from headrace.core.model.catalog import CatalogTable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.cache.rows import CacheLimits
from headrace.core.reselect.cache.rows import RowStore as RowStore
from headrace.core.reselect.cache.rows import StoreFailed as StoreFailed
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.core.reselect.rows import RowAnswer, RowRequest
from headrace.ports.signals import SignalChannel


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections to source databases, and the servers that are not queried for a while after they did not answer."""

    idle: int = 0
    used: int = 0
    left_alone: int = 0

    def __add__(self, other: Connections) -> Connections:
        return Connections(self.idle + other.idle, self.used + other.used, self.left_alone + other.left_alone)


class ReadPassword(Protocol):
    """The passwords of a database."""

    def __call__(self) -> str:
        """Return the password for a new connection. Called by several threads; may block for seconds.

        Raises ConfigError or Retriable, whose messages reach logs and REST answers.
        """


class OpenCredentials(Protocol):
    """What an entry point of ``headrace.database_credentials`` names."""

    def __call__(self, database: DatabaseOptions, /) -> ReadPassword:
        """Return the passwords of a database, whose ``credentials_options`` are the plug-in's own options.

        Raises ConfigError or Retriable, whose messages reach logs and REST answers.
        """


class RowSource(Protocol):
    """The source database, for reselect. Safe to call from several threads.

    Every call may raise Retriable (connection lost, time-out, the event's transaction not visible yet) or Fatal (the
    server refused: no grant, no such column); ConfigError when the settings or the server cannot be right.
    """

    def check(self) -> None:
        """Raise ConfigError or Retriable with the cause when the database cannot be used (wrong password, TLS…)."""

    def catalog(self, table: TableId) -> CatalogTable | None:
        """The database's catalog entry of a table; None if there is no such table."""

    def schema(self, catalog: CatalogTable) -> Schema:
        """The ``after`` schema that Debezium sends for the table, for events that come without one."""

    def fetch(self, catalog: CatalogTable, request: RowRequest) -> RowAnswer:
        """Read the cells that ``request`` needs, in one statement and one snapshot, as Connect values."""

    def connections(self) -> Connections:
        """The connections that are open now. Never raises and queries no server."""

    def close(self) -> None:
        """Close all connections. Idempotent."""


class OpenDatabase(Protocol):
    """What an entry point of ``headrace.row_sources`` names, whose name is a value of ``reselect.database.type``."""

    def __call__(self, options: ReselectOptions, /) -> RowSource:
        """Return the row source of ``options.database`` without a connection. Raises ConfigError."""


OpenRowSource = Callable[[DatabaseOptions, ReselectOptions], RowSource]
"""Returns the row source of one of a connector's databases without a connection. Raises ConfigError."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far the log of a source is, as parts of a source position (``core/model/positions.py``) of ``connector``.

    Everything that a reader saw before ``end`` was queried lies below it. Up to ``published`` the source connector
    reports that its events are in Kafka; None if that cannot be known.
    """

    connector: str
    end: tuple[Any, ...]
    published: tuple[Any, ...] | None = None


@runtime_checkable
class TableSource(RowSource, Protocol):
    """A row source that also reads complete tables, for ``headrace verify``."""

    def scan(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[Sequence[Sequence[Any]]]:
        """Every row of a table, all of one snapshot: pieces that fit memory, Connect values (or UNREADABLE) by column.

        Raises as ``fetch`` does, also between pieces.
        """

    def log_position(self) -> LogPosition:
        """How far the log is now."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """Some rows of a table. ``values`` converts them, so that the time of their read is only that of the source."""

    rows: int
    values: Callable[[], Sequence[Sequence[Any]]]


@runtime_checkable
class PartwiseSource(TableSource, Protocol):
    """A table source that also reads a table in parts, for a verification that takes its time."""

    def scan_in_parts(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[TablePart]:
        """As ``scan``, with a snapshot for each part, none of which is kept while the caller does not ask for more.

        A row that is updated meanwhile may come twice, in two states, or not at all.
        """


@runtime_checkable
class ExaminedSource(RowSource, Protocol):
    """A row source that also says what will go wrong with its database, for ``headrace doctor``."""

    def findings(self, tables: Sequence[TableId]) -> Sequence[Finding]:
        """Check the server and these tables. Changes nothing. Raises as ``fetch`` does."""


@runtime_checkable
class ClockedSource(RowSource, Protocol):
    """A row source that also reads the clock of its database's server, for ``headrace doctor``."""

    def clock(self, now: Callable[[], float]) -> ClockReading:
        """The clock of the server, compared with ``now``, seconds since the epoch. Raises as ``fetch`` does."""


@runtime_checkable
class SignalledSource(RowSource, Protocol):
    """A row source whose database may have a signal table, for ``headrace resnapshot``."""

    def signal_table(self, name: str) -> SignalChannel:
        """The signal table ``schema.table``, which has the columns id, type and data in this order. Sends no query."""


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    """A logical replication slot of a database. ``where`` is the server, ``retained`` the bytes of the log it keeps."""

    where: str
    name: str
    active: bool
    retained: int


@runtime_checkable
class SlotSource(RowSource, Protocol):
    """A row source whose database keeps its log for slots, which source connectors read."""

    def slots(self) -> Sequence[ReplicationSlot]:
        """Return the logical replication slots of the database. Raises as ``fetch`` does."""


@dataclass(frozen=True, slots=True)
class RowStoreOptions:
    """What a store of the reselect cache's rows is opened with: its bounds, whose it is, and its type's own options.

    ``properties`` are the connector's ``reselect.cache.<type>.*`` without that prefix.
    """

    limits: CacheLimits
    connector: str
    task: int
    properties: Mapping[str, str] = field(default_factory=dict)


class OpenRowStore(Protocol):
    """What an entry point of ``headrace.reselect_caches`` names, whose name is a value of ``reselect.cache.type``."""

    def __call__(self, options: RowStoreOptions, /) -> RowStore:
        """Open the store of one task. Raises ConfigError or Retriable, whose messages reach logs and REST answers."""
