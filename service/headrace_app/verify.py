"""``headrace verify``: compare the source tables of a connector with its lake tables.

It creates the parts from a worker file and a connector file. It writes only with ``--repair``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from headrace.config import SinkConnectorConfig, WorkerConfig
from headrace.core.connect.timeline import Kind
from headrace.core.model.errors import ConfigError, HeadraceError
from headrace.core.model.events import TableId
from headrace.core.verify.verification import Verdict, Where
from headrace.ports import TableSource
from headrace.runtime.verify.connector_rest import connector_rest
from headrace.runtime.verify.connector_tables import ConnectorTables
from headrace.runtime.verify.kafka_offsets import KafkaOffsets
from headrace.runtime.verify.source_tables import topic_form
from headrace.runtime.verify.table_comparison import Compared, TableComparison
from headrace.runtime.verify.table_verifier import Clock, Difference, cell_text
from headrace.service import checked_connector
from headrace_app import composition
from headrace_app.command_events import CommandEvents

DESCRIPTION = """\
Compares the tables of a connector's source database with their tables in the lake, while both change. Prints the rows
that differ, with table, key and columns. Prints values of cells with --show-values only.

The command reads each side once. It reads differing rows again until they are equal, or proven different: the lake must
have passed the position at which the source was read. A proof requires that the source connector confirms its progress.
If it does not (Debezium is stopped, an idle database has no heartbeat, it is Oracle), the output says so after
--wait seconds. Of a history (insert.mode=insert) it compares the last state of each key, and never repairs it.
"""
EPILOG = """\
examples:
  headrace verify worker.properties shop.json
  headrace verify worker.properties shop.json --table public.orders --show-values
  headrace verify worker.properties shop.json --table public.orders --repair

--repair reads only the differing rows again and writes them as changes without a position, at the current offset of the
topic: what the connector applies later wins. The connector may run at the same time. If its task always commits first,
the command pauses the connector for the write and resumes it, through the REST API at the worker file's listeners.

exit status: 0 equal, or all differences repaired; 1 differences; 2 could not compare (usage, configuration, a system
that does not answer)
"""

CLOCK = Clock(time.monotonic, time.sleep)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "connector", type=Path, metavar="CONNECTOR.json", help="file of the connector, as it was created"
    )
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="SCHEMA.TABLE",
        help="compare only this source table (or topic); may be repeated",
    )
    parser.add_argument("--repair", action="store_true", help="write the differing rows again, then compare them")
    parser.add_argument("--show-values", action="store_true", help="also print the values of differing cells")
    parser.add_argument(
        "--wait",
        type=float,
        default=180.0,
        metavar="SECONDS",
        help="time for the lake to pass a position (default: %(default)g)",
    )


@dataclass(frozen=True, slots=True)
class VerifyArguments:
    """The arguments of the command line."""

    connector: Path
    tables: Sequence[str] = ()
    repair: bool = False
    show_values: bool = False
    wait: float = 180.0


def verify(config: WorkerConfig, arguments: VerifyArguments, out: TextIO = sys.stdout, err: TextIO = sys.stderr) -> int:
    """Compare the connector's tables, and return the exit status. Raises HeadraceError if that is not possible."""
    connector = checked_connector(config, arguments.connector)
    if arguments.repair and connector.tables.history:
        raise ConfigError(
            "--repair: a history (insert.mode=insert) contains the events that arrived and is never repaired; compare "
            "without --repair, and fill a table that differs with headrace resnapshot"
        )
    events = CommandEvents(connector.name, "headrace verify --repair")
    try:
        return compare(config, connector, arguments, events, out, err)
    finally:
        events.write(partial(composition.status_topic, config), err)


def compare(
    config: WorkerConfig,
    connector: SinkConnectorConfig,
    arguments: VerifyArguments,
    events: CommandEvents,
    out: TextIO,
    err: TextIO,
) -> int:
    """Compare, and return the exit status; each repaired table is one of the ``events``. Raises HeadraceError."""
    report = Report(out, err, show_values=arguments.show_values)
    with tempfile.TemporaryDirectory(prefix="headrace-verify-") as folder, asyncio.Runner() as runner:
        verification = Verification(config, connector, arguments, report, events, runner, Path(folder))
        try:
            verification.run()
        finally:
            verification.close()
    return report.finish()


class Verification:
    """One run over the tables of a connector."""

    def __init__(
        self,
        config: WorkerConfig,
        connector: SinkConnectorConfig,
        arguments: VerifyArguments,
        report: Report,
        events: CommandEvents,
        runner: asyncio.Runner,
        folder: Path,
    ) -> None:
        """Create the parts without a request. Raises ConfigError."""
        self._lakehouse = composition.lakehouse(config)
        self._tables_of_topics = ConnectorTables(
            connector, lambda _, options: composition.row_source(options), self._lakehouse, arguments.tables
        )
        self._connector = connector
        self._arguments = arguments
        self._report = report
        self._events = events
        self._offsets = KafkaOffsets(composition.stores(config), connector, runner.run)
        self._comparison = TableComparison(
            self._tables_of_topics,
            self._offsets,
            CLOCK,
            folder,
            report,
            timeout=arguments.wait,
            keep_values=arguments.show_values,
            repairs=arguments.repair,
            paused=connector_rest(config, connector.name, CLOCK).paused,
        )

    def run(self) -> None:
        """Compare table by table. An error of a table does not stop the comparison of the others."""
        self._tables_of_topics.check()
        for topic, table, source in self._tables():
            self._report.begin(f"{table.schema}.{table.table}")
            try:
                compared = self._comparison.run(topic, table, source)
            except HeadraceError as error:
                self._report.failed(str(error))
            else:
                self._report.end(compared)
            finally:
                if repaired := self._report.repaired:
                    name = self._tables_of_topics.transformed.name(topic, table)
                    self._events.add(Kind.ROWS_REPAIRED, f"{repaired:,} row(s)", name)

    def close(self) -> None:
        """Close Spark and the database connections."""
        self._tables_of_topics.close()
        self._lakehouse.close()

    def _tables(self) -> list[tuple[str, TableId, TableSource]]:
        """Return topics, source tables and databases to compare. Raises ConfigError for an unknown ``--table``."""
        topics = self._offsets.topics(self._connector.framework.topics.whole_names)
        selected = set(self._arguments.tables)
        # Each lake table is opened for its sources: first those of the topics that --table names.
        tables_of_topics: list[tuple[str, TableId, TableSource]] = []
        for topic in sorted(topics, key=lambda topic: not any(topic.endswith(topic_form(name)) for name in selected)):
            tables_of_topics += [(topic, *table) for table in self._tables_of_topics.of(topic)]
            if selected and selected <= set().union(*(_names(*table[:2]) for table in tables_of_topics)):
                break
        for name in self._arguments.tables:
            if not any(name in _names(topic, table) for topic, table, _ in tables_of_topics):
                names = ", ".join(f"{table.schema}.{table.table}" for _, table, _ in tables_of_topics) or "none"
                raise ConfigError(f"--table {name}: the connector has no such table; it has: {names}")
        return [table for table in tables_of_topics if not selected or selected & _names(*table[:2])]


def _names(topic: str, table: TableId) -> set[str]:
    return {topic, f"{table.schema}.{table.table}"}


# -- report ---------------------------------------------------------------------------------------------------------

EQUAL, DIFFERENT, NOT_COMPARED = 0, 1, 2

_REMARKS = {
    Verdict.DIFFERENT: "",
    Verdict.UNPROVEN: " (not proven: the lake did not pass the source's position in time)",
    Verdict.UNSETTLED: " (not decided: the row changed at every comparison; compare again)",
}


class Report:
    """Prints and counts; ``finish`` returns the exit status."""

    def __init__(self, out: TextIO, err: TextIO, *, show_values: bool = False) -> None:
        self._out = out
        self._err = err
        self._live = err.isatty()
        self._show_values = show_values
        self._table = ""
        self._here: Counter[str] = Counter()
        self._all: Counter[str] = Counter()

    def begin(self, table: str) -> None:
        """Begin the comparison of a table."""
        self._table = table
        self._here.clear()

    def progress(self, side: str, rows: int) -> None:
        """Print the number of rows of a side that have been read."""
        if self._live:
            self._err.write(f"\r{self._table}: {rows:,} rows of the {side} read\x1b[K")
            self._err.flush()

    def on_difference(self, difference: Difference) -> None:
        """Print and count a difference; a row that a later change explains is only counted."""
        if difference.verdict is Verdict.EXPLAINED:
            self._here["explained"] += 1
            return
        self._here["different"] += 1
        self._print(f"{self._table} {_key(difference)}: {_what(difference)}{_REMARKS[difference.verdict]}")
        for column, (source, lake) in difference.values.items() if self._show_values else ():
            self._print(f"    {column}: source {source}, lake {lake}")

    @property
    def repaired(self) -> int:
        """The repaired rows of the table."""
        return self._here["repaired"]

    def on_repair(self, difference: Difference) -> None:
        """Print and count a repaired difference."""
        self._here["repaired"] += 1
        self._print(f"{self._table} {_key(difference)}: repaired")

    def failed(self, reason: str) -> None:
        """Print that the table could not be compared."""
        self._here["failed"] = 1
        self._print(f"{self._table}: not compared: {reason}")
        self._all.update(self._here)

    def end(self, compared: Compared) -> None:
        """Print the result of the table's comparison."""
        if compared.left_out:
            self._print(
                f"{self._table}: {compared.left_out:,} row(s) that only the source has are not repaired, because the "
                f"connector's transforms make {', '.join(compared.changed)}; resnapshot the table (headrace resnapshot)"
            )
        left = self._here["different"] - self._here["repaired"]
        verdict = f"{left:,} differ" if left else "equal"
        notes = [f"{self._here[name]:,} {name}" for name in ("repaired", "explained") if self._here[name]]
        for columns, why in (
            (compared.only_in_lake, "the source lacks them"),
            (compared.changed, "transforms change them"),
        ):
            if columns:
                notes.append(f"not compared, because {why}: {', '.join(columns)}")
        self._print(f"{self._table}: {compared.rows:,} rows, {verdict}" + (f" ({'; '.join(notes)})" if notes else ""))
        self._all.update(self._here)
        self._all["tables"] += 1

    def finish(self) -> int:
        """Return the exit status."""
        if self._all["failed"]:
            return NOT_COMPARED
        if not self._all["tables"]:
            self._print("no tables: none of the connector's topics exists yet")
            return NOT_COMPARED
        return DIFFERENT if self._all["different"] > self._all["repaired"] else EQUAL

    def _print(self, line: str) -> None:
        if self._live:
            self._err.write("\r\x1b[K")
            self._err.flush()
        print(line, file=self._out, flush=True)


def _key(difference: Difference) -> str:
    return ", ".join(f"{name}={cell_text(difference.key[name][0])}" for name in difference.key.column_names)


def _what(difference: Difference) -> str:
    if difference.where is Where.BOTH:
        return f"{', '.join(difference.columns)} {'differs' if len(difference.columns) == 1 else 'differ'}"
    if difference.where is Where.TWICE:
        return f"stored {difference.where}; remove one of the rows by hand"
    return f"only in the {difference.where}"
