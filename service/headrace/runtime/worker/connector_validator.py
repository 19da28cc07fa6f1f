"""Validation of a connector's configuration, with Kafka Connect's messages (``connect.md`` section 4).

It needs no running worker, so REST requests and ``headrace validate`` give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from headrace.config.kafka import KafkaSettings
from headrace.config.other_sinks import migration
from headrace.config.validation import WorkerDefaults, is_secret
from headrace.core.connect.config_def import ConfigInfo, ConfigInfos
from headrace.core.connect.suggestions import suggestion
from headrace.core.model.errors import ConfigError, RestError
from headrace.runtime.worker.config_providers import ConfigProviders
from headrace.runtime.worker.plugins import ConnectorPlugin, Plugins, check_reselect, names

Config = dict[str, str]
Properties = Mapping[str, str | None]
ConnectorCheck = Callable[[str, KafkaSettings], None]
"""An additional check of a valid configuration, such as its client properties. Raises ConfigError with the option."""

_CLOSING_LINE = (
    "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)
_ELSEWHERE = "Set LakehouseSink, and run other connectors, such as Debezium's source connectors, in Kafka Connect."


class ConnectorValidator:
    """Validates configurations for workers with these plug-ins and connector defaults."""

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
        """Validate a configuration. ``plugin`` is the class in the request's path.

        Raises RestError if the configuration names another class.
        """
        name = config.get("connector.class")
        if name is not None and not name.removesuffix("Connector").endswith(plugin.removesuffix("Connector")):
            raise RestError(f"Included connector type {name} does not match request type {plugin}", 400)
        try:
            return self._infos(self.plugin(config), config)
        except RestError as error:  # Connect returns these as internal errors on this endpoint only
            prefix = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException: "
            raise RestError(prefix + str(error), 500) from error

    def checked(self, config: Properties) -> tuple[ConnectorPlugin, Config]:
        """Return the plug-in and the configuration without nulls. Raises RestError 400 with all errors."""
        plugin = self.plugin(config)
        errors = self._infos(plugin, config).errors()
        if errors:
            head = f"Connector configuration is invalid and contains the following {len(errors)} error(s):"
            raise RestError("\n".join([head, *errors, _CLOSING_LINE]), 400)
        return plugin, {key: value for key, value in config.items() if value is not None}

    def plugin(self, config: Properties) -> ConnectorPlugin:
        """Return the plug-in of ``connector.class``. Raises RestError 400 if there is none."""
        name = config.get("connector.class")
        if name is None:
            shown = ", ".join(f"{key}={value}" for key, value in config.items() if not is_secret(key))
            raise RestError(f"Connector config {{{shown}}} contains no connector type", 400)
        plugin = self._plugins.find(name)
        if plugin is None:
            raise RestError(self._no_such_class(name, config), 400)
        return plugin

    def _no_such_class(self, name: str, config: Properties) -> str:
        described = ", ".join(
            f"PluginDesc{{klass=class {each.class_name}, name='{each.class_name}', version='{each.version}', "
            f"type={each.type}}}"
            for each in self._plugins.connectors
        )
        known = [each for plugin in self._plugins.connectors for each in names(plugin)]
        return (
            f"Failed to find any class that implements Connector and which name matches {name}, "
            f"available connectors are: {described}. "
            f"{migration(name, config) or suggestion(name, known, _ELSEWHERE)}"
        )

    def _infos(self, plugin: ConnectorPlugin, config: Properties) -> ConfigInfos:
        resolved = self._providers.resolve(config)
        return resolved.hide(self._infos_of_values(plugin, resolved.properties))

    def _infos_of_values(self, plugin: ConnectorPlugin, config: Properties) -> ConfigInfos:
        infos = plugin.validate(config, self._defaults)
        if infos.error_count:
            return infos
        given = {key: value for key, value in config.items() if value is not None}
        parsed = plugin.config(given, self._defaults)
        checks = [partial(check_reselect, parsed.reselect)]
        checks += [partial(check, parsed.name, parsed.kafka) for check in self._checks]
        for check in checks:
            try:
                check()
            except ConfigError as error:
                infos = _with_error(infos, error)
        return infos


def _with_error(infos: ConfigInfos, error: ConfigError) -> ConfigInfos:
    """Return ``infos`` with the error on its option, or on ``connector.class`` if it has none."""
    names_given = {info.definition.name for info in infos.configs}
    key = error.key if error.key in names_given else f"consumer.override.{error.key}"
    target = key if key in names_given else "connector.class"
    configs = tuple(
        ConfigInfo(info.definition, info.value.with_error(str(error))) if info.definition.name == target else info
        for info in infos.configs
    )
    return replace(infos, configs=configs)
