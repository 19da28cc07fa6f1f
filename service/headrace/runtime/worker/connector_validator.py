"""Whether a connector's configuration can be used, with Kafka Connect's texts (``connect.md`` section 4).

Needs no running worker: REST requests and ``headrace validate`` get the same answers from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headrace.config.kafka import KafkaSettings
from headrace.config.validation import WorkerDefaults, is_secret
from headrace.core.connect.config_def import ConfigInfo, ConfigInfos
from headrace.core.connect.suggestions import suggestion
from headrace.core.model.errors import ConfigError, RestError
from headrace.runtime.worker.config_providers import ConfigProviders
from headrace.runtime.worker.plugins import ConnectorPlugin, Plugins, names

Config = dict[str, str]
Properties = Mapping[str, str | None]
ConnectorCheck = Callable[[str, KafkaSettings], None]
"""Checks a valid configuration further (client properties, say); raises ConfigError that names the option."""

_CLOSING_LINE = (
    "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)


class ConnectorValidator:
    """Checks configurations for workers that have ``plugins`` and give their connectors ``defaults``."""

    def __init__(
        self,
        plugins: Plugins,
        defaults: WorkerDefaults,
        providers: ConfigProviders,
        checks: Sequence[ConnectorCheck] = (),
    ) -> None:
        self._plugins = plugins
        self._defaults = defaults
        self._providers = providers
        self._checks = checks

    def validate(self, plugin: str, config: Properties) -> ConfigInfos:
        """Check a configuration. Raises RestError when it is not one of ``plugin``, the class in the request's path."""
        name = config.get("connector.class")
        if name is not None and not _same_class(plugin, name):
            raise RestError(f"Included connector type {name} does not match request type {plugin}", 400)
        try:
            return self._infos(self.plugin(config), config)
        except RestError as error:  # Connect lets these through as internal errors on this endpoint alone
            prefix = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException: "
            raise RestError(prefix + str(error), 500) from error

    def checked(self, config: Properties) -> tuple[ConnectorPlugin, Config]:
        """The class and the configuration without nulls. Raises RestError 400 with every error that it has."""
        plugin = self.plugin(config)
        errors = self._infos(plugin, config).errors()
        if errors:
            head = f"Connector configuration is invalid and contains the following {len(errors)} error(s):"
            raise RestError("\n".join([head, *errors, _CLOSING_LINE]), 400)
        return plugin, {key: value for key, value in config.items() if value is not None}

    def plugin(self, config: Properties) -> ConnectorPlugin:
        """The class that a configuration names. Raises RestError 400 where it names none that is here."""
        name = config.get("connector.class")
        if name is None:
            shown = ", ".join(f"{key}={value}" for key, value in config.items() if not is_secret(key))
            raise RestError(f"Connector config {{{shown}}} contains no connector type", 400)
        plugin = self._plugins.find(name)
        if plugin is None:
            raise RestError(self._no_such_class(name), 400)
        return plugin

    def _no_such_class(self, name: str) -> str:
        described = ", ".join(
            f"PluginDesc{{klass=class {each.class_name}, name='{each.class_name}', version='{each.version}', "
            f"type={each.type}}}"
            for each in self._plugins.connectors
        )
        known = [each for plugin in self._plugins.connectors for each in names(plugin)]
        return (
            f"Failed to find any class that implements Connector and which name matches {name}, "
            f"available connectors are: {described}. {suggestion(name, known)}"
        )

    def _infos(self, plugin: ConnectorPlugin, config: Properties) -> ConfigInfos:
        resolved = self._providers.resolve(config)
        return resolved.hide(self._infos_of_values(plugin, resolved.properties))

    def _infos_of_values(self, plugin: ConnectorPlugin, config: Properties) -> ConfigInfos:
        infos = plugin.validate(config, self._defaults)
        if infos.error_count:
            return infos
        given = {key: value for key, value in config.items() if value is not None}
        as_tasks_get_it = plugin.config(given, self._defaults)
        for check in self._checks:
            try:
                check(as_tasks_get_it.name, as_tasks_get_it.kafka)
            except ConfigError as error:
                infos = _with_error(infos, error)
        return infos


def _same_class(requested: str, given: str) -> bool:
    """Whether the class in the configuration ends with the one in the path, the suffix ``Connector`` aside."""
    return given.removesuffix("Connector").endswith(requested.removesuffix("Connector"))


def _with_error(infos: ConfigInfos, error: ConfigError) -> ConfigInfos:
    """The answer with one more error, on the option that it names or else on the class."""
    names_given = {info.definition.name for info in infos.configs}
    key = error.key if error.key in names_given else f"consumer.override.{error.key}"
    target = key if key in names_given else "connector.class"
    configs = tuple(
        ConfigInfo(info.definition, info.value.with_error(str(error))) if info.definition.name == target else info
        for info in infos.configs
    )
    return replace(infos, configs=configs)
