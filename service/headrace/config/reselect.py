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
        r"Regular expressions, separated by commas (\, is a comma), for the columns to reselect; matched against the "
        "whole of schema.table:column. Not together with the exclude list.",
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
        "Whether placeholders are filled from the database; with false only by fold, cache and the stored row.",
    ),
    key(
        "reselect.null.values",
        Type.BOOLEAN,
        "true",
        "Whether nulls are looked up as well. Debezium's default; costly without an include list.",
    ),
    key(
        "reselect.use.event.key",
        Type.BOOLEAN,
        "false",
        "Whether the database is asked by the fields of the message key. Otherwise by the primary key, which "
        "message.key.columns at the source connector may have replaced in the message.",
    ),
    key(
        "reselect.key.columns",
        Type.STRING,
        "",
        "What identifies a row where the database has no key that says so, or another one: "
        "schema.table:column,column;… with a regular expression before the colon, as Debezium's message.key.columns.",
    ),
    key(
        "reselect.error.handling.mode",
        Type.STRING,
        "warn",
        "What happens when a row cannot be read: warn keeps the stored cell, fail stops the task, dlq sends the "
        "records that left the value out to the dead letter queue.",
        validator=any_case("warn", "fail", "dlq"),
    ),
    key(
        "reselect.unresolved.insert.mode",
        Type.STRING,
        "auto",
        "What becomes of a cell without value in a row that is not stored yet: null writes a null, auto only where "
        "the database has shown that the row is gone, otherwise it stops the task like fail; dlq sends the records "
        "that left the value out to the dead letter queue.",
        validator=any_case("auto", "null", "fail", "dlq"),
    ),
    key(
        "reselect.unknown.null.mode",
        Type.STRING,
        "keep",
        "Without a database: whether a null that may hide an unchanged value keeps the stored cell or is written. In a "
        "history (insert.mode=insert), which reads no database, keep writes a null and lists the column in "
        "__headrace_unavailable, and null writes a null that counts as real.",
        validator=any_case("keep", "null"),
    ),
    key(
        "reselect.source.reads",
        Type.STRING,
        "all",
        "all queries every missing cell, missing-rows only where no row is stored, none never.",
        validator=any_case("all", "missing-rows", "none"),
    ),
    key(
        "reselect.read.from",
        Type.STRING,
        "primary",
        "Which server answers: primary, or replica for a standby, which must prove that it has an event's transaction "
        "before its answer counts; if it is too far behind, the primary is asked where hostname lists it.",
        validator=any_case("primary", "replica"),
    ),
    key(
        "reselect.visibility.check",
        Type.STRING,
        "on",
        "Whether an answer counts only if the event's transaction is visible to it; off for restored databases, whose "
        "answers are not cached, replace no null of an event, and are no proof that a row is gone.",
        validator=any_case("on", "off"),
    ),
    key(
        "reselect.visibility.timeout.ms",
        Type.LONG,
        "10000",
        "How long to wait for a transaction to become visible on a server, before the next one is asked.",
        validator=at_least(0),
    ),
    key("reselect.batch.max.keys", Type.INT, "1000", "Rows of one SELECT.", _LOW, at_least(1)),
    key(
        "reselect.batch.max.bytes",
        Type.LONG,
        "67108864",
        "Bytes that one SELECT may bring; what rows brought before tells how many are asked for. A batch for which "
        "more than four times as much is read is written in parts.",
        _LOW,
        at_least(1024),
    ),
    key("reselect.catalog.refresh.ms", Type.LONG, "60000", "How often the catalog is read again.", _LOW, at_least(0)),
)
_CACHE = group(
    "Reselect Cache",
    key("reselect.cache.enabled", Type.BOOLEAN, "false", "Whether column values are remembered between batches."),
    key(
        "reselect.cache.type",
        Type.STRING,
        "memory",
        "Which cache: memory, rocksdb for keys that outgrow memory, or another plug-in. Debezium's class name of the "
        "memory cache is accepted.",
    ),
    key(
        "reselect.cache.rocksdb.path",
        Type.STRING,
        "",
        "Directory for the files of reselect.cache.type=rocksdb; each task has a directory of its own in it. What is "
        "cached outlives a restart, if the task stopped in good order and goes on where it stopped.",
    ),
    key(
        "reselect.cache.rocksdb.cleanup",
        Type.BOOLEAN,
        "false",
        "Whether these files are removed when the task stops.",
        _LOW,
    ),
    key("reselect.cache.max.size", Type.INT, "10000", "Rows to remember.", validator=at_least(1)),
    key(
        "reselect.cache.ttl.ms",
        Type.LONG,
        "600000",
        "How long a value counts; 0 is without end.",
        validator=at_least(0),
    ),
    key("reselect.cache.max.columns.per.row", Type.INT, "200", "Columns to remember per row.", _LOW, at_least(1)),
    key("reselect.cache.max.bytes", Type.LONG, "268435456", "Bytes to remember in all.", validator=at_least(0)),
    key("reselect.cache.max.value.bytes", Type.LONG, "8388608", "A larger value is not remembered.", _LOW, at_least(0)),
    key("reselect.cache.table.max.bytes", Type.LONG, "0", "Bytes that one table may take; 0 is no limit.", _LOW),
)
_DATABASE = group(
    "Reselect Database",
    key(
        "reselect.databases",
        Type.LIST,
        "",
        "Names for several source databases. The options below then stand under reselect.database.<name>. for each, "
        "and without a name for all of them. A table is read in the database whose dbname its events' source.db gives; "
        "source.db and source.name under reselect.database.<name>. say what else to look for there.",
        validator=unique_entries,
    ),
    key(
        "reselect.database.type",
        Type.STRING,
        "postgresql",
        "Which kind of database: postgresql or oracle.",
        _HIGH,
        any_case("postgresql", "oracle"),
    ),
    key(
        "reselect.database.hostname",
        Type.STRING,
        "",
        "Host of the source database; empty turns reselect off. Several servers of one cluster are listed with commas, "
        "each with a port of its own where it has one: replica:5433,primary.",
        _HIGH,
    ),
    key(
        "reselect.database.port",
        Type.INT,
        "5432",
        "Port of the source database; 1521 where the type is oracle and none is given.",
        validator=between(1, 65535),
    ),
    key(
        "reselect.database.user",
        Type.STRING,
        "",
        "User that may SELECT from the captured tables; of Oracle also FLASHBACK.",
        _HIGH,
    ),
    key("reselect.database.password", Type.PASSWORD, None, "Password of that user.", _HIGH),
    key(
        "reselect.database.dbname",
        Type.STRING,
        "",
        "Name of the database; of Oracle the service, that of the pluggable database.",
        _HIGH,
    ),
    key(
        "reselect.database.sslmode",
        Type.STRING,
        "prefer",
        "How TLS is used, in libpq's words; Oracle uses it from require on.",
        validator=any_case("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    ),
    key("reselect.database.sslrootcert", Type.STRING, "", "File with the certificate authorities to trust."),
    key("reselect.database.sslcert", Type.STRING, "", "File with the client's certificate."),
    key("reselect.database.sslkey", Type.STRING, "", "File with the key of that certificate."),
    key("reselect.database.pool.max.size", Type.INT, "4", "Connections at most.", _LOW, at_least(1)),
    key(
        "reselect.database.query.timeout.ms",
        Type.LONG,
        "30000",
        "How long one SELECT may take.",
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
            "Debezium's way to name the reselect post processor; its options then stand under "
            "post.processors.<name>. or <name>.",
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
    doc = "What the source block of the database's events says."
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
