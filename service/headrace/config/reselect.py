"""The options of reselect, its cache and its databases, as a connector's configuration contains them.

``core/reselect/options.py`` declares them. Here they get their sections, and are read: bare, or under Debezium's
prefixes ``post.processors.<name>.`` and ``<name>.`` (``reselect.md`` section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.config.framework import ErrorSettings
from headrace.config.sink_options import SourceSettings, TableSettings
from headrace.core.connect.config_def import ConfigDef, ConfigKey, Importance, Type, Width, parse_list, unique_entries
from headrace.core.connect.typed_options import below, definition, option, parse_options, section
from headrace.core.model.catalog import Dialect
from headrace.core.model.errors import ConfigError
from headrace.core.reselect.options import DEFAULT_PORTS, DatabaseOptions, ReselectOptions
from headrace.core.reselect.rules import ColumnFilter, KeyColumns

_MEDIUM, _LOW = Importance.MEDIUM, Importance.LOW


@dataclass(frozen=True, slots=True)
class RocksDbOptions:
    """The options of ``reselect.cache.type=rocksdb``, below ``reselect.cache.rocksdb.``."""

    path: str = option(
        "path",
        Type.STRING,
        "",
        "Directory for the files of reselect.cache.type=rocksdb. Each task has its own directory in it. The cache "
        "survives a restart if the task stopped in an orderly way and continues where it stopped.",
    )
    cleanup: bool = option("cleanup", Type.BOOLEAN, False, "Whether to remove these files when the task stops.", _LOW)


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
_DATABASE_PREFIX = "reselect.database."
_DATABASES = "reselect.databases"
_CREDENTIALS = "credentials."


def _sections() -> tuple[ConfigDef, ConfigDef, ConfigDef]:
    keys = definition(ReselectOptions).keys
    databases = [key for key in keys if key.name.startswith("reselect.database")]
    cache = [key for key in keys if key.name.startswith("reselect.cache.")]
    others = [key for key in keys if key not in databases and key not in cache]
    of_type = 1 + next(index for index, key in enumerate(cache) if key.name == "reselect.cache.type")
    cache[of_type:of_type] = definition(RocksDbOptions).with_prefix("reselect.cache.rocksdb.").keys
    of_one = definition(DatabaseOptions).keys
    databases[1:1] = sorted(of_one, key=lambda key: key.name != "reselect.database.type")  # which decides the others
    return section("Reselect", others), section("Reselect Cache", cache), section("Reselect Database", databases)


_RESELECT, _CACHE, _DATABASE = _sections()
RESELECT_OPTIONS = _RESELECT + _CACHE + _DATABASE
"""What may also stand under a post processor's prefix."""

_SOURCE_OF_DATABASE = ("source.name", "source.db")

POST_PROCESSOR_TYPE = "io.debezium.processors.reselect.ReselectColumnsPostProcessor"
_TYPES = (POST_PROCESSOR_TYPE, "ReselectColumnsPostProcessor", "ReselectColumns")


def reselect_options(properties: Mapping[str, str | None]) -> ReselectOptions:
    """The reselect options of a connector's configuration. Raises ConfigError that names the option."""
    bare, problems = to_bare(properties)
    for name, message in problems:
        raise ConfigError(message, name)
    options, source = parse_options(ReselectOptions, bare), parse_options(SourceSettings, bare)
    errors = parse_options(ErrorSettings, bare)
    databases = tuple(_database(bare, f"{_DATABASE_PREFIX}{name}.") for name in options.database_names)
    alone = not databases and bool((bare.get(f"{_DATABASE_PREFIX}hostname") or "").strip())
    ColumnFilter(options.columns_include_list, options.columns_exclude_list)
    KeyColumns(options.key_columns)
    return replace(
        options,
        cache_properties=below(bare, f"reselect.cache.{options.cache_type}."),
        database=_database(bare, _DATABASE_PREFIX) if alone else None,
        databases=databases,
        unavailable_value_placeholder=source.placeholder,
        modes=source.modes,
        skipped_operations=frozenset(source.skipped_operations),
        keeps_history=parse_options(TableSettings, bare).history,
        errors_retry_timeout_ms=errors.retry_timeout_ms,
        errors_retry_delay_max_ms=errors.retry_delay_max_ms,
    )


def _database(bare: Mapping[str, str | None], prefix: str) -> DatabaseOptions:
    """The options below ``prefix``, before those that count for all databases."""
    options = below(bare, _DATABASE_PREFIX) | below(bare, prefix)
    given = {f"{_DATABASE_PREFIX}{name}": value for name, value in options.items() if value.strip()}
    database = parse_options(DatabaseOptions, given)
    if f"{_DATABASE_PREFIX}port" not in given:
        database = replace(database, port=DEFAULT_PORTS.get(database.type, DEFAULT_PORTS[Dialect.POSTGRESQL]))
    names = [below(bare, prefix).get(name, "").strip() for name in _SOURCE_OF_DATABASE]
    of_plugin = {name: value for name, value in options.items() if name.startswith(_CREDENTIALS)}
    database = replace(
        database,
        source_name=names[0],
        source_db=names[1],
        credentials_options=below(of_plugin, _CREDENTIALS),
    )
    if not database.hostname:
        raise ConfigError(f"{prefix}hostname is missing for a name of {_DATABASES}", f"{prefix}hostname")
    if not database.servers:
        raise ConfigError(f"{prefix}hostname names no server", f"{prefix}hostname")
    return database


def with_current_passwords(
    options: ReselectOptions, properties: Callable[[], Mapping[str, str | None]]
) -> ReselectOptions:
    """Return options whose databases read their passwords again for each connection.

    ``properties`` returns the connector's configuration with the present values. It may raise Retriable.
    """

    def reader(prefix: str) -> Callable[[], str | None]:
        def read() -> str | None:
            bare, _ = to_bare(properties())
            return (below(bare, _DATABASE_PREFIX) | below(bare, prefix)).get("password")

        return read

    prefixes = [f"{_DATABASE_PREFIX}{name}." for name in options.database_names]
    return replace(
        options,
        database=options.database and replace(options.database, read_password=reader(_DATABASE_PREFIX)),
        databases=tuple(
            replace(database, read_password=reader(prefix))
            for database, prefix in zip(options.databases, prefixes, strict=True)
        ),
    )


def is_option_of_credentials(name: str, bare: Mapping[str, str | None]) -> bool:
    """Return whether a key belongs to a plug-in that provides passwords (``reselect.database.credentials``)."""
    databases = parse_list(bare.get(_DATABASES) or "")
    prefixes = (_DATABASE_PREFIX, *(f"{_DATABASE_PREFIX}{name}." for name in databases))
    in_use = any(bare.get(f"{prefix}credentials") for prefix in prefixes)
    return in_use and name.startswith(tuple(f"{prefix}{_CREDENTIALS}" for prefix in prefixes))


def to_bare(properties: Mapping[str, str | None]) -> tuple[dict[str, str | None], list[tuple[str, str]]]:
    """Reselect options under a post processor's prefix become bare ones; everything else stays as it is.

    Also returns what is wrong with the prefixes: (option, message).
    """
    bare: dict[str, str | None] = {}
    problems = list(_processor_problems(properties))
    for name, bare_name in bare_names(properties).items():
        if bare_name in bare or (bare_name != name and bare_name in properties):
            problems.append((name, f"'{bare_name}' is set twice, bare or under a post processor's prefix; keep one."))
        bare[bare_name] = properties[name]
    return bare, problems


def bare_names(properties: Mapping[str, str | None]) -> dict[str, str]:
    """Of every key its name in validation's answers, which have no prefix of a post processor."""
    prefixes = post_processor_prefixes(properties)
    return {name: _without_prefix(name, prefixes) for name in properties}


def named_databases(properties: Mapping[str, str | None]) -> ConfigDef:
    """Definitions of the options given under the names of ``reselect.databases``."""
    keys = []
    for name in parse_list(properties.get("reselect.databases") or ""):
        prefix = f"{_DATABASE_PREFIX}{name}."
        options = {prefix + option.name.removeprefix(_DATABASE_PREFIX): option for option in _DATABASE.keys}
        keys += [
            replace(option, name=full, display_name=full) for full, option in options.items() if full in properties
        ]
        more = [prefix + option for option in _SOURCE_OF_DATABASE]
        doc = "Value in the source block of the database's events."
        keys += [
            ConfigKey(full, Type.STRING, "", _MEDIUM, doc, "Reselect Database", 0, Width.LONG, full)
            for full in more
            if full in properties
        ]
    return ConfigDef(tuple(keys))


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
        processor_type = properties.get(option) or properties.get(f"{name}.type")
        if processor_type is None:
            yield option, f'Missing required configuration "{option}" which has no default value.'
        elif processor_type not in _TYPES:
            yield (
                option,
                f"Invalid value {processor_type} for configuration {option}: the only type is {POST_PROCESSOR_TYPE}.",
            )
