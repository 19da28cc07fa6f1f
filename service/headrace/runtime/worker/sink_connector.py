"""The connector class of a worker: its names, its options, the configurations that it accepts, and its plug-ins.

It has three names (``connect.md`` section 6): its class, its simple name, and the alias without the suffix
``Connector``. Validation has Kafka Connect's messages (section 4), and needs no running worker, so REST requests and
``headrace validate`` give the same answers.

Tests: ``tests/unit/runtime/worker/test_config_providers.py``, ``tests/unit/test_validate.py``, ``tests/rest``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace import __version__
from headrace.config import SinkConnectorConfig, validation
from headrace.config.converter import CONVERTERS, HEADER_CONVERTERS, converter_class
from headrace.config.framework import CONNECTOR_CLASS, TASK_CLASS
from headrace.config.keys_without_effect import migration
from headrace.config.plugin_classes import version_problem
from headrace.config.validation import Properties, WorkerDefaults, is_secret
from headrace.core.connect.config_def import ConfigDef, ConfigInfo, ConfigInfos
from headrace.core.connect.config_state import MAX_TASKS
from headrace.core.connect.typed_options import suggestion
from headrace.core.model.errors import ConfigError, RestError
from headrace.runtime.worker.config_providers import ConfigProviders
from headrace.transforms.registry import find, predicates, transforms

ConnectorCheck = Callable[[SinkConnectorConfig], None]
"""An additional check of a valid configuration, such as its client properties. Raises ConfigError with the option."""


class LakehouseSinkConnector:
    """The sink that keeps lakehouse tables equal to their source tables, with the defaults of a worker.

    Configurations are given with references to config providers. No result contains a resolved value of a secret.
    """

    class_name = CONNECTOR_CLASS
    task_class = TASK_CLASS
    type = "sink"
    version = __version__

    def __init__(self, defaults: WorkerDefaults, providers: ConfigProviders) -> None:
        self.defaults = defaults
        self._providers = providers

    @property
    def names(self) -> tuple[str, str, str]:
        simple = self.class_name.rpartition(".")[2]
        return self.class_name, simple, simple.removesuffix("Connector")

    def runs(self, config: Properties) -> bool:
        return config.get("connector.class") in self.names

    def definitions(self) -> ConfigDef:
        """Return the options, those of the connector before those of the framework."""
        return validation.connector_definitions(self.defaults)

    def infos(self, properties: Properties) -> ConfigInfos:
        """Validate a configuration without references. Never raises: the result has the errors."""
        return validation.validate(properties, self.defaults)

    def config(self, properties: Mapping[str, str]) -> SinkConnectorConfig:
        """Return the typed form of a valid configuration. References stay as they are."""
        return validation.sink_connector_config(properties, self.defaults)

    def task_count(self, config: SinkConnectorConfig) -> int:
        """Return at most one per topic, because a topic belongs to one task. A pattern may match any number."""
        return min(config.framework.tasks_max, len(config.framework.topics.names) or MAX_TASKS, MAX_TASKS)

    def validate(self, given: Properties, checks: Sequence[ConnectorCheck] = ()) -> ConfigInfos:
        """Validate a configuration, and apply the checks if it is valid. Never raises: the result has the errors."""
        resolved = self._providers.resolve(given)
        infos = self.infos(resolved.properties)
        if not infos.error_count:
            config = self.config(_without_nulls(resolved.properties))
            for check in checks:
                try:
                    check(config)
                except ConfigError as error:  # shown at its option, or at connector.class if it has none
                    names = {info.definition.name for info in infos.configs}
                    keys = (error.key, f"consumer.override.{error.key}")
                    target = next((key for key in keys if key in names), "connector.class")
                    configs = tuple(
                        ConfigInfo(info.definition, info.value.with_error(str(error)))
                        if info.definition.name == target
                        else info
                        for info in infos.configs
                    )
                    infos = replace(infos, configs=configs)
        return resolved.hide(infos)

    def resolve(self, given: Properties, if_invalid: str) -> SinkConnectorConfig:
        """Return the typed form of a configuration. Passwords of databases are resolved again for each connection.

        Raises ConfigError with ``if_invalid`` and all errors: another version may have accepted the configuration, and
        a config provider may return another value than before.
        """
        resolved = self._providers.resolve(given)
        if errors := resolved.hide(self.infos(resolved.properties)).errors():
            raise ConfigError(f"{if_invalid}: {'; '.join(errors)}")
        return self._providers.with_current_passwords(self.config(_without_nulls(resolved.properties)), given)


def _without_nulls(properties: Properties) -> dict[str, str]:
    return {name: value for name, value in properties.items() if value is not None}


_UNADDRESSABLE = frozenset("/\\%")
_MAX_BYTES = 1024
"""Percent-encoding makes a name three times as long. It must fit into the 16 KiB of a request's head."""


def config_with_name(name: str, config: Properties) -> dict[str, str | None]:
    """Return the configuration with its ``name``. Raises RestError 400 if it contains another name."""
    configured = config.get("name")
    if configured is not None and configured != name:
        raise RestError(
            f"Connector name configuration ({configured}) doesn't match connector name in the URL ({name})", 400
        )
    return {**config, "name": name}


def check_addressable(name: str) -> None:
    """Reject names that no URL can contain, which Kafka Connect accepts (``connect.md`` section 20)."""
    if _UNADDRESSABLE & set(name) or name in (".", ".."):
        raise RestError(
            f"The name {name} cannot be addressed in a URL: it may not be . or .., nor contain / \\ or %", 400
        )
    if len(name.encode(errors="surrogatepass")) > _MAX_BYTES:
        raise RestError(f"The connector's name is longer than {_MAX_BYTES} bytes; choose a shorter one", 400)


Config = dict[str, str]

_CLOSING_LINE = (
    "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)
_ELSEWHERE = "Set LakehouseSink, and run other connectors, such as Debezium's source connectors, in Kafka Connect."


class ConnectorValidator:
    """Validates configurations for workers with this connector class."""

    def __init__(self, connector: LakehouseSinkConnector, checks: Sequence[ConnectorCheck] = ()) -> None:
        self._connector = connector
        self._checks = checks

    def validate(self, plugin: str, config: Properties) -> ConfigInfos:
        """Validate a configuration. ``plugin`` is the class in the request's path.

        Raises RestError if the configuration names another class.
        """
        name = config.get("connector.class")
        if name is not None and not name.removesuffix("Connector").endswith(plugin.removesuffix("Connector")):
            raise RestError(f"Included connector type {name} does not match request type {plugin}", 400)
        try:
            self.check_class(config)
        except RestError as error:  # Connect returns these as internal errors on this endpoint only
            prefix = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException: "
            raise RestError(prefix + str(error), 500) from error
        return self._connector.validate(config, self._checks)

    def valid_config(self, config: Properties) -> Config:
        """Return the configuration without nulls. Raises RestError 400 with all errors."""
        self.check_class(config)
        errors = self._connector.validate(config, self._checks).errors()
        if errors:
            head = f"Connector configuration is invalid and contains the following {len(errors)} error(s):"
            raise RestError("\n".join([head, *errors, _CLOSING_LINE]), 400)
        return {key: value for key, value in config.items() if value is not None}

    def check_class(self, config: Properties) -> None:
        """Raise RestError 400 if ``connector.class`` is missing or names no class of this worker."""
        name = config.get("connector.class")
        if name is None:
            shown = ", ".join(f"{key}={value}" for key, value in config.items() if not is_secret(key))
            raise RestError(f"Connector config {{{shown}}} contains no connector type", 400)
        connector = self._connector
        if not connector.runs(config):
            raise RestError(
                f"Failed to find any class that implements Connector and which name matches {name}, "
                f"available connectors are: PluginDesc{{klass=class {connector.class_name}, "
                f"name='{connector.class_name}', version='{connector.version}', type={connector.type}}}. "
                f"{migration(name, config) or suggestion(name, connector.names, _ELSEWHERE)}",
                400,
            )


_NEVER_LISTED = "org.apache.kafka.common.config.provider."


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """The class, type and version of a plug-in."""

    class_name: str
    type: str
    version: str


class PluginCatalog:
    """The plug-ins of a worker."""

    def __init__(self, connector: LakehouseSinkConnector) -> None:
        self._connector = connector

    def plugins(self, *, connectors_only: bool) -> list[PluginInfo]:
        """Return the connector, or all plug-ins."""
        plugins = [PluginInfo(self._connector.class_name, self._connector.type, self._connector.version)]
        if not connectors_only:
            groups: Sequence[tuple[str, Iterable[str]]] = (
                ("transformation", transforms()),
                ("predicate", predicates()),
                ("converter", sorted(CONVERTERS)),
                ("header_converter", sorted(HEADER_CONVERTERS)),
            )
            plugins += [PluginInfo(name, plugin_type, __version__) for plugin_type, names in groups for name in names]
        return plugins

    def definitions(self, name: str, version: str | None = None) -> ConfigDef:
        """Return the options of a class, given its name or alias.

        Raises RestError 404, and 400 if ``version`` excludes the class's version.
        """
        if name in self._connector.names:
            _check_version(self._connector.class_name, version, self._connector.version)
            return self._connector.definitions()
        converters = {**HEADER_CONVERTERS, **CONVERTERS}
        converter = converter_class(name, converters)
        if converter is not None:
            _check_version(converter, version, __version__)
            return converters[converter]
        plugin = find(name, transforms()) or find(name, predicates())
        if plugin is not None:
            _check_version(plugin.class_name, version, __version__)
            return plugin.options
        if name.startswith(_NEVER_LISTED):
            types = "sink, source, converter, header_converter, transformation, predicate"
            raise RestError(f"Invalid plugin class {name}. Valid types are {types}.", 400)
        raise RestError(f"Unknown plugin {name}.", 404)


def _check_version(name: str, wanted: str | None, version: str) -> None:
    problem = None if wanted is None else version_problem(name, wanted, version)
    if problem is not None:
        raise RestError(problem, 400)
