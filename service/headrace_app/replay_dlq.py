"""``headrace replay-dlq``: apply the dead letters of a connector to its tables.

It creates the parts from a worker file and a connector file. ``runtime/dead_letters/``
processes the letters, as it does for ``POST /connectors/{name}/dead-letters/replay``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from headrace.config import SinkConnectorConfig, WorkerConfig
from headrace.core.connect.dead_letters import LetterCounts, replay_text
from headrace.core.connect.timeline import Kind
from headrace.core.model.errors import ConfigError
from headrace.ports import ErrantRecord, Lakehouse, ReplayFeeds
from headrace.runtime.dead_letters.letters import check_queue, letters_to_send, oldest, survey
from headrace.runtime.dead_letters.replay import Edges, replay
from headrace.runtime.threads import WorkerThreads
from headrace.runtime.verify.connector_rest import connector_rest
from headrace.runtime.verify.table_verifier import Clock
from headrace.service import checked_connector
from headrace_app import composition
from headrace_app.command_events import CommandEvents

DESCRIPTION = """\
Sends a connector's dead letters through transforms, decoding, reselect and merge again, as the original records, with
the topic, partition and offset in their headers (errors.deadletterqueue.context.headers.enable=true). Run it after you
have corrected the cause: a converter or transform option, a key, a missing column, a database.

The command writes nothing to Kafka. A change that is older than its row has no effect, and a history stores each event
once, so the command can be repeated at any time. The letters stay in their topic.
"""
EPILOG = """\
examples:
  headrace replay-dlq worker.properties shop.json --dry-run     # number of letters, by topic and reason
  headrace replay-dlq worker.properties shop.json

The command pauses a running connector while it writes the letters, and resumes it, through the REST API at the worker
file's listeners.

exit status: 0 all letters applied; 1 some could not be used again (the output names them), or have no coordinate; 2
could not run (usage, configuration, a system that does not answer)
"""
_WRITERS = 4
_NAMED = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "connector", type=Path, metavar="CONNECTOR.json", help="file of the connector, as it was created"
    )
    parser.add_argument("--dry-run", action="store_true", help="report the letters and write nothing")
    parser.add_argument(
        "--old",
        action="store_true",
        help="also apply letters older than tombstone.retention.ms; a row that was deleted since may come back",
    )


def replay_dlq(config: WorkerConfig, connector: Path, *, dry_run: bool, old: bool) -> int:
    """Replay the letters of the connector in this file, and return the exit status. Raises HeadraceError."""
    sink = checked_connector(config, connector)
    try:
        check_queue(sink)
    except ConfigError as error:
        raise ConfigError(f"{connector}: {error}", error.key) from error
    feeds = composition.feeds(config)
    rest = connector_rest(config, sink.name, Clock(time.monotonic, time.sleep))
    report = ReplayReport(sys.stdout, sys.stderr)
    since = 0 if old else oldest(sink, time.time())
    letters = asyncio.run(survey(feeds, sink, since))
    report.found(letters, sink.name)
    if dry_run or not letters.count:
        return int(not letters.complete)
    lakehouse = composition.lakehouse(config)
    events = CommandEvents(sink.name, "headrace replay-dlq")
    try:
        with rest.paused():
            refused = asyncio.run(write(feeds, sink, since, _edges(lakehouse), report))
    finally:
        lakehouse.close()
        if report.written:
            events.add(Kind.LETTERS_REPLAYED, replay_text(report.written, letters.count, report.refused))
        events.write(partial(composition.status_topic, config), sys.stderr)
    return report.end(letters, refused)


@dataclass(slots=True)
class ReplayReport:
    """Prints results on ``out`` and progress on ``err``, never the content of a record."""

    out: TextIO
    err: TextIO
    written: int = 0
    refused: int = 0

    def found(self, letters: LetterCounts, connector: str) -> None:
        """Print the number of letters in the queue, by topic and reason."""
        for (topic, reason), count in sorted(letters.reasons.items()):
            print(f"{topic}: {count:,} ({reason})", file=self.out)
        if letters.without_coordinate:
            print(
                f"{letters.without_coordinate:,} letters without context headers: their origin is unknown; set "
                "errors.deadletterqueue.context.headers.enable=true for later ones",
                file=self.out,
            )
        if letters.too_old:
            print(
                f"{letters.too_old:,} letters are older than tombstone.retention.ms: a row that was deleted since "
                "would come back; --old replays them anyway",
                file=self.out,
            )
        for other, count in sorted(letters.connectors.items()):
            print(f"{count:,} letters of connector {other} are ignored", file=self.out)
        print(f"{letters.count:,} dead letters of connector {connector}", file=self.out)

    def progress(self, count: int, refused: Sequence[ErrantRecord]) -> None:
        """Print the number of letters written so far, with ``count`` more."""
        self.written += count
        self.refused = len(refused)
        print(f"{self.written:,} letters sent", file=self.err)

    def end(self, letters: LetterCounts, refused: Sequence[ErrantRecord]) -> int:
        """Print the result, and return the exit status."""
        for errant in refused[:_NAMED]:
            origin = f"{errant.record.topic}-{errant.record.partition} at offset {errant.record.offset}"
            print(f"{origin} cannot be used: {errant.stage}: {errant.error}", file=self.out)
        if len(refused) > _NAMED:
            print(f"and {len(refused) - _NAMED:,} more", file=self.out)
        print(f"{letters.count:,} letters, {len(refused):,} cannot be used", file=self.out)
        return int(bool(refused) or not letters.complete)


async def write(
    feeds: ReplayFeeds,
    sink: SinkConnectorConfig,
    since: int,
    edges: Edges,
    report: ReplayReport,
) -> list[ErrantRecord]:
    """Write the connector's letters to their tables. Return those that cannot be used. Raises HeadraceError."""
    with WorkerThreads.start(_WRITERS) as threads:
        return await replay(sink, letters_to_send(feeds, sink, since), edges, threads, report.progress)


def _edges(lakehouse: Lakehouse) -> Edges:
    return Edges(
        lakehouse,
        lambda _, options: composition.row_source(options),
        composition.schema_registry,
        composition.SOURCES.load_all(),
    )
