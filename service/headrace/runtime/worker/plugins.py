"""Connector plug-ins: what there is, by which names it is called, and what it says about its options.

Connectors, feeds, stores and lakehouses are found by entry point, so that the service never imports them. A connector
may be called by its class, its simple name or the alias without the suffix ``Connector`` (``connect.md`` section 6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol

from headrace import __version__
from headrace.config import SinkConnectorConfig, validation
from headrace.config.framework import CONNECTOR_CLASS, TASK_CLASS
from headrace.config.validation import Properties, WorkerDefaults
from headrace.core.connect.config_def import ConfigDef, ConfigInfos
from headrace.core.connect.config_state import MAX_TASKS
from headrace.core.model.errors import ConfigError


class ConnectorPlugin(Protocol):
    """A connector class. ``type`` is ``sink``; there are no sources here."""

    class_name: str
    task_class: str
    type: str
    version: str

    def definitions(self, defaults: WorkerDefaults) -> ConfigDef:
        """The options, the connector's own first."""

    def validate(self, properties: Properties, defaults: WorkerDefaults) -> ConfigInfos:
        """Check a configuration; never raises."""

    def config(self, properties: Mapping[str, str], defaults: WorkerDefaults) -> SinkConnectorConfig:
        """The typed form of a configuration that has been found valid."""

    def task_count(self, config: SinkConnectorConfig) -> int:
        """How many tasks the connector has use for: ``tasks.max`` at most (Kafka Connect's ``taskConfigs``)."""


class LakehouseSinkConnector:
    """The sink that keeps lakehouse tables equal to their source tables."""

    class_name = CONNECTOR_CLASS
    task_class = TASK_CLASS
    type = "sink"
    version = __version__

    def definitions(self, defaults: WorkerDefaults) -> ConfigDef:
        """The options listed in ``headrace.config``."""
        return validation.connector_definitions(defaults)

    def validate(self, properties: Properties, defaults: WorkerDefaults) -> ConfigInfos:
        """All checks of ``headrace.config.validation``."""
        return validation.validate(properties, defaults)

    def config(self, properties: Mapping[str, str], defaults: WorkerDefaults) -> SinkConnectorConfig:
        """The typed form."""
        return validation.sink_connector_config(properties, defaults)

    def task_count(self, config: SinkConnectorConfig) -> int:
        """One for each topic at most, since a topic belongs to one task. A pattern has any number of topics."""
        return min(config.framework.tasks_max, len(config.framework.topics.names) or MAX_TASKS, MAX_TASKS)


class Plugins:
    """The connectors of this worker."""

    def __init__(self, connectors: Iterable[ConnectorPlugin]) -> None:
        self.connectors = sorted(connectors, key=lambda plugin: plugin.class_name)

    def find(self, name: str) -> ConnectorPlugin | None:
        """The connector called ``name``, by class, simple name or alias."""
        return next((plugin for plugin in self.connectors if name in names(plugin)), None)


def names(plugin: ConnectorPlugin) -> tuple[str, str, str]:
    """Class, simple name and alias."""
    simple = plugin.class_name.rpartition(".")[2]
    return plugin.class_name, simple, simple.removesuffix("Connector")


def installed() -> Plugins:
    """The connectors that entry points name."""
    return Plugins(point.load()() for point in entry_points(group="headrace.connectors"))


def load_all(group: str) -> dict[str, Any]:
    """Load every entry point of ``headrace.<group>``, by name."""
    return {point.name: point.load() for point in entry_points(group=f"headrace.{group}")}


def load(group: str, name: str) -> Any:
    """What the entry point ``name`` of ``headrace.<group>`` stands for. Raises ConfigError when it is not installed."""
    points = entry_points(group=f"headrace.{group}", name=name)
    if not points:
        known = ", ".join(sorted(point.name for point in entry_points(group=f"headrace.{group}"))) or "none"
        raise ConfigError(f"There is no {group} plug-in called {name!r}; installed: {known}")
    return next(iter(points)).load()
