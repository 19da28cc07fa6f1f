"""The composition root: builds a worker of the service (``headrace``) and the connectors (``headrace_connectors``).

Each connector is constructed here and nowhere else. A function imports what it constructs, so that a command loads
neither Faust, Spark nor the drivers of databases that it does not use. ``CACHES``, ``DATABASES``, ``CREDENTIALS`` and
``SOURCES`` are what other packages may add to by entry points (``headrace/extensions.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.cassandra.decoder import CassandraDecoder
from headrace.config import SinkConnectorConfig, WorkerConfig
from headrace.core.decode.record_decoder import Decoder, OpenDecoder
from headrace.core.model.errors import ConfigError, HeadraceError, Retriable
from headrace.core.reselect.cache.rows import MemoryRowStore
from headrace.core.reselect.options import ReselectOptions
from headrace.extensions import ExtensionPoint
from headrace.ports import (
    CompactedLog,
    Lakehouse,
    OpenCredentials,
    OpenDatabase,
    OpenRowStore,
    ReadPassword,
    RowSource,
    RowStore,
    RowStoreOptions,
    SchemaRegistry,
    SignalChannel,
    Stores,
)
from headrace.runtime.worker.memory_plan import engine_memory
from headrace.service import Connectors, Service
from headrace.transforms import registry

if TYPE_CHECKING:
    from headrace_connectors.kafka import KafkaFeedFactory


def worker(config: WorkerConfig) -> Service:
    """Return a worker that is not started, and that has bound its ports. Raises ConfigError."""
    return Service(config, connectors(config))


def connectors(config: WorkerConfig) -> Connectors:
    """Return the connectors of a worker, without a connection. Raises ConfigError, also for an unusable extension."""
    registry.check_extensions()
    kafka = feeds(config)
    return Connectors(
        feeds=kafka,
        dead_letters=kafka,
        stores=stores(config),
        lakehouse=lakehouse(config),
        open_row_source=lambda _, options: row_source(options),
        open_rows=row_store,
        open_registry=schema_registry,
        open_signal_topic=partial(signal_topic, config),
        sources=SOURCES.load_all(),
        check=check_installed,
    )


def feeds(config: WorkerConfig) -> KafkaFeedFactory:
    """Return the Kafka side of a worker. Raises ConfigError, which names the property."""
    from headrace_connectors.kafka import KafkaFeedFactory

    return KafkaFeedFactory(config.complete_properties())


def stores(config: WorkerConfig) -> Stores:
    """Return the stores of a distributed worker, or of a standalone one. Raises ConfigError."""
    from headrace_connectors.kafka.stores import KafkaStores, StandaloneStores

    properties = config.complete_properties()
    return KafkaStores(properties) if config.distributed else StandaloneStores(properties)


def status_topic(config: WorkerConfig) -> CompactedLog | None:
    """Return the status topic of the worker's cluster, for a command; None if the worker file names none."""
    from headrace_connectors.kafka.stores import KafkaStores

    return KafkaStores(config.complete_properties()).statuses if config.storage.status_topic else None


def lakehouse(config: WorkerConfig) -> Lakehouse:
    """Return the lakehouse of a worker's configuration. Its engine is not started."""
    from headrace_connectors.lakehouse import SparkLakehouse

    return SparkLakehouse(
        config.lake.warehouse,
        config.spark_properties(),
        limits=config.engine,
        available=engine_memory(config.lake.memory),
    )


def small_lakehouse(config: WorkerConfig) -> Lakehouse:
    """Return the lakehouse with a small JVM, for a command that writes a few rows beside a worker."""
    from headrace_connectors.lakehouse import SparkLakehouse

    spark = {**config.spark_properties(), "spark.driver.memory": "1g"}
    return SparkLakehouse(config.lake.warehouse, spark, limits=config.engine)


def signal_topic(
    config: WorkerConfig,
    connector: SinkConnectorConfig,
    topic: str,
    key: str,
    run: Callable[[Coroutine[Any, Any, Any]], Any],
) -> SignalChannel:
    """Return the signal topic of a source connector, on the brokers that the connector reads. Raises ConfigError.

    ``run`` runs a coroutine, and returns its result.
    """
    from headrace_connectors.kafka.settings import topic_arguments
    from headrace_connectors.kafka.signals import KafkaSignalTopic

    return KafkaSignalTopic(topic, key, topic_arguments(config.complete_properties(), connector.kafka), run)


def schema_registry(name: str, options: Mapping[str, str]) -> SchemaRegistry:
    """Return the client of a schema registry, ``confluent`` or ``apicurio``. Raises ConfigError."""
    from headrace_connectors.registry import ApicurioRegistry, ConfluentRegistry

    return ApicurioRegistry(options) if name == "apicurio" else ConfluentRegistry(options)


def row_source(options: ReselectOptions) -> RowSource:
    """Return the row source of ``options.database``. Raises ConfigError, also for plug-ins that are not installed."""
    database = options.database
    if database is None:
        raise ConfigError("reselect.database.hostname is missing", "reselect.database.hostname")
    if database.credentials:
        read = CREDENTIALS.load(database.credentials)(database)
        options = replace(options, database=replace(database, read_password=_passwords(database.credentials, read)))
    return DATABASES.load(database.type)(options)


def row_store(cache_type: str, options: RowStoreOptions) -> RowStore:
    """Return the store that ``reselect.cache.type`` names. Raises ConfigError or Retriable."""
    return CACHES.load(cache_type)(options)


def check_installed(config: SinkConnectorConfig) -> None:
    """Raise ConfigError, which names the option, if a plug-in that a connector names is not installed."""
    options = config.reselect
    if options.cache_enabled:
        _check_installed("reselect.cache.type", options.cache_type, CACHES.group, CACHES.names())
    for database in options.databases or [options.database]:
        if database is not None and database.credentials:
            names = CREDENTIALS.names()
            _check_installed("reselect.database.credentials", database.credentials, CREDENTIALS.group, names)


def _check_installed(option: str, name: str, group: str, installed: Sequence[str]) -> None:
    if name not in installed:
        available = ", ".join(installed) or "none"
        raise ConfigError(
            f"{option}: no plug-in {name!r} is installed on this worker (entry point headrace.{group}; "
            f"installed: {available}); correct the name, or install the plug-in on every worker",
            option,
        )


def _passwords(name: str, read: ReadPassword) -> ReadPassword:
    """Return the function of a plug-in. Its unexpected errors become Retriable without their text."""

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


def _postgresql(options: ReselectOptions) -> RowSource:
    from headrace_connectors.sql import PostgresRowSource

    return PostgresRowSource(options)


def _oracle(options: ReselectOptions) -> RowSource:
    from headrace_connectors.sql import OracleRowSource

    return OracleRowSource(options)


def _memory(options: RowStoreOptions) -> RowStore:
    return MemoryRowStore(options.limits)


def _rocksdb(options: RowStoreOptions) -> RowStore:
    from headrace_connectors.rocksdb import open_rows

    return open_rows(options)


CACHES: ExtensionPoint[OpenRowStore] = ExtensionPoint(
    "reselect_caches", parameters=1, returns=RowStore, built_in={"memory": _memory, "rocksdb": _rocksdb}
)
DATABASES: ExtensionPoint[OpenDatabase] = ExtensionPoint(
    "row_sources", parameters=1, returns=RowSource, built_in={"postgresql": _postgresql, "oracle": _oracle}
)
CREDENTIALS: ExtensionPoint[OpenCredentials] = ExtensionPoint(
    "database_credentials", parameters=1, returns=ReadPassword
)
SOURCES: ExtensionPoint[OpenDecoder] = ExtensionPoint(
    "sources", parameters=2, returns=Decoder, built_in={"cassandra": CassandraDecoder}
)
