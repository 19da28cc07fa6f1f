"""Connector plug-ins: discovery by entry point, names, and options.

Connectors, feeds, stores and lakehouses are found by entry point, so the service never imports them. A connector has
three names: its class, its simple name, and the alias without the suffix ``Connector`` (``connect.md`` section 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any, Protocol

from headrace import __version__
from headrace.config import SinkConnectorConfig, WorkerConfig, validation
from headrace.config.framework import CONNECTOR_CLASS, TASK_CLASS
from headrace.config.validation import Properties, WorkerDefaults
from headrace.core.connect.config_def import ConfigDef, ConfigInfos
from headrace.core.connect.config_state import MAX_TASKS
from headrace.core.model.errors import ConfigError, HeadraceError, Retriable
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.ports import Lakehouse, OpenCredentials, RowSource
from headrace.runtime.worker.memory_plan import engine_memory


class ConnectorPlugin(Protocol):
    """A connector class. ``type`` is ``sink``, because Headrace has no source connectors."""

    class_name: str
    task_class: str
    type: str
    version: str

    def definitions(self, defaults: WorkerDefaults) -> ConfigDef:
        """Return the options, those of the connector before those of the framework."""

    def validate(self, properties: Properties, defaults: WorkerDefaults) -> ConfigInfos:
        """Validate a configuration. Never raises: the result has the errors."""

    def config(self, properties: Mapping[str, str], defaults: WorkerDefaults) -> SinkConnectorConfig:
        """Return the typed form of a valid configuration."""

    def task_count(self, config: SinkConnectorConfig) -> int:
        """Return the number of tasks, ``tasks.max`` at most (Kafka Connect's ``taskConfigs``)."""


class LakehouseSinkConnector:
    """The sink that keeps lakehouse tables equal to their source tables."""

    class_name = CONNECTOR_CLASS
    task_class = TASK_CLASS
    type = "sink"
    version = __version__

    def definitions(self, defaults: WorkerDefaults) -> ConfigDef:
        """Return the options that ``headrace.config`` declares."""
        return validation.connector_definitions(defaults)

    def validate(self, properties: Properties, defaults: WorkerDefaults) -> ConfigInfos:
        """Validate with ``headrace.config.validation``."""
        return validation.validate(properties, defaults)

    def config(self, properties: Mapping[str, str], defaults: WorkerDefaults) -> SinkConnectorConfig:
        """Return the typed form of a valid configuration."""
        return validation.sink_connector_config(properties, defaults)

    def task_count(self, config: SinkConnectorConfig) -> int:
        """Return at most one per topic, because a topic belongs to one task. A pattern may match any number."""
        return min(config.framework.tasks_max, len(config.framework.topics.names) or MAX_TASKS, MAX_TASKS)


class Plugins:
    """The connector plug-ins of this worker."""

    def __init__(self, connectors: Iterable[ConnectorPlugin]) -> None:
        self.connectors = sorted(connectors, key=lambda plugin: plugin.class_name)

    def find(self, name: str) -> ConnectorPlugin | None:
        """Return the connector with this class, simple name or alias."""
        return next((plugin for plugin in self.connectors if name in names(plugin)), None)


def names(plugin: ConnectorPlugin) -> tuple[str, str, str]:
    """Return the class, simple name and alias of a connector."""
    simple = plugin.class_name.rpartition(".")[2]
    return plugin.class_name, simple, simple.removesuffix("Connector")


def installed() -> Plugins:
    """Return the connectors of the installed entry points."""
    return Plugins(point.load()() for point in _entry_points("connectors"))


def load_all(group: str) -> dict[str, Any]:
    """Load every entry point of ``headrace.<group>``, by name."""
    return {point.name: point.load() for point in _entry_points(group)}


def load(group: str, name: str) -> Any:
    """Load the entry point ``name`` of ``headrace.<group>``. Raises ConfigError if it is not installed."""
    points = _entry_points(group)
    if name not in points.names:
        known = ", ".join(sorted(points.names)) or "none"
        raise ConfigError(f"The {group} plug-in {name!r} is not installed; use one of: {known}")
    return points[name].load()


def check_reselect(options: ReselectOptions) -> None:
    """Raise ConfigError, which names the option, if a plug-in that reselect needs is not installed."""
    caches = [options.cache_type] if options.cache_enabled else []
    databases = options.databases or [options.database]
    credentials = [each.credentials for each in databases if each is not None and each.credentials]
    for option, group, wanted in (
        ("reselect.cache.type", "reselect_caches", caches),
        ("reselect.database.credentials", "database_credentials", credentials),
    ):
        for name in wanted:
            if name not in (available := _entry_points(group).names):
                known = ", ".join(sorted(available)) or "none"
                raise ConfigError(
                    f"{option}: no plug-in {name!r} is installed on this worker (entry point headrace.{group}; "
                    f"installed: {known}); correct the name, or install the plug-in on every worker",
                    option,
                )


def open_row_source(options: ReselectOptions) -> RowSource:
    """Return the row source of ``options.database``. Raises ConfigError, also for plug-ins that are not installed."""
    database = options.database
    if database is None:
        raise ConfigError("reselect.database.hostname is missing", "reselect.database.hostname")
    if database.credentials:
        options = replace(options, database=replace(database, read_password=_credentials(database)))
    source: RowSource = load("row_sources", database.type)(options)
    return source


def _credentials(database: DatabaseOptions) -> Callable[[], str]:
    """Return the function of a plug-in. Its unexpected errors become Retriable without their text."""
    name = database.credentials
    open_credentials: OpenCredentials = load("database_credentials", name)
    read = open_credentials(database)

    def password() -> str:
        try:
            return read()
        except HeadraceError:
            raise
        except Exception as error:
            raise Retriable(
                f"reselect.database.credentials: {name} provides no password now: {type(error).__name__}"
            ) from error

    return password


def open_lakehouse(config: WorkerConfig) -> Lakehouse:
    """Return the lakehouse of a worker's configuration. Its engine is not started."""
    lakehouse: Lakehouse = load("lakehouses", "spark")(
        config.lake.warehouse,
        config.spark_properties(),
        limits=config.engine,
        available=engine_memory(config.lake.memory),
    )
    return lakehouse


@cache
def _entry_points(group: str) -> EntryPoints:
    """The entry points of ``headrace.<group>``. Each search reads the metadata of all installed packages."""
    return entry_points(group=f"headrace.{group}")
