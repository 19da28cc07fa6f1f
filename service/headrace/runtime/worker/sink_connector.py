"""The connector class of a worker: its names, its options, and the configurations that it accepts.

It has three names (``connect.md`` section 6): its class, its simple name, and the alias without the suffix
``Connector``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headrace import __version__
from headrace.config import SinkConnectorConfig, validation
from headrace.config.framework import CONNECTOR_CLASS, TASK_CLASS
from headrace.config.validation import Properties, WorkerDefaults
from headrace.core.connect.config_def import ConfigDef, ConfigInfo, ConfigInfos
from headrace.core.connect.config_state import MAX_TASKS
from headrace.core.model.errors import ConfigError
from headrace.runtime.worker.config_providers import ConfigProviders

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
        """The class, the simple name and the alias."""
        simple = self.class_name.rpartition(".")[2]
        return self.class_name, simple, simple.removesuffix("Connector")

    def runs(self, config: Properties) -> bool:
        """Return whether ``connector.class`` of a configuration is one of the names."""
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
                except ConfigError as error:
                    infos = _with_error(infos, error)
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


def _with_error(infos: ConfigInfos, error: ConfigError) -> ConfigInfos:
    """Return ``infos`` with the error on its option, or on ``connector.class`` if it has none."""
    names = {info.definition.name for info in infos.configs}
    key = error.key if error.key in names else f"consumer.override.{error.key}"
    target = key if key in names else "connector.class"
    configs = tuple(
        ConfigInfo(info.definition, info.value.with_error(str(error))) if info.definition.name == target else info
        for info in infos.configs
    )
    return replace(infos, configs=configs)
