"""The options of the reselect post-processor, and which columns they select.

Names, defaults and the pattern syntax are Debezium's ``ReselectColumnsPostProcessor``'s (``reselect.md`` section 3);
keys come bare, as ``post.processors.<name>.…`` or in the old form ``<name>.…``, also those that Headrace adds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headrace.core.connect.java_patterns import OnlyJava, python_pattern
from headrace.core.connect.regex_cost import TooCostly, check_cost
from headrace.core.model.catalog import Dialect, HandlingModes
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.core.model.unavailable import DEFAULT_PLACEHOLDER
from headrace.core.reselect.cache.rows import CacheLimits

POST_PROCESSORS = "post.processors"
PROCESSOR_TYPES = frozenset(
    {"io.debezium.processors.reselect.ReselectColumnsPostProcessor", "ReselectColumnsPostProcessor", "ReselectColumns"}
)
CACHE_ALIASES = {
    "io.debezium.processors.reselect.cache.MemoryReselectColumnCache": "memory",
    "MemoryReselectColumnCache": "memory",
}
CACHE_FORMAT = 1
"""The format of a cache that outlives the process; another one invalidates it."""
ERROR_MODE = "reselect.error.handling.mode"
INSERT_MODE = "reselect.unresolved.insert.mode"
_ROW_OPERATIONS = frozenset("cud")
DEFAULT_PORTS: Mapping[str, int] = {Dialect.POSTGRESQL: 5432, Dialect.ORACLE: 1521}


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """``reselect.database.*``: where rows are read again. The password is in no text form of it.

    ``hostname`` may list several servers of one cluster, each with a port of its own: ``replica:5433,primary``.
    ``type`` names the row source; Oracle's ``dbname`` is a service.
    ``source_name`` and ``source_db`` are those in the source blocks of this database's events; empty is any name, and
    the database's own.
    """

    hostname: str
    port: int = 5432
    user: str = ""
    password: str = field(default="", repr=False)
    dbname: str = ""
    sslmode: str = "prefer"
    sslrootcert: str = ""
    sslcert: str = ""
    sslkey: str = ""
    pool_max_size: int = 4
    type: str = Dialect.POSTGRESQL
    source_name: str = ""
    source_db: str = ""

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each server that ``hostname`` lists. Raises ConfigError for a port that is no number."""
        return tuple(_server(part.strip(), self.port) for part in self.hostname.split(",") if part.strip())

    def holds(self, table: TableId) -> bool:
        """Whether events of ``table`` come from this database."""
        return self.source_name in ("", table.name) and (self.source_db or self.dbname) == table.database


def _server(text: str, default_port: int) -> tuple[str, int]:
    """``host``, ``host:port``, or an IPv6 address, which takes brackets where a port follows."""
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
    """One connector's reselect options; a field's name is its key without ``reselect.``, times in milliseconds.

    ``databases`` are those with names of their own (``reselect.databases``); then there is no other ``database``.
    """

    columns_include_list: str = ""
    columns_exclude_list: str = ""
    unavailable_values: bool = True
    null_values: bool = True
    use_event_key: bool = False
    key_columns: str = ""
    error_handling_mode: str = "warn"
    source_reads: str = "all"
    read_from: str = "primary"
    batch_max_keys: int = 1000
    batch_max_bytes: int = 64 << 20
    unresolved_insert_mode: str = "auto"
    unknown_null_mode: str = "keep"
    visibility_check: bool = True
    visibility_timeout_ms: int = 10_000
    catalog_refresh_ms: int = 60_000
    cache_enabled: bool = False
    cache_type: str = "memory"
    cache_max_size: int = 10_000
    cache_ttl_ms: int = 600_000
    cache_max_columns_per_row: int = 200
    cache_max_bytes: int = 256 << 20
    cache_max_value_bytes: int = 8 << 20
    cache_table_max_bytes: int = 0
    cache_properties: Mapping[str, str] = field(default_factory=dict)
    database: DatabaseOptions | None = None
    databases: tuple[DatabaseOptions, ...] = ()
    database_query_timeout_ms: int = 30_000
    unavailable_value_placeholder: str = DEFAULT_PLACEHOLDER
    modes: HandlingModes = field(default_factory=HandlingModes)
    skipped_operations: frozenset[str] = frozenset("t")
    keeps_history: bool = False
    errors_retry_timeout_ms: int = 0
    errors_retry_delay_max_ms: int = 60_000

    @property
    def dead_letters(self) -> bool:
        """Whether records whose rows cannot be completed go to the dead letter queue."""
        return "dlq" in (self.error_handling_mode, self.unresolved_insert_mode)

    @property
    def caches(self) -> bool:
        """Whether the cache is switched on, and nothing that holds for every topic keeps it off (section 3.4)."""
        unproven = self.read_from == "replica" and not self.visibility_check
        hidden = bool(self.skipped_operations & _ROW_OPERATIONS)
        return self.cache_enabled and not (unproven or hidden or self.keeps_history)

    @property
    def cache_limits(self) -> CacheLimits:
        """The bounds of the cache."""
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
        """On what cached values depend: a cache that was filled with other options is invalid (section 5.4)."""
        placeholder, modes, operations = self.unavailable_value_placeholder, self.modes, sorted(self.skipped_operations)
        selected = self.columns_include_list, self.columns_exclude_list, self.key_columns, self.use_event_key
        return repr((CACHE_FORMAT, placeholder, modes, operations, selected, self.unavailable_values, self.null_values))

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> ReselectOptions:
        """Read a connector's configuration. Raises ConfigError that names the key."""
        return _read(_Properties(properties))


class ColumnFilter:
    """``reselect.columns.include.list`` and ``.exclude.list``: each part a regex over ``schema.table:column``.

    Matching is whole-text and ASCII case-insensitive, as in Debezium (section 3.3). Without lists all columns match.
    """

    def __init__(self, include: str = "", exclude: str = "") -> None:
        if include and exclude:
            raise ConfigError(
                "reselect.columns.include.list and reselect.columns.exclude.list are both set; keep one of them",
                "reselect.columns.exclude.list",
            )
        self._include = _patterns(include, "reselect.columns.include.list")
        self._exclude = _patterns(exclude, "reselect.columns.exclude.list")

    def matches(self, table: TableId, column: str) -> bool:
        """Whether a column is selected. ``table.schema`` is empty for databases without schemas (MySQL)."""
        name = f"{table.schema or table.database}.{table.table}:{column}"
        if self._include:
            return any(pattern.fullmatch(name) for pattern in self._include)
        return not any(pattern.fullmatch(name) for pattern in self._exclude)


class KeyColumns:
    """``reselect.key.columns``: ``schema.table:column,column;…``, in the form of Debezium's ``message.key.columns``.

    The part before the colon is a regex over ``schema.table``, matched like those of the column lists. Raises
    ConfigError for an entry without columns.
    """

    def __init__(self, text: str = "") -> None:
        entries = [entry.strip() for entry in text.split(";") if entry.strip()]
        self._entries = [_key_entry(entry) for entry in entries]

    def of(self, table: TableId) -> tuple[str, ...]:
        """The columns that identify a row of ``table``, or none where the list does not name it."""
        name = f"{table.schema or table.database}.{table.table}"
        return next((columns for pattern, columns in self._entries if pattern.fullmatch(name)), ())


def _key_entry(entry: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    key = "reselect.key.columns"
    pattern, _, names = entry.rpartition(":")
    columns = tuple(name.strip() for name in names.split(",") if name.strip())
    if not pattern.strip() or not columns:
        raise ConfigError(f"{key}: {entry!r} is not schema.table:column,column", key)
    return _compile(pattern.strip(), key), columns


def _patterns(text: str, key: str) -> tuple[re.Pattern[str], ...]:
    return tuple(_compile(part, key) for part in _split(text, key))


def _compile(part: str, key: str) -> re.Pattern[str]:
    try:
        pattern = python_pattern(part)
        check_cost(pattern, re.IGNORECASE)
        return re.compile(pattern, re.IGNORECASE | re.ASCII)
    except OnlyJava as error:
        raise ConfigError(f"{key}: {part!r} is not supported: {error}", key) from error
    except TooCostly as error:
        raise ConfigError(f"{key}: {part[:200]!r} may take very long: {error}", key) from error
    except re.error as error:
        raise ConfigError(f"{key}: {part!r} is not a regular expression: {error}", key) from error


def _split(text: str, key: str) -> Iterator[str]:
    r"""Parts between commas; ``\,`` is a comma, every other backslash pair stays as it is."""
    part, letters = "", iter(text)
    for letter in letters:
        if letter == "\\":
            escaped = next(letters, None)
            if escaped is None:
                raise ConfigError(f"{key}: the list ends in a lone backslash", key)
            part += "," if escaped == "," else letter + escaped
        elif letter == ",":
            yield from [part.strip()] if part.strip() else []
            part = ""
        else:
            part += letter
    yield from [part.strip()] if part.strip() else []


# -- reading a configuration ------------------------------------------------------------------------------------------


class _Properties:
    """A connector's configuration, with the post-processor's keys under their bare names."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._values = dict(properties)
        for name in filter(None, (part.strip() for part in properties.get(POST_PROCESSORS, "").split(","))):
            self._unprefix(properties, name)

    def _unprefix(self, properties: Mapping[str, str], name: str) -> None:
        prefixes = (f"{name}.", f"{POST_PROCESSORS}.{name}.")
        kind = next((properties[p + "type"] for p in reversed(prefixes) if p + "type" in properties), None)
        if kind not in PROCESSOR_TYPES:
            key = f"{POST_PROCESSORS}.{name}.type"
            said = "is missing" if kind is None else f"is {kind!r}"
            raise ConfigError(f"{key} {said}; it must be {min(PROCESSOR_TYPES, key=len)} or Debezium's class name", key)
        for prefix in prefixes:
            bare = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
            self._values.update({key: value for key, value in bare.items() if key.startswith("reselect.")})

    def text(self, key: str, default: str = "") -> str:
        return self._values.get(key, default).strip()

    def below(self, prefix: str) -> dict[str, str]:
        """The options under a prefix, without it."""
        return {key.removeprefix(prefix): value for key, value in self._values.items() if key.startswith(prefix)}

    def flag(self, key: str, default: bool) -> bool:
        word = self.text(key, str(default)).lower()
        if word not in ("true", "false"):
            raise ConfigError(f"{key} is {word!r}; it must be true or false", key)
        return word == "true"

    def number(self, key: str, default: int) -> int:
        text = self.text(key, str(default))
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{key} is {text!r}; it must be a whole number", key) from None

    def word(self, key: str, *words: str) -> str:
        """One of ``words``, of which the first is the default."""
        word = self.text(key, words[0]).lower()
        if word not in words:
            raise ConfigError(f"{key} is {word!r}; it must be one of {', '.join(words)}", key)
        return word

    def database(self) -> DatabaseOptions | None:
        """The database of all tables, unless there are several."""
        if not self.text("reselect.database.hostname") or self.text("reselect.databases"):
            return None
        return self._database("reselect.database.")

    def databases(self) -> tuple[DatabaseOptions, ...]:
        """Those that ``reselect.databases`` names, each with its own options before the ones that count for all."""
        names = [name.strip() for name in self.text("reselect.databases").split(",") if name.strip()]
        return tuple(self._database(f"reselect.database.{name}.") for name in names)

    def _database(self, prefix: str) -> DatabaseOptions:
        def option(name: str) -> str:
            own = prefix + name
            return own if own in self._values else f"reselect.database.{name}"

        names = ("hostname", "user", "password", "dbname", "sslmode", "sslrootcert", "sslcert", "sslkey")
        texts = {name: self.text(option(name)) for name in names if self.text(option(name))}
        if "hostname" not in texts:
            raise ConfigError(f"{prefix}hostname is missing for a name of reselect.databases", prefix + "hostname")
        kind = self.text(option("type"), Dialect.POSTGRESQL).lower()
        database = DatabaseOptions(
            **texts,
            type=kind,
            port=self.number(option("port"), DEFAULT_PORTS.get(kind, DEFAULT_PORTS[Dialect.POSTGRESQL])),
            pool_max_size=self.number(option("pool.max.size"), 4),
            source_name=self.text(prefix + "source.name"),
            source_db=self.text(prefix + "source.db"),
        )
        if not database.servers:
            raise ConfigError(f"{prefix}hostname contains no server", prefix + "hostname")
        return database

    def modes(self) -> HandlingModes:
        return HandlingModes.from_properties(self._values)


def _read(given: _Properties) -> ReselectOptions:
    options = ReselectOptions(
        columns_include_list=given.text("reselect.columns.include.list"),
        columns_exclude_list=given.text("reselect.columns.exclude.list"),
        unavailable_values=given.flag("reselect.unavailable.values", True),
        null_values=given.flag("reselect.null.values", True),
        use_event_key=given.flag("reselect.use.event.key", False),
        key_columns=given.text("reselect.key.columns"),
        error_handling_mode=given.word(ERROR_MODE, "warn", "fail", "dlq"),
        source_reads=given.word("reselect.source.reads", "all", "missing-rows", "none"),
        read_from=given.word("reselect.read.from", "primary", "replica"),
        batch_max_keys=given.number("reselect.batch.max.keys", 1000),
        batch_max_bytes=given.number("reselect.batch.max.bytes", 64 << 20),
        unresolved_insert_mode=given.word(INSERT_MODE, "auto", "null", "fail", "dlq"),
        unknown_null_mode=given.word("reselect.unknown.null.mode", "keep", "null"),
        visibility_check=given.word("reselect.visibility.check", "on", "off") == "on",
        visibility_timeout_ms=given.number("reselect.visibility.timeout.ms", 10_000),
        catalog_refresh_ms=given.number("reselect.catalog.refresh.ms", 60_000),
        cache_enabled=given.flag("reselect.cache.enabled", False),
        cache_type=_cache_type(given.text("reselect.cache.type", "memory")),
        cache_max_size=given.number("reselect.cache.max.size", 10_000),
        cache_ttl_ms=given.number("reselect.cache.ttl.ms", 600_000),
        cache_max_columns_per_row=given.number("reselect.cache.max.columns.per.row", 200),
        cache_max_bytes=given.number("reselect.cache.max.bytes", 256 << 20),
        cache_max_value_bytes=given.number("reselect.cache.max.value.bytes", 8 << 20),
        cache_table_max_bytes=given.number("reselect.cache.table.max.bytes", 0),
        cache_properties=given.below(f"reselect.cache.{_cache_type(given.text('reselect.cache.type', 'memory'))}."),
        database=given.database(),
        databases=given.databases(),
        database_query_timeout_ms=given.number("reselect.database.query.timeout.ms", 30_000),
        unavailable_value_placeholder=given.text("unavailable.value.placeholder", DEFAULT_PLACEHOLDER),
        modes=given.modes(),
        skipped_operations=frozenset(filter(None, map(str.strip, given.text("skipped.operations", "t").split(",")))),
        keeps_history=given.text("insert.mode", "upsert").lower() == "insert",
        errors_retry_timeout_ms=given.number("errors.retry.timeout", 0),
        errors_retry_delay_max_ms=given.number("errors.retry.delay.max.ms", 60_000),
    )
    ColumnFilter(options.columns_include_list, options.columns_exclude_list)
    KeyColumns(options.key_columns)
    return options


def _cache_type(name: str) -> str:
    return CACHE_ALIASES.get(name, name)
