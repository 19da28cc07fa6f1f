"""``headrace resnapshot``: fill one lake table again from its source, beside the other tables.

It creates the parts from a worker file, a connector file and the REST API of the source connector's worker. The last
step is ``headrace verify --repair`` of the table.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
import uuid
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

from headrace.config import SinkConnectorConfig, WorkerConfig
from headrace.core.connect.problems import age_text
from headrace.core.doctor.findings import Severity
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.core.resnapshot.signals import new_id
from headrace.core.resnapshot.source_connector import SignalSettings, check_captured, signal_settings
from headrace.ports import ExaminedSource, SignalChannel, SignalledSource, TableSource
from headrace.rest.client import ConnectClient, Credentials
from headrace.runtime.resnapshot.source_connector import SourceConnector
from headrace.runtime.resnapshot.table_snapshot import Progress, SnapshotTable, TableSnapshot
from headrace.runtime.verify.connector_rest import connector_rest
from headrace.runtime.verify.connector_tables import comparable_task, primaries
from headrace.runtime.verify.kafka_offsets import KafkaOffsets
from headrace.runtime.verify.source_tables import topic_form
from headrace.service import checked_connector
from headrace_app import composition, verify

DESCRIPTION = """\
Fills one lake table again from its source, while all tables are written. Debezium reads the source table in chunks, by
an incremental snapshot; the connector applies the rows beside the changes. Then the command compares both tables, and
repairs what differs: only this removes rows that the source does not have.

A table that was dropped or rolled back in the lake is created again, or continued. A source table that was added to the
publication and to the filters of the source connector gets its rows in the same way.

The request is stored where the signal is sent. After Ctrl-C, or a restart of anything, run the command again: it
continues. PostgreSQL only; the source connector has to receive signals (docs/operations.md, section "Heal one table").
"""
EPILOG = """\
examples:
  headrace resnapshot worker.properties shop.json public.orders --source-url http://connect:8083 --source shop-source
  headrace resnapshot worker.properties shop.json public.orders --source-url http://connect:8083 --source shop-source \\
      --cancel

The connector has to run, and its worker to answer at the worker file's listeners.

environment: HEADRACE_SOURCE_URL (--source-url), HEADRACE_SOURCE_USER, HEADRACE_SOURCE_PASSWORD, HEADRACE_SOURCE_TOKEN

exit status: 0 the table equals its source, or the request was cancelled; 1 rows differ; 2 the command could not do its
work (usage, configuration, a system that does not answer); 130 interrupted
"""
INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "connector", type=Path, metavar="CONNECTOR.json", help="file of the sink connector, as it was created"
    )
    parser.add_argument("table", metavar="SCHEMA.TABLE", help="the source table")
    parser.add_argument("--source", required=True, metavar="NAME", help="name of the source connector")
    parser.add_argument("--source-url", metavar="URL", help="REST API of its Kafka Connect worker")
    parser.add_argument("--source-ca", type=Path, metavar="PEM", help="authorities to trust for an https --source-url")
    parser.add_argument("--topic", help="topic of the table, if a transform of the source connector renames it")
    parser.add_argument("--cancel", action="store_true", help="end the reads of an open request")
    parser.add_argument(
        "--wait",
        type=float,
        default=180.0,
        metavar="SECONDS",
        help="time without progress after which a step fails (default: %(default)g)",
    )


@dataclass(frozen=True, slots=True)
class ResnapshotArguments:
    """The arguments of the command line."""

    connector: Path
    table: str
    source: str
    source_url: str
    credentials: Credentials = field(default_factory=Credentials)
    topic: str | None = None
    cancel: bool = False
    wait: float = 180.0


def arguments(options: argparse.Namespace) -> ResnapshotArguments:
    """Return the arguments from the command line and the environment. Raises ConfigError."""
    url = options.source_url or os.environ.get("HEADRACE_SOURCE_URL")
    if not url:
        raise ConfigError("--source-url: is missing; set it to the REST API of the source connector's worker")
    user, password, token = (os.environ.get(f"HEADRACE_SOURCE_{name}") for name in ("USER", "PASSWORD", "TOKEN"))
    credentials = Credentials(user, password, token, options.source_ca)
    return ResnapshotArguments(
        options.connector,
        options.table,
        options.source,
        url,
        credentials,
        options.topic,
        options.cancel,
        options.wait,
    )


def resnapshot(
    config: WorkerConfig, given: ResnapshotArguments, out: TextIO | None = None, err: TextIO | None = None
) -> int:
    """Fill the table again, and return the exit status. Raises HeadraceError if that is not possible."""
    out, err = out or sys.stdout, err or sys.stderr
    connector = checked_connector(config, given.connector)
    report = Report(given.table, out, err)
    with asyncio.Runner() as runner:
        source = _source_database(connector)
        try:
            snapshot, topic, offsets = _table_snapshot(config, connector, given, source, report, runner)
            if given.cancel:
                report.notice("cancelled" if snapshot.cancel() else "nothing to cancel: no request is open")
                return 0
            snapshot.follow()
            if not offsets.ends(topic):
                raise ConfigError(
                    f"topic {topic}: does not exist; either {given.table} is empty, or a transform of the source "
                    "connector renames its topic: set --topic"
                )
            report.notice("the lake table contains what was read; compares it with the source")
            comparison = verify.VerifyArguments(given.connector, [given.table], repair=True, wait=given.wait)
            status = verify.verify(config, comparison, out, err)
            if status == verify.EQUAL:
                snapshot.finish()
            return status
        except KeyboardInterrupt:
            report.notice(
                "interrupted; the source connector continues to read. Run the command again to continue, or "
                "with --cancel to end it"
            )
            return INTERRUPTED
        finally:
            source.close()


def _source_database(connector: SinkConnectorConfig) -> TableSource:
    """Return the source database, connected to its primary. Raises ConfigError."""
    databases = primaries(connector.reselect, lambda _, options: composition.row_source(options))
    if len(databases) > 1:
        for _, source in databases:
            source.close()
        raise ConfigError("reselect.databases: headrace resnapshot supports one database", "reselect.databases")
    [(_, source)] = databases
    source.check()
    return source


def _table_snapshot(
    config: WorkerConfig,
    connector: SinkConnectorConfig,
    given: ResnapshotArguments,
    database: TableSource,
    report: Report,
    runner: asyncio.Runner,
) -> tuple[TableSnapshot, str, KafkaOffsets]:
    """Check what is configured, and return the snapshot, its topic, and the offsets in Kafka. Raises ConfigError."""
    source = SourceConnector(given.source, ConnectClient(given.source_url, given.credentials).get)
    source_config = source.config()
    settings = signal_settings(source.name, source_config)
    schema, dot, name = given.table.partition(".")
    if not dot:
        raise ConfigError(f"{given.table}: is not SCHEMA.TABLE")
    check_captured(source.name, source_config, schema, name)
    topic = given.topic or f"{settings.prefix}.{topic_form(schema)}.{topic_form(name)}"
    if re.fullmatch(connector.framework.topics.whole_names, topic) is None:
        raise ConfigError(f"connector {connector.name}: does not read topic {topic}; add it to topics, or set --topic")
    table = TableId(settings.prefix, source_config.get("database.dbname", ""), schema, name)
    _check_table(database, table)
    options = comparable_task(connector)
    offsets = KafkaOffsets(composition.stores(config), connector, runner.run)
    snapshot = TableSnapshot(
        SnapshotTable(given.table, topic, options.naming.name(topic, table), connector.name),
        source,
        settings,
        _signal_channel(config, connector, settings, database, runner),
        connector_rest(config, connector.name, verify.CLOCK),
        offsets,
        lambda: int(database.log_position().end[0]),
        verify.CLOCK,
        lambda: new_id(time.time(), uuid.uuid4().hex),
        report.notice,
        partial(report.progress, settings),
        given.wait,
    )
    return snapshot, topic, offsets


def _check_table(database: TableSource, table: TableId) -> None:
    """Raise ConfigError for a table whose changes do not arrive, as ``headrace doctor`` finds it, or without a key."""
    catalog = database.catalog(table)
    name = f"{table.schema}.{table.table}"
    if catalog is None:
        raise ConfigError(f"{name}: the source database has no such table")
    if not catalog.key:
        raise ConfigError(f"{name}: has no primary key, so Debezium takes no incremental snapshot of it")
    for finding in database.findings([table]) if isinstance(database, ExaminedSource) else ():
        if finding.severity is Severity.ERROR and finding.subject.endswith(f"table {name}"):
            raise ConfigError(f"{finding.subject}: {finding.consequence} ({finding.evidence}); {finding.remedy}")


def _signal_channel(
    config: WorkerConfig,
    connector: SinkConnectorConfig,
    settings: SignalSettings,
    database: TableSource,
    runner: asyncio.Runner,
) -> SignalChannel:
    if settings.topic:
        return composition.signal_topic(config, connector, settings.topic, settings.prefix, runner.run)
    if not isinstance(database, SignalledSource):
        raise ConfigError("reselect.database.type: headrace resnapshot supports postgresql only")
    return database.signal_table(settings.table)


class Report:
    """Prints what happens, and, on a terminal, the progress in one line that changes."""

    def __init__(self, table: str, out: TextIO, err: TextIO) -> None:
        self._table, self._out, self._err = table, out, err
        self._live = err.isatty()

    def notice(self, text: str) -> None:
        """Print a line."""
        self._clear()
        print(f"{self._table}: {text}", file=self._out, flush=True)

    def progress(self, settings: SignalSettings, progress: Progress) -> None:
        """Show how far the snapshot is."""
        if self._live:
            self._clear()
            self._err.write(f"{self._table}: {progress_text(progress, settings.chunk_size)}")
            self._err.flush()

    def _clear(self) -> None:
        if self._live:
            self._err.write("\r\x1b[K")
            self._err.flush()


def progress_text(progress: Progress, chunk_size: int) -> str:
    """Return the progress as a line. Chunks are those of ``incremental.snapshot.chunk.size`` rows."""
    parts = [progress.step]
    if progress.rows or progress.total is not None:
        of, chunks = "", f"chunk {-(-progress.rows // chunk_size):,}"
        if progress.total is not None:
            of = f" of about {progress.total:,}"
            chunks += f" of about {-(-progress.total // chunk_size):,}"
        parts.append(f"{progress.rows:,}{of} rows in the lake ({chunks})")
    if progress.left is not None:
        parts.append(f"{progress.left:,} records left")
    if progress.seconds_left is not None:
        parts.append(f"about {age_text(progress.seconds_left)} left")
    if progress.waits_for:
        parts.append(progress.waits_for)
    return ", ".join(parts)
