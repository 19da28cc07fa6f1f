"""Checks a connector's configuration as Kafka Connect does (``connect.md`` section 4) and makes a SinkConnectorConfig.

Order of the answer: framework keys, the connector's own, client overrides, converter options, and last unknown keys.
Those are errors here, with a suggestion, because a misspelt key that is ignored is hard to find. Every key that has an
error has a definition, because clients read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

from headrace.config.connector import (
    CONNECTOR_OPTIONS,
    LATER,
    SINK_OPTIONS,
    SinkConnectorConfig,
)
from headrace.config.converter import (
    JSON_CONVERTER,
    KNOWN_CONVERTERS,
    OF_SOME_CONVERTER,
    SIMPLE_HEADER_CONVERTER,
    converter_class,
    with_types,
)
from headrace.config.framework import FRAMEWORK_OPTIONS, FrameworkSettings
from headrace.config.kafka import CLIENT_OVERRIDES, KafkaSettings, OverridePolicy
from headrace.config.keys_without_effect import called_here
from headrace.config.plugin_classes import converter_problems, version_options, version_problems
from headrace.config.reselect import (
    is_option_of_credentials,
    named_databases,
    post_processor_prefixes,
    reselect_options,
    to_bare,
)
from headrace.config.sink_options import TABLE_PROPERTIES, BatchSettings, SourceSettings, TableSettings
from headrace.config.source_connector import SourceConnectorSettings
from headrace.config.transforms import (
    of_unknown_class,
    recommended_classes,
    transform_definitions,
    transform_problems,
)
from headrace.config.values import trim_values
from headrace.config.verify_options import INTERVAL, REPAIR, VerifySettings
from headrace.config.worker import option_of_worker
from headrace.core.connect.config_def import (
    HIDDEN,
    ConfigDef,
    ConfigInfo,
    ConfigInfos,
    ConfigKey,
    ConfigValue,
    Importance,
    Type,
)
from headrace.core.connect.java_patterns import OnlyJava, TooCostly, check_cost, python_pattern
from headrace.core.connect.typed_options import below, parse_options, suggestion
from headrace.core.model.errors import ConfigError
from headrace.core.reselect.options import ERROR_MODE, INSERT_MODE
from headrace.core.tables.naming import check_catalog, location_problems
from headrace.transforms import registry

Properties = Mapping[str, str | None]
_NULL_VALUE = "Null value can not be supplied as the configuration value."
_LEADING_GROUPS = ("Common", "Transforms", "Predicates", "Error Handling")
_SUGGESTIONS = 50
"""Unknown options that are compared with all known ones, which takes about a millisecond each."""
_SECRET = re.compile(r"password|secret|jaas|credential|token|key\.pem", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WorkerDefaults:
    """What a connector inherits from its worker, and what it may not collide with.

    ``converters`` are the worker's ``*.converter`` keys with their prefixed options, ``consumer_group`` its
    ``consumer.group.id``, ``warehouse`` the absolute place of its tables, ``catalogs`` those that it has beside
    ``lake``; None where they are not known.
    """

    converters: Mapping[str, str]
    version: str
    group_id: str | None = None
    overrides: OverridePolicy = field(default_factory=OverridePolicy)
    consumer_group: str | None = None
    warehouse: str | None = None
    catalogs: Sequence[str] | None = None


def validate(properties: Properties, defaults: WorkerDefaults) -> ConfigInfos:
    """Check ``properties``; never raises. Values of secrets come back as ``[hidden]``."""
    as_given, _ = to_bare(properties)
    properties = trim_values(properties)
    bare, doubles = to_bare(properties)
    definitions = _definitions(properties, defaults) + named_databases(bare)
    values = {name: value for name, value in with_types(as_given).items() if name in definitions}
    infos = {info.definition.name: info for info in definitions.validate(values)}
    for name, message in chain(_problems(bare, infos, defaults), doubles):
        infos[name] = _with_error(infos, name, message)
    if not any(info.value.errors for info in infos.values()):
        given = {key: value for key, value in bare.items() if value is not None}
        for name, message in _reader_problems(given, defaults):
            infos[name] = _with_error(infos, name, message)
    converters = {f"{side}.converter": tuple(classes) for side, classes in KNOWN_CONVERTERS.items()}
    versions = dict.fromkeys(version_options(bare), (defaults.version,))
    for name, recommended in (converters | recommended_classes(bare) | versions).items():
        infos[name] = replace(infos[name], value=replace(infos[name].value, recommended_values=recommended))
    groups = dict.fromkeys((*_LEADING_GROUPS, *definitions.groups()))
    connector = properties.get("connector.class") or ""
    return ConfigInfos(connector, tuple(groups), tuple(infos.values()))


def sink_connector_config(properties: Mapping[str, str], defaults: WorkerDefaults) -> SinkConnectorConfig:
    """The typed configuration of a connector whose ``properties`` have been found valid.

    Raises ConfigError that names the option, for one that another version of Headrace has accepted.
    """
    properties = trim_values(properties)
    bare, _ = to_bare(properties)
    framework, kafka = parse_options(FrameworkSettings, bare), parse_options(KafkaSettings, bare)
    classes = {}
    for side, converters in KNOWN_CONVERTERS.items():
        default = SIMPLE_HEADER_CONVERTER if side == "header" else JSON_CONVERTER
        name = properties.get(f"{side}.converter") or defaults.converters.get(f"{side}.converter") or default
        classes[side] = converter_class(name, converters) or name
    return SinkConnectorConfig(
        framework=framework,
        tables=parse_options(TableSettings, bare),
        batches=parse_options(BatchSettings, bare),
        source=parse_options(SourceSettings, bare),
        source_connector=parse_options(SourceConnectorSettings, bare),
        verify=parse_options(VerifySettings, bare),
        reselect=reselect_options(bare),
        transforms=registry.chain(properties),
        kafka=kafka,
        group_id=kafka.consumer.get("group.id") or defaults.consumer_group or f"connect-{framework.name}",
        converter_classes=classes,
        converters={side: converter_options(properties, defaults, side) for side in KNOWN_CONVERTERS},
    )


def converter_options(properties: Properties, defaults: WorkerDefaults, side: str) -> dict[str, str]:
    """The options that count for a converter: the connector's if it names a converter, else only the worker's."""
    source = properties if f"{side}.converter" in properties else defaults.converters
    prefix = f"{side}.converter."
    return {
        name[len(prefix) :]: value
        for name, value in source.items()
        if name.startswith(prefix) and value is not None and not name.endswith("plugin.version")
    }


def connector_definitions(defaults: WorkerDefaults) -> ConfigDef:
    """The connector's own options, then the framework's, as ``GET /connector-plugins/{p}/config`` lists them."""
    options = ConfigDef(tuple(key for key in CONNECTOR_OPTIONS.keys if key.name not in FRAMEWORK_OPTIONS))
    return options + FRAMEWORK_OPTIONS.with_defaults({"connector.plugin.version": defaults.version})


def _definitions(properties: Properties, defaults: WorkerDefaults) -> ConfigDef:
    parts = ("connector", *(f"{side}.converter" for side in KNOWN_CONVERTERS))
    versions = {f"{part}.plugin.version": defaults.version for part in parts}
    framework = FRAMEWORK_OPTIONS + transform_definitions(properties, defaults.version)
    options = (framework + SINK_OPTIONS).with_defaults({**_default_converters(defaults), **versions})
    for prefix in (*_used_overrides(properties), TABLE_PROPERTIES):
        options += ConfigDef(tuple(free_key(name) for name in properties if name.startswith(prefix)))
    for side in ("header", "key", "value"):
        name = properties.get(f"{side}.converter")
        full = converter_class(name, KNOWN_CONVERTERS[side]) if name else None
        if full is not None:
            options += KNOWN_CONVERTERS[side][full].with_prefix(f"{side}.converter.")
    return options


def _default_converters(defaults: WorkerDefaults) -> dict[str, str]:
    options = (f"{side}.converter" for side in KNOWN_CONVERTERS)
    return {option: defaults.converters[option] for option in options if option in defaults.converters}


def _used_overrides(properties: Properties) -> tuple[str, ...]:
    """The prefixes of the clients that a connector has.

    The producer writes to the dead letter queue only. The admin client also reads the offsets of the connector's
    group, so that a policy that refuses its properties applies without a queue as well.
    """
    with_queue = bool(properties.get("errors.deadletterqueue.topic.name"))
    return CLIENT_OVERRIDES if with_queue else ("consumer.override.", "admin.override.")


def free_key(name: str) -> ConfigKey:
    """A definition for a key that is in no list."""
    kind = Type.PASSWORD if is_secret(name) else Type.STRING
    return ConfigKey(name, kind, None, Importance.LOW, "", display_name=name)


def is_secret(name: str) -> bool:
    """Whether an option's value must not be shown, judging by its name."""
    return _SECRET.search(name) is not None


def _with_error(infos: Mapping[str, ConfigInfo], name: str, message: str) -> ConfigInfo:
    info = infos.get(name)
    if info is None:
        key = free_key(name)
        info = ConfigInfo(key, ConfigValue(name, HIDDEN if key.type is Type.PASSWORD else None))
    return ConfigInfo(info.definition, info.value.with_error(message))


def _problems(bare: Properties, infos: Mapping[str, ConfigInfo], defaults: WorkerDefaults) -> Iterator[tuple[str, str]]:
    names = tuple(infos)
    yield from ((name, _NULL_VALUE) for name, value in bare.items() if value is None)
    given = {name: value for name, value in bare.items() if value is not None}
    yield from _topic_problems(given)
    yield from converter_problems(given)
    yield from version_problems(given, _default_converters(defaults), defaults.version)
    yield from transform_problems(given)
    yield from ((name, f"{name} is not supported yet: {reason}.") for name, reason in LATER.items() if name in given)
    yield from _reselect_problems(given)
    yield from _group_problems(given, defaults)
    for name, problem in location_problems(below(given, TABLE_PROPERTIES), defaults.warehouse).items():
        yield f"{TABLE_PROPERTIES}{name}", f"{TABLE_PROPERTIES}{problem}"
    yield from _unknown_problems(bare, infos, names)


def _topic_problems(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    named, pattern = given.get("topics", "").strip(), given.get("topics.regex", "").strip()
    queue = given.get("errors.deadletterqueue.topic.name", "").strip()
    if bool(named) == bool(pattern):
        message = "Must configure one of topics or topics.regex"
        if named:
            message = "topics and topics.regex are mutually exclusive options, but both are set."
        yield from (("topics", message), ("topics.regex", message))
    elif queue and named:
        topics = [entry.strip() for entry in named.split(",")]
        if queue in topics:
            yield (
                "topics",
                f"The DLQ topic '{queue}' may not be included in the list of topics ('topics=[{', '.join(topics)}]') "
                "consumed by the connector",
            )
    elif queue and _matches(pattern, queue):
        yield (
            "topics.regex",
            f"The DLQ topic '{queue}' may not be matched by the regex for the topics ('topics.regex={pattern}') "
            "consumed by the connector",
        )


def _matches(pattern: str, text: str) -> bool:
    try:
        pattern = python_pattern(pattern)
        check_cost(pattern)
        return re.fullmatch(pattern, text) is not None
    except (re.error, OnlyJava, TooCostly):
        return False  # the pattern has an error of its own


def _reselect_problems(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    names = [name.strip() for name in given.get("reselect.databases", "").split(",") if name.strip()]
    for prefix in [f"reselect.database.{name}." for name in names] or ["reselect.database."]:
        if given.get(f"{prefix}hostname"):
            for name in ("user", "dbname"):
                if not given.get(prefix + name) and not given.get(f"reselect.database.{name}"):
                    yield prefix + name, f'Missing required configuration "{prefix}{name}": {prefix}hostname is set.'
    path = "reselect.cache.rocksdb.path"
    if given.get("reselect.cache.type") == "rocksdb" and not given.get(path):
        yield path, f'Missing required configuration "{path}": reselect.cache.type is rocksdb.'
    queue = "errors.deadletterqueue.topic.name"
    for option in (ERROR_MODE, INSERT_MODE):
        if given.get(option, "").strip().lower() != "dlq":
            continue
        invalid = f"Invalid value dlq for configuration {option}"
        if given.get("errors.tolerance", "").strip() != "all" or not given.get(queue, "").strip():
            reason = f"records go to the dead letter queue with errors.tolerance=all and {queue} only"
            yield option, f"{invalid}: {reason}."
        if given.get("insert.mode", "").strip().lower() == "insert":
            yield option, f"{invalid}: a history stores every event as it is; use warn or fail, auto or null."


def _reader_problems(given: Mapping[str, str], defaults: WorkerDefaults) -> Iterator[tuple[str, str]]:
    """What a task itself would refuse at start, such as patterns that do not compile."""
    tables, source = parse_options(TableSettings, given), parse_options(SourceSettings, given)
    readers: Sequence[Callable[[], object]] = (
        lambda: reselect_options(given),
        lambda: tables.naming,
        lambda: tables.layout,
        lambda: check_catalog(tables.catalog, tables.format, defaults.catalogs),
        lambda: _check_kind(tables),
        lambda: tables.fields,
        lambda: source.ordering,
        lambda: _check_verification(given, tables),
        lambda: registry.chain(given),
    )
    for read in readers:
        try:
            read()
        except ConfigError as error:
            yield error.key or "post.processors", str(error)


def _check_kind(tables: TableSettings) -> None:
    if tables.history and tables.soft_delete:
        raise ConfigError(
            "delete.mode=soft marks rows of tables that are merged into. With insert.mode=insert a delete is "
            "a row of its own: remove delete.mode",
            "delete.mode",
        )


def _check_verification(given: Mapping[str, str], tables: TableSettings) -> None:
    verify = parse_options(VerifySettings, given)
    if verify.repairs and tables.history:
        raise ConfigError(
            f"{REPAIR}=auto: a history (insert.mode=insert) contains the events that arrived and is never repaired; "
            f"remove {REPAIR}, and use a resnapshot",
            REPAIR,
        )
    if not verify.interval:
        return
    if tables.history and given.get("transforms", "").strip():
        raise ConfigError(f"{INTERVAL}: a history of transformed records is not compared; remove {INTERVAL}", INTERVAL)
    varying: Sequence[str] = ()
    with suppress(ConfigError):  # of a wrong chain, which is reported as such
        varying = registry.chain(given).varying
    if varying:
        raise ConfigError(
            f"{INTERVAL}: {'; '.join(varying)}: the tables cannot be compared with their source; remove {INTERVAL}, or "
            "replace the transform (docs/transforms.md)",
            INTERVAL,
        )
    reselect = reselect_options(given)
    if not (reselect.databases or reselect.database):
        raise ConfigError(f"{INTERVAL} needs a database to compare with; set reselect.database.*", INTERVAL)


def _group_problems(given: Mapping[str, str], defaults: WorkerDefaults) -> Iterator[tuple[str, str]]:
    override = given.get("consumer.override.group.id")
    name = given.get("name", "")
    if defaults.group_id is None:
        pass
    elif override == defaults.group_id:
        conflict = f"Consumer group {override} conflicts with Connect worker group {defaults.group_id}"
        yield "consumer.override.group.id", conflict
    elif override is None and f"connect-{name}" == defaults.group_id:
        yield (
            "name",
            f"Consumer group for sink connector named {name} conflicts with Connect worker group {defaults.group_id}",
        )
    for option in given:
        if option.startswith(_used_overrides(given)) and (
            refused := defaults.overrides.problem(option.split(".", 2)[2])
        ):
            yield option, refused


def _unknown_problems(
    bare: Properties, infos: Mapping[str, ConfigInfo], names: Sequence[str]
) -> Iterator[tuple[str, str]]:
    types = {f"{prefix}type" for prefix in post_processor_prefixes(bare)}
    listed = {*infos, *LATER, *types}
    unknown = (name for name in bare if name not in listed and not _is_of_others(name, bare))
    for count, name in enumerate(unknown):
        compared = names if count < _SUGGESTIONS else ()
        meant = called_here(name) or option_of_worker(name) or suggestion(name, compared)
        yield name, f"Unknown configuration '{name}'. {meant}"


def _is_of_others(name: str, bare: Properties) -> bool:
    """Whether a key is accepted although no definition lists it.

    Connect accepts overrides of unused clients and the options of another converter. The options of somebody else's
    cache, credentials or transform are known to that plug-in.
    """
    if of_unknown_class(name, bare) or is_option_of_credentials(name, bare):
        return True
    if name.startswith((*CLIENT_OVERRIDES, f"reselect.cache.{bare.get('reselect.cache.type') or 'memory'}.")):
        return True
    side, dot, option = name.partition(".converter.")
    if not dot or side not in KNOWN_CONVERTERS:
        return False
    return bare.get(f"{side}.converter") is None or option in OF_SOME_CONVERTER
