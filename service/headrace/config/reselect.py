"""The options of reselect, its cache and its database (``reselect.md`` section 3).

They may stand bare or under Debezium's prefixes ``post.processors.<name>.`` and ``<name>.``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from headrace.config.layout import group, key
from headrace.core.connect.config_def import ConfigDef, ConfigKey, Importance, Type, Width, parse_list
from headrace.core.connect.config_validators import any_case, at_least, between, unique_entries

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

_RESELECT = group(
    "Reselect",
    key(
        "reselect.columns.include.list",
        Type.STRING,
        "",
        "Regular expressions, separated by commas (\\, is a comma), for the columns to reselect. Each must match "
        "the whole of schema.table:column. Cannot be combined with the exclude list.",
    ),
    key(
        "reselect.columns.exclude.list",
        Type.STRING,
        "",
        "Regular expressions for the columns not to reselect.",
    ),
    key(
        "reselect.unavailable.values",
        Type.BOOLEAN,
        "true",
        "Whether to fill placeholders from the database. If false, only the fold, the cache and the stored row "
        "fill them.",
    ),
    key(
        "reselect.null.values",
        Type.BOOLEAN,
        "true",
        "Whether to look up nulls as well. This is Debezium's default, and is costly without an include list.",
    ),
    key(
        "reselect.use.event.key",
        Type.BOOLEAN,
        "false",
        "Whether to query the database by the fields of the message key instead of the primary key. "
        "message.key.columns at the source connector may have replaced the primary key in the message.",
    ),
    key(
        "reselect.key.columns",
        Type.STRING,
        "",
        "Columns that identify a row where the database declares no key, or a different one: "
        "schema.table:column,column;… with a regular expression before the colon, as in Debezium's "
        "message.key.columns.",
    ),
    key(
        "reselect.error.handling.mode",
        Type.STRING,
        "warn",
        "What to do if a row cannot be read: warn keeps the stored cell, fail stops the task, dlq sends the "
        "records that omit the value to the dead letter queue.",
        validator=any_case("warn", "fail", "dlq"),
    ),
    key(
        "reselect.unresolved.insert.mode",
        Type.STRING,
        "auto",
        "What to do with a cell without a value in a row that is not stored yet. null writes a null. auto writes "
        "a null only if the database has shown that the row does not exist any more, and otherwise stops the "
        "task. fail stops the task. dlq sends the records that omit the value to the dead letter queue.",
        validator=any_case("auto", "null", "fail", "dlq"),
    ),
    key(
        "reselect.unknown.null.mode",
        Type.STRING,
        "keep",
        "What to do without a database with a null that may hide an unchanged value: keep keeps the stored cell, "
        "null writes the null. In a history (insert.mode=insert), which reads no database, keep writes a null and "
        "lists the column in __headrace_unavailable, and null writes a null that counts as real.",
        validator=any_case("keep", "null"),
    ),
    key(
        "reselect.source.reads",
        Type.STRING,
        "all",
        "all queries every missing cell, missing-rows only those of rows that are not stored, none queries nothing.",
        validator=any_case("all", "missing-rows", "none"),
    ),
    key(
        "reselect.read.from",
        Type.STRING,
        "primary",
        "Server to query: primary, or replica for a standby. A standby must prove that it has an event's "
        "transaction before its answer counts. If it is too far behind, Headrace queries the primary, if hostname "
        "lists it.",
        validator=any_case("primary", "replica"),
    ),
    key(
        "reselect.visibility.check",
        Type.STRING,
        "on",
        "Whether an answer counts only if the event's transaction is visible to it. Use off for restored "
        "databases: their answers are not cached, replace no null of an event, and do not prove that a row does "
        "not exist any more.",
        validator=any_case("on", "off"),
    ),
    key(
        "reselect.visibility.timeout.ms",
        Type.LONG,
        "10000",
        "Time to wait for a transaction to become visible on a server, before the next server is queried.",
        validator=at_least(0),
    ),
    key("reselect.batch.max.keys", Type.INT, "1000", "Number of rows of one SELECT.", _LOW, at_least(1)),
    key(
        "reselect.batch.max.bytes",
        Type.LONG,
        "67108864",
        "Bytes that one SELECT may return; the size of earlier rows determines how many rows it requests. A batch "
        "for which reselect reads more than four times as much is written in parts.",
        _LOW,
        at_least(1024),
    ),
    key(
        "reselect.catalog.refresh.ms",
        Type.LONG,
        "60000",
        "Interval at which the catalog is read again.",
        _LOW,
        at_least(0),
    ),
)
_CACHE = group(
    "Reselect Cache",
    key("reselect.cache.enabled", Type.BOOLEAN, "false", "Whether to cache column values between batches."),
    key(
        "reselect.cache.type",
        Type.STRING,
        "memory",
        "Cache implementation: memory, rocksdb for keys that do not fit into memory, or another plug-in. "
        "Debezium's class name of the memory cache is accepted.",
    ),
    key(
        "reselect.cache.rocksdb.path",
        Type.STRING,
        "",
        "Directory for the files of reselect.cache.type=rocksdb. Each task has its own directory in it. The cache "
        "survives a restart if the task stopped in an orderly way and continues where it stopped.",
    ),
    key(
        "reselect.cache.rocksdb.cleanup",
        Type.BOOLEAN,
        "false",
        "Whether to remove these files when the task stops.",
        _LOW,
    ),
    key("reselect.cache.max.size", Type.INT, "10000", "Maximum number of cached rows.", validator=at_least(1)),
    key(
        "reselect.cache.ttl.ms",
        Type.LONG,
        "600000",
        "Time for which a cached value is valid; 0 means no limit.",
        validator=at_least(0),
    ),
    key(
        "reselect.cache.max.columns.per.row",
        Type.INT,
        "200",
        "Maximum number of cached columns per row.",
        _LOW,
        at_least(1),
    ),
    key(
        "reselect.cache.max.bytes",
        Type.LONG,
        "268435456",
        "Maximum number of bytes of the cache.",
        validator=at_least(0),
    ),
    key(
        "reselect.cache.max.value.bytes",
        Type.LONG,
        "8388608",
        "Size above which a value is not cached.",
        _LOW,
        at_least(0),
    ),
    key(
        "reselect.cache.table.max.bytes",
        Type.LONG,
        "0",
        "Maximum number of bytes that one table may occupy in the cache; 0 means no limit.",
        _LOW,
    ),
)
_DATABASE = group(
    "Reselect Database",
    key(
        "reselect.databases",
        Type.LIST,
        "",
        "Names of several source databases. The options below then follow reselect.database.<name>. for each "
        "database; without a name they apply to all of them. A table is read in the database whose dbname equals "
        "source.db of its events. source.db and source.name under reselect.database.<name>. set other values to "
        "match.",
        validator=unique_entries,
    ),
    key(
        "reselect.database.type",
        Type.STRING,
        "postgresql",
        "Type of the database: postgresql or oracle.",
        _HIGH,
        any_case("postgresql", "oracle"),
    ),
    key(
        "reselect.database.hostname",
        Type.STRING,
        "",
        "Host of the source database; empty disables reselect. Several servers of one cluster are separated by "
        "commas, each optionally with its own port: replica:5433,primary.",
        _HIGH,
    ),
    key(
        "reselect.database.port",
        Type.INT,
        "5432",
        "Port of the source database; 1521 if the type is oracle and no port is set.",
        validator=between(1, 65535),
    ),
    key(
        "reselect.database.user",
        Type.STRING,
        "",
        "User with SELECT on the captured tables, on Oracle also with FLASHBACK.",
        _HIGH,
    ),
    key("reselect.database.password", Type.PASSWORD, None, "Password of that user.", _HIGH),
    key(
        "reselect.database.dbname",
        Type.STRING,
        "",
        "Name of the database; for Oracle the service of the pluggable database.",
        _HIGH,
    ),
    key(
        "reselect.database.sslmode",
        Type.STRING,
        "prefer",
        "TLS mode, with libpq's names. Oracle uses TLS from require on.",
        validator=any_case("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    ),
    key("reselect.database.sslrootcert", Type.STRING, "", "File with the trusted certificate authorities."),
    key("reselect.database.sslcert", Type.STRING, "", "File with the client's certificate."),
    key("reselect.database.sslkey", Type.STRING, "", "File with the key of that certificate."),
    key("reselect.database.pool.max.size", Type.INT, "4", "Maximum number of connections.", _LOW, at_least(1)),
    key(
        "reselect.database.query.timeout.ms",
        Type.LONG,
        "30000",
        "Maximum duration of one SELECT.",
        validator=at_least(1),
    ),
)

POST_PROCESSORS = ConfigDef(
    (
        ConfigKey(
            "post.processors",
            Type.LIST,
            "",
            _MEDIUM,
            "Debezium's way to name the reselect post processor. Its options then follow post.processors.<name>. "
            "or <name>.",
            "Reselect",
            0,
            Width.LONG,
            "Post processors",
            unique_entries,
        ),
    )
)
RESELECT_OPTIONS = _RESELECT + _CACHE + _DATABASE
"""What may also stand under a post processor's prefix."""

_DATABASE_PREFIX = "reselect.database."
_SOURCE_OF_DATABASE = ("source.name", "source.db")

POST_PROCESSOR_TYPE = "io.debezium.processors.reselect.ReselectColumnsPostProcessor"
_TYPES = (POST_PROCESSOR_TYPE, "ReselectColumnsPostProcessor", "ReselectColumns")


def to_bare(properties: Mapping[str, str | None]) -> tuple[dict[str, str | None], list[tuple[str, str]]]:
    """Reselect options under a post processor's prefix become bare ones; everything else stays as it is.

    Also returns what is wrong with the prefixes: (option, message).
    """
    bare: dict[str, str | None] = {}
    problems = list(_processor_problems(properties))
    for name, option in bare_names(properties).items():
        if option in bare or (option != name and option in properties):
            problems.append((name, f"'{option}' is set twice, bare or under a post processor's prefix; keep one."))
        bare[option] = properties[name]
    return bare, problems


def bare_names(properties: Mapping[str, str | None]) -> dict[str, str]:
    """Of every key its name in validation's answers, which have no prefix of a post processor."""
    prefixes = post_processor_prefixes(properties)
    return {name: _without_prefix(name, prefixes) for name in properties}


def named_databases(properties: Mapping[str, str | None]) -> ConfigDef:
    """Definitions of the options given under the names of ``reselect.databases``."""
    found = []
    for name in parse_list(properties.get("reselect.databases") or ""):
        prefix = f"{_DATABASE_PREFIX}{name}."
        own = {prefix + option.name.removeprefix(_DATABASE_PREFIX): option for option in _DATABASE.keys}
        found += [replace(option, name=full, display_name=full) for full, option in own.items() if full in properties]
        more = [prefix + option for option in _SOURCE_OF_DATABASE]
        found += [_source_key(full) for full in more if full in properties]
    return ConfigDef(tuple(found))


def _source_key(name: str) -> ConfigKey:
    doc = "Value in the source block of the database's events."
    return ConfigKey(name, Type.STRING, "", _MEDIUM, doc, "Reselect Database", 0, Width.LONG, name)


def post_processor_prefixes(properties: Mapping[str, str | None]) -> list[str]:
    """The prefixes of the named post processors, the long form and the old short one (DBZ-9170)."""
    names = parse_list(properties.get("post.processors") or "")
    return [prefix for name in names if name for prefix in (f"post.processors.{name}.", f"{name}.")]


def _without_prefix(name: str, prefixes: list[str]) -> str:
    for prefix in prefixes:
        option = name.removeprefix(prefix)
        if option != name and (option in RESELECT_OPTIONS or option.startswith(_DATABASE_PREFIX)):
            return option
    return name


def _processor_problems(properties: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    names = [name for name in parse_list(properties.get("post.processors") or "") if name]
    if len(names) > 1:
        yield "post.processors", "Only one post processor, the reselect one, is supported."
    for name in names:
        option = f"post.processors.{name}.type"
        kind = properties.get(option) or properties.get(f"{name}.type")
        if kind is None:
            yield option, f'Missing required configuration "{option}" which has no default value.'
        elif kind not in _TYPES:
            yield option, f"Invalid value {kind} for configuration {option}: the only type is {POST_PROCESSOR_TYPE}."
