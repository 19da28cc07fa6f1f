"""``headrace resnapshot``: fill one lake table again from its source, beside the other tables.

It creates the parts from a worker file, a connector file and the REST API of the source connector's worker. The last
step is ``headrace verify --repair`` of the table.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
import uuid
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

from headrace.config import SinkConnectorConfig, WorkerConfig
from headrace.config.source_connector import URL
from headrace.core.connect.problems import age_text
from headrace.core.connect.resnapshots import ResnapshotState
from headrace.core.connect.timeline import Kind
from headrace.core.model.errors import ConfigError
from headrace.core.resnapshot.signals import new_id
from headrace.core.resnapshot.source_connector import SignalSettings
from headrace.rest.client import ConnectClient, Credentials
from headrace.rest.source_connector import configured_source_connector
from headrace.runtime.resnapshot.snapshot_target import signal_channel, snapshot_target, source_database
from headrace.runtime.resnapshot.source_connector import SourceConnector
from headrace.runtime.resnapshot.table_snapshot import Progress, TableSnapshot
from headrace.runtime.verify.connector_rest import connector_rest
from headrace.runtime.verify.kafka_offsets import KafkaOffsets
from headrace.service import checked_connector
from headrace_app import composition, verify
from headrace_app.command_events import CommandEvents

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

Without --source and --source-url, the connector file names the source connector: source.connector.url. A worker does
the same in the background: POST /connectors/NAME/tables/TABLE/resnapshot.

The connector has to run, and its worker to answer at the worker file's listeners.

environment: HEADRACE_SOURCE_URL (--source-url), HEADRACE_SOURCE_USER, HEADRACE_SOURCE_PASSWORD, HEADRACE_SOURCE_TOKEN

exit status: 0 the table equals its source, or the request was cancelled; 1 rows differ; 2 the command could not do its
work (usage, configuration, a system that does not answer); 130 interrupted
"""
INTERRUPTED = 130
_STATES = {
    verify.EQUAL: ResnapshotState.EQUAL,
    verify.DIFFERENT: ResnapshotState.DIFFERS,
    verify.NOT_COMPARED: ResnapshotState.FAILED,
}
"""The result of a resnapshot by the exit status of its comparison."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "connector", type=Path, metavar="CONNECTOR.json", help="file of the sink connector, as it was created"
    )
    parser.add_argument("table", metavar="SCHEMA.TABLE", help="the source table")
    parser.add_argument(
        "--source", metavar="NAME", help="name of the source connector (default: as source.connector.url)"
    )
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
    source: str | None = None
    source_url: str | None = None
    credentials: Credentials = field(default_factory=Credentials)
    topic: str | None = None
    cancel: bool = False
    wait: float = 180.0


def arguments(options: argparse.Namespace) -> ResnapshotArguments:
    """Return the arguments from the command line and the environment."""
    url = options.source_url or os.environ.get("HEADRACE_SOURCE_URL")
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
    events = CommandEvents(connector.name, "headrace resnapshot")
    try:
        return _resnapshot(config, connector, given, events, out, err)
    finally:
        events.write(partial(composition.status_topic, config), err)


def _resnapshot(
    config: WorkerConfig,
    connector: SinkConnectorConfig,
    given: ResnapshotArguments,
    events: CommandEvents,
    out: TextIO,
    err: TextIO,
) -> int:
    source_connector = _source_connector(connector, given)
    report = Report(given.table, out, err)
    with asyncio.Runner() as runner:
        source = source_database(connector, lambda _, options: composition.row_source(options))
        try:
            target = snapshot_target(connector, source_connector, source, given.table, given.topic)
            offsets = KafkaOffsets(composition.stores(config), connector, runner.run)
            open_topic = partial(composition.signal_topic, config)
            snapshot = TableSnapshot(
                target.table,
                source_connector,
                target.settings,
                signal_channel(connector, target.settings, source, open_topic, runner.run),
                connector_rest(config, connector.name, verify.CLOCK),
                offsets,
                lambda: int(source.log_position().end[0]),
                verify.CLOCK,
                lambda: new_id(time.time(), uuid.uuid4().hex),
                report.notice,
                partial(report.progress, target.settings),
                given.wait,
            )
            name = target.table.lake_table
            if given.cancel:
                is_cancelled = snapshot.cancel()
                report.notice("cancelled" if is_cancelled else "nothing to cancel: no request is open")
                if is_cancelled:
                    events.add(Kind.RESNAPSHOT_ENDED, ResnapshotState.CANCELLED, name)
                return 0
            snapshot.follow()
            if not offsets.ends(topic := target.table.topic):
                raise ConfigError(
                    f"topic {topic}: does not exist; either {given.table} is empty, or a transform of the source "
                    "connector renames its topic: set --topic"
                )
            report.notice("the lake table contains what was read; compares it with the source")
            repair = not connector.tables.history
            comparison = verify.VerifyArguments(given.connector, [given.table], repair=repair, wait=given.wait)
            status = verify.compare(config, connector, comparison, events, out, err)
            if status == verify.EQUAL:
                snapshot.finish()
            events.add(Kind.RESNAPSHOT_ENDED, _STATES[status], name)
            return status
        except KeyboardInterrupt:
            report.notice(
                "interrupted; the source connector continues to read. Run the command again to continue, or "
                "with --cancel to end it"
            )
            return INTERRUPTED
        finally:
            source.close()


def _source_connector(connector: SinkConnectorConfig, given: ResnapshotArguments) -> SourceConnector:
    """Return the source connector that the arguments name, or else the configuration. Raises ConfigError."""
    if given.source and given.source_url:
        login = "HEADRACE_SOURCE_USER and HEADRACE_SOURCE_PASSWORD, or HEADRACE_SOURCE_TOKEN"
        client = ConnectClient(given.source_url, given.credentials, "--source-url", login)
        return SourceConnector(given.source, client.get)
    if not given.source and not given.source_url and connector.source_connector.url:
        return configured_source_connector(connector.source_connector)
    missing = "--source-url: is missing; set it to the REST API of the source connector's worker"
    if not given.source:
        missing = "--source: is missing; set it to the name of the source connector"
    raise ConfigError(f"{missing}, or set {URL} in the connector file")


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
