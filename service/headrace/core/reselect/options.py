"""The options of reselect, its cache and its databases.

Names and defaults are those of Debezium's ``ReselectColumnsPostProcessor`` (``reselect.md`` section 3), with Headrace's
own beside them. ``headrace.config.reselect`` reads them from a connector's configuration.

Tests: ``tests/unit/core/reselect/test_reselect_options.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.core.connect.config_def import Importance, Type, any_case, at_least, between, unique_entries
from headrace.core.connect.typed_options import equal_to, option
from headrace.core.model.catalog import Dialect, HandlingModes
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.core.model.unavailable import DEFAULT_PLACEHOLDER
from headrace.core.reselect.cache.rows import CacheLimits

CACHE_ALIASES = {
    "io.debezium.processors.reselect.cache.MemoryReselectColumnCache": "memory",
    "MemoryReselectColumnCache": "memory",
}
CACHE_FORMAT = 1
"""The format of a cache that outlives the process; a cache of another format is invalid."""
ERROR_MODE = "reselect.error.handling.mode"
INSERT_MODE = "reselect.unresolved.insert.mode"
DEFAULT_PORTS: Mapping[str, int] = {Dialect.POSTGRESQL: 5432, Dialect.ORACLE: 1521}
_HIGH, _LOW = Importance.HIGH, Importance.LOW
_ROW_OPERATIONS = frozenset("cud")
_LIMITS = CacheLimits()


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """``reselect.database.*``: the database for reads. Its text forms do not contain the password.

    ``hostname`` may list several servers of one cluster, each with its port: ``replica:5433,primary``.
    ``type`` selects the row source; Oracle's ``dbname`` is a service.
    ``read_password`` reads the password again, because it may have changed since the task started (rotation). If it is
    None, ``password`` is valid for the life of the task.
    ``source_name`` and ``source_db`` are those in the source blocks of this database's events; if empty, any name and
    the database's name.
    """

    hostname: str = option(
        "reselect.database.hostname",
        Type.STRING,
        "",
        "Host of the source database; empty disables reselect. Several servers of one cluster are separated by "
        "commas, each optionally with its own port: replica:5433,primary.",
        _HIGH,
    )
    port: int = option(
        "reselect.database.port",
        Type.INT,
        DEFAULT_PORTS[Dialect.POSTGRESQL],
        "Port of the source database; 1521 if the type is oracle and no port is set.",
        validator=between(1, 65535),
    )
    user: str = option(
        "reselect.database.user",
        Type.STRING,
        "",
        "User with SELECT on the captured tables, on Oracle also with FLASHBACK.",
        _HIGH,
    )
    password: str | None = option("reselect.database.password", Type.PASSWORD, None, "Password of that user.", _HIGH)
    dbname: str = option(
        "reselect.database.dbname",
        Type.STRING,
        "",
        "Name of the database; for Oracle the service of the pluggable database.",
        _HIGH,
    )
    sslmode: str = option(
        "reselect.database.sslmode",
        Type.STRING,
        "prefer",
        "TLS mode, with libpq's names. verify-full verifies the server's certificate and its name, verify-ca only the "
        "certificate. PostgreSQL: require encrypts, and verifies the certificate only if sslrootcert is set. Oracle: "
        "from require on TLS is used, and require is the same as verify-full.",
        validator=any_case("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
        read=str.lower,
    )
    sslrootcert: str = option(
        "reselect.database.sslrootcert",
        Type.STRING,
        "",
        "PEM file with the certificate authorities to trust. By default, Oracle's are those of the system, and "
        "PostgreSQL has none.",
    )
    sslcert: str = option("reselect.database.sslcert", Type.STRING, "", "PEM file with the client's certificate.")
    sslkey: str = option("reselect.database.sslkey", Type.STRING, "", "PEM file with the key of that certificate.")
    sslpassword: str | None = option(
        "reselect.database.sslpassword", Type.PASSWORD, None, "Password of the key in sslkey, if it is encrypted."
    )
    wallet_location: str = option(
        "reselect.database.wallet.location",
        Type.STRING,
        "",
        "Oracle: folder of a wallet (ewallet.p12 or ewallet.pem) with the authorities to trust and, for mutual TLS, "
        "the client's key. It replaces sslrootcert, sslcert and sslkey.",
    )
    wallet_password: str | None = option(
        "reselect.database.wallet.password", Type.PASSWORD, None, "Password of that wallet."
    )
    credentials: str = option(
        "reselect.database.credentials",
        Type.STRING,
        "",
        "Plug-in that provides the password for each new connection, such as an access token of a cloud: an entry "
        "point of headrace.database_credentials. Its options follow reselect.database.credentials. and "
        "reselect.database.password is not used.",
        _LOW,
    )
    pool_max_size: int = option(
        "reselect.database.pool.max.size", Type.INT, 4, "Maximum number of connections.", _LOW, at_least(1)
    )
    type: str = option(
        "reselect.database.type",
        Type.STRING,
        Dialect.POSTGRESQL.value,
        "Type of the database: postgresql or oracle.",
        _HIGH,
        any_case("postgresql", "oracle"),
    )
    source_name: str = ""
    source_db: str = ""
    credentials_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    read_password: Callable[[], str | None] | None = field(default=None, repr=False, compare=False)

    def current_password(self) -> str:
        """Return the password for a new connection. Raises ConfigError or Retriable if it cannot be read."""
        return (self.password if self.read_password is None else self.read_password()) or ""

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """Return host and port of each server in ``hostname``. Raises ConfigError for a port that is not a number."""
        return tuple(_server(part.strip(), self.port) for part in self.hostname.split(",") if part.strip())

    def holds(self, table: TableId) -> bool:
        return self.source_name in ("", table.name) and (self.source_db or self.dbname) == table.database


def _server(text: str, default_port: int) -> tuple[str, int]:
    """``host``, ``host:port``, or an IPv6 address, in brackets if a port follows."""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        return text.strip("[]"), default_port
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ConfigError(
            f"reselect.database.hostname: {port!r} in {text!r} is not a port", "reselect.database.hostname"
        )
    return host.strip("[]"), int(port)


@dataclass(frozen=True, slots=True)
class ReselectOptions:
    """One connector's reselect options; times in milliseconds.

    ``databases`` are the named ones (``reselect.databases``); with them, ``database`` is None.
    The fields that declare no option come from other groups (``config/reselect.py: reselect_options``).
    """

    columns_include_list: str = option(
        "reselect.columns.include.list",
        Type.STRING,
        "",
        "Regular expressions, separated by commas (\\, is a comma), for the columns to reselect. Each must match "
        "the whole of schema.table:column. Cannot be combined with the exclude list.",
    )
    columns_exclude_list: str = option(
        "reselect.columns.exclude.list", Type.STRING, "", "Regular expressions for the columns not to reselect."
    )
    unavailable_values: bool = option(
        "reselect.unavailable.values",
        Type.BOOLEAN,
        True,
        "Whether to fill placeholders from the database. If false, only the fold, the cache and the stored row "
        "fill them.",
    )
    null_values: bool = option(
        "reselect.null.values",
        Type.BOOLEAN,
        True,
        "Whether to look up nulls as well. This is Debezium's default, and is costly without an include list.",
    )
    use_event_key: bool = option(
        "reselect.use.event.key",
        Type.BOOLEAN,
        False,
        "Whether to query the database by the fields of the message key instead of the primary key. "
        "message.key.columns at the source connector may have replaced the primary key in the message.",
    )
    key_columns: str = option(
        "reselect.key.columns",
        Type.STRING,
        "",
        "Columns that identify a row where the database declares no key, or a different one: "
        "schema.table:column,column;… with a regular expression before the colon, as in Debezium's "
        "message.key.columns.",
    )
    error_handling_mode: str = option(
        "reselect.error.handling.mode",
        Type.STRING,
        "warn",
        "What to do if a row cannot be read: warn keeps the stored cell, fail lets the table fail, dlq sends the "
        "records that omit the value to the dead letter queue.",
        validator=any_case("warn", "fail", "dlq"),
    )
    unresolved_insert_mode: str = option(
        "reselect.unresolved.insert.mode",
        Type.STRING,
        "auto",
        "What to do with a cell without a value in a row that is not stored yet. null writes a null. auto writes "
        "a null only if the database has shown that the row does not exist any more, and otherwise fails the "
        "table. fail fails the table. dlq sends the records that omit the value to the dead letter queue.",
        validator=any_case("auto", "null", "fail", "dlq"),
    )
    unknown_null_mode: str = option(
        "reselect.unknown.null.mode",
        Type.STRING,
        "keep",
        "What to do without a database with a null that may hide an unchanged value: keep keeps the stored cell, "
        "null writes the null. In a history (insert.mode=insert), which reads no database, keep writes a null and "
        "lists the column in __headrace_unavailable, and null writes a null that counts as real.",
        validator=any_case("keep", "null"),
    )
    source_reads: str = option(
        "reselect.source.reads",
        Type.STRING,
        "all",
        "all queries every missing cell, missing-rows only those of rows that are not stored, none queries nothing.",
        validator=any_case("all", "missing-rows", "none"),
    )
    read_from: str = option(
        "reselect.read.from",
        Type.STRING,
        "primary",
        "Server to query: primary, or replica for a standby. A standby must prove that it has an event's "
        "transaction before its answer counts. If it is too far behind, Headrace queries the primary, if hostname "
        "lists it.",
        validator=any_case("primary", "replica"),
    )
    visibility_check: bool = option(
        "reselect.visibility.check",
        Type.STRING,
        "on",
        "Whether an answer counts only if the event's transaction is visible to it. Use off for restored "
        "databases: their answers are not cached, replace no null of an event, and do not prove that a row does "
        "not exist any more.",
        validator=any_case("on", "off"),
        read=equal_to("on"),
    )
    visibility_timeout_ms: int = option(
        "reselect.visibility.timeout.ms",
        Type.LONG,
        10_000,
        "Time to wait for a transaction to become visible on a server, before the next server is queried.",
        validator=at_least(0),
    )
    batch_max_keys: int = option(
        "reselect.batch.max.keys", Type.INT, 1000, "Number of rows of one SELECT.", _LOW, at_least(1)
    )
    batch_max_bytes: int = option(
        "reselect.batch.max.bytes",
        Type.LONG,
        64 << 20,
        "Bytes that one SELECT may return; the size of earlier rows determines how many rows it requests. A batch "
        "for which reselect reads more than four times as much is written in parts.",
        _LOW,
        at_least(1024),
    )
    catalog_refresh_ms: int = option(
        "reselect.catalog.refresh.ms",
        Type.LONG,
        60_000,
        "Interval at which the catalog is read again.",
        _LOW,
        at_least(0),
    )
    cache_enabled: bool = option(
        "reselect.cache.enabled", Type.BOOLEAN, False, "Whether to cache column values between batches."
    )
    cache_type: str = option(
        "reselect.cache.type",
        Type.STRING,
        "memory",
        "Cache implementation: memory, rocksdb for keys that do not fit into memory, or another plug-in. "
        "Debezium's class name of the memory cache is accepted.",
        read=lambda name: CACHE_ALIASES.get(name, name),
    )
    cache_admission: str = option(
        "reselect.cache.admission",
        Type.STRING,
        "reuse",
        "Which tables are cached. reuse: a table of which more than a twentieth of the reads are of a row that was "
        "read before, among the task's last 262144 reads. always: each table, which doubles the CPU time of reselect "
        "if no row is read twice.",
        _LOW,
        any_case("reuse", "always"),
        read=str.lower,
    )
    cache_max_size: int = option(
        "reselect.cache.max.size", Type.INT, _LIMITS.max_rows, "Maximum number of cached rows.", validator=at_least(1)
    )
    cache_ttl_ms: int = option(
        "reselect.cache.ttl.ms",
        Type.LONG,
        _LIMITS.ttl,
        "Time for which a cached value is valid; 0 means no limit.",
        validator=at_least(0),
    )
    cache_max_columns_per_row: int = option(
        "reselect.cache.max.columns.per.row",
        Type.INT,
        _LIMITS.max_columns,
        "Maximum number of cached columns per row.",
        _LOW,
        at_least(1),
    )
    cache_max_bytes: int = option(
        "reselect.cache.max.bytes",
        Type.LONG,
        _LIMITS.max_bytes,
        "Maximum number of bytes of the cache.",
        validator=at_least(0),
    )
    cache_max_value_bytes: int = option(
        "reselect.cache.max.value.bytes",
        Type.LONG,
        _LIMITS.max_value_bytes,
        "Size above which a value is not cached.",
        _LOW,
        at_least(0),
    )
    cache_table_max_bytes: int = option(
        "reselect.cache.table.max.bytes",
        Type.LONG,
        0,
        "Maximum number of bytes that one table may occupy in the cache; 0 means no limit.",
        _LOW,
    )
    database_names: tuple[str, ...] = option(
        "reselect.databases",
        Type.LIST,
        (),
        "Names of several source databases. The options below then follow reselect.database.<name>. for each "
        "database; without a name they apply to all of them. A table is read in the database whose dbname equals "
        "source.db of its events. source.db and source.name under reselect.database.<name>. set other values to "
        "match.",
        validator=unique_entries,
    )
    database_query_timeout_ms: int = option(
        "reselect.database.query.timeout.ms",
        Type.LONG,
        30_000,
        "Maximum duration of one SELECT.",
        validator=at_least(1),
    )
    cache_properties: Mapping[str, str] = field(default_factory=dict)
    database: DatabaseOptions | None = None
    databases: tuple[DatabaseOptions, ...] = ()
    unavailable_value_placeholder: str = DEFAULT_PLACEHOLDER
    modes: HandlingModes = field(default_factory=HandlingModes)
    skipped_operations: frozenset[str] = frozenset("t")
    keeps_history: bool = False
    errors_retry_timeout_ms: int = 0
    errors_retry_delay_max_ms: int = 60_000

    @property
    def dead_letters(self) -> bool:
        return "dlq" in (self.error_handling_mode, self.unresolved_insert_mode)

    @property
    def caches(self) -> bool:
        """Return whether the cache is enabled, and no option for all topics disables it (section 3.4)."""
        unproven = self.read_from == "replica" and not self.visibility_check
        hidden = bool(self.skipped_operations & _ROW_OPERATIONS)
        return self.cache_enabled and not (unproven or hidden or self.keeps_history)  # proven: S24

    @property
    def cache_limits(self) -> CacheLimits:
        """Return the limits of the cache."""
        return CacheLimits(
            max_rows=self.cache_max_size,
            max_bytes=self.cache_max_bytes,
            max_columns=self.cache_max_columns_per_row,
            max_value_bytes=self.cache_max_value_bytes,
            max_table_bytes=self.cache_table_max_bytes or None,
            ttl=self.cache_ttl_ms,
        )

    @property
    def cache_settings(self) -> str:
        """Return the options on which cached values depend: a cache with other ones is invalid (section 5.4)."""
        placeholder, modes, operations = self.unavailable_value_placeholder, self.modes, sorted(self.skipped_operations)
        selected = self.columns_include_list, self.columns_exclude_list, self.key_columns, self.use_event_key
        return repr((CACHE_FORMAT, placeholder, modes, operations, selected, self.unavailable_values, self.null_values))
