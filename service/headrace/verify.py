"""``headrace verify``: from a worker file and a connector file to what differs between source and lake.

Wires the parts as ``service.py`` does for a worker, but reads: nothing is written unless ``--repair`` asks for it.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import pyarrow as pa

from headrace.config import SinkConnectorConfig, WorkerConfig
from headrace.core.model.errors import ConfigError, HeadraceError
from headrace.core.model.events import TableId
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.core.tables.naming import TableNaming, table_of_topic
from headrace.core.verify.verification import Verdict, comparison
from headrace.ports import Lakehouse, Stores, TableSource, TopicPartition
from headrace.runtime.clock import now
from headrace.runtime.task.task_factory import sink_task_options
from headrace.runtime.verify.connector_rest import ConnectorRest, reachable
from headrace.runtime.verify.lake_progress import LakeProgress
from headrace.runtime.verify.table_repair import Sink, TableRepair
from headrace.runtime.verify.table_verifier import (
    KEYS_AT_ONCE,
    Clock,
    Difference,
    TableVerifier,
    VerifiedTable,
    VerifyOptions,
    key_digests,
)
from headrace.runtime.verify.verify_report import Report
from headrace.runtime.worker import plugins
from headrace.service import checked_connector

DESCRIPTION = """\
Compares the tables of a connector's source database with their tables in the lake, while both change. Prints the rows
that differ, with table, key and columns. Prints values of cells with --show-values only.

The command reads each side once. It reads differing rows again until they are equal, or proven different: the lake must
have passed the position at which the source was read. A proof requires that the source connector confirms its progress.
If it does not (Debezium is stopped, or an idle database has no heartbeat), the output says so after --wait seconds.
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
    """The command's own arguments."""
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
    """What the command line asks for."""

    connector: Path
    tables: Sequence[str] = ()
    repair: bool = False
    show_values: bool = False
    wait: float = 180.0


def verify(config: WorkerConfig, arguments: VerifyArguments, out: TextIO = sys.stdout, err: TextIO = sys.stderr) -> int:
    """Compare the connector's tables; the exit status. Raises HeadraceError when that is not possible."""
    connector = checked_connector(config, arguments.connector)
    report = Report(out, err, show_values=arguments.show_values)
    with tempfile.TemporaryDirectory(prefix="headrace-verify-") as folder, asyncio.Runner() as runner:
        verification = Verification(config, connector, arguments, report, runner, Path(folder))
        try:
            verification.run()
        finally:
            verification.close()
    return report.finish()


class KafkaOffsets:
    """What Kafka says, asked from a program without a loop of its own."""

    def __init__(self, stores: Stores, connector: SinkConnectorConfig, runner: asyncio.Runner) -> None:
        self._topics = stores.topic_offsets(connector.name, connector.kafka)
        self._groups = stores.group_offsets(connector.name, connector.kafka)
        self._group = connector.group_id
        self._runner = runner

    def topics(self, pattern: str) -> list[str]:
        """The topics whose whole name matches."""
        return sorted({place.topic for place in self._runner.run(self._topics.ends(pattern))})

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        """The next offset of every partition of the topic."""
        return self._runner.run(self._topics.ends(re.escape(topic)))

    def committed(self) -> Mapping[TopicPartition, int]:
        """The next offsets that the group has committed."""
        return self._runner.run(self._groups.committed(self._group))


class Verification:
    """One run over the tables of a connector."""

    def __init__(
        self,
        config: WorkerConfig,
        connector: SinkConnectorConfig,
        arguments: VerifyArguments,
        report: Report,
        runner: asyncio.Runner,
        folder: Path,
    ) -> None:
        """Make the parts; nothing is asked yet. Raises ConfigError."""
        self._databases = _databases(connector.reselect)
        self._connector = connector
        self._task = sink_task_options(connector)
        if self._task.tables.history:
            raise ConfigError("a history has a row for every event, so it equals no table of the source", "insert.mode")
        if self._task.transforms:
            raise ConfigError(
                "what transforms make equals no table of the source; name tables by collection.name.format instead",
                "transforms",
            )
        self._arguments = arguments
        self._report = report
        self._folder = folder
        host, port = config.listener()
        self._rest = ConnectorRest(reachable(host), port, connector.name, CLOCK)
        stores = plugins.load("stores", "standalone")(config.complete_properties())
        self._offsets = KafkaOffsets(stores, connector, runner)
        self._lakehouse: Lakehouse = plugins.load("lakehouses", "spark")(
            config.lake.warehouse, config.spark_properties()
        )

    def run(self) -> None:
        """Compare table by table. A table that cannot be compared does not keep the others from it."""
        for _, source in self._databases:
            source.check()
        for topic, table, source in self._tables():
            self._report.begin(f"{table.schema}.{table.table}")
            try:
                self._table(topic, table, source)
            except HeadraceError as error:
                self._report.failed(str(error))

    def close(self) -> None:
        """Let go of Spark and the database."""
        for _, source in self._databases:
            source.close()
        self._lakehouse.close()

    def _tables(self) -> list[tuple[str, TableId, TableSource]]:
        """The connector's topics, their source tables and databases. Raises ConfigError for a name that is no table."""
        wanted = self._connector.framework.topics
        names = "|".join(map(re.escape, wanted.names))
        topics = self._offsets.topics(wanted.pattern or names)
        found = [(topic, *place) for topic in topics if (place := self._place(topic))]
        asked = self._arguments.tables
        for name in asked:
            if not any(name in _names(topic, table) for topic, table, _ in found):
                known = ", ".join(f"{table.schema}.{table.table}" for _, table, _ in found) or "none"
                raise ConfigError(f"--table {name}: the connector has no such table; it has: {known}")
        return [each for each in found if not asked or set(asked) & _names(*each[:2])]

    def _place(self, topic: str) -> tuple[TableId, TableSource] | None:
        """The table of a topic, in the first database that may have it; None for topics that are no tables."""
        for database, source in self._databases:
            table = table_of_topic(topic, database.source_db or database.dbname)
            if table is not None and database.holds(table):
                return table, source
        return None

    def _table(self, topic: str, id: TableId, source: TableSource) -> None:
        table, name = self._opened(topic, id, source)
        verifier = self._verifier(table, topic)
        sink = Sink(self._task.connector, topic, name, self._task.pipeline, self._arguments.wait)
        repair = TableRepair(table, verifier, sink, self._offsets, CLOCK, now, self._rest.paused)
        for differences in _together(self._report.printed(verifier.differences())):
            if self._arguments.repair and repair.repair(differences):
                self._compare_again(topic, table, differences)
        self._report.end(verifier.rows, table.wanted.kept)

    def _opened(self, topic: str, id: TableId, source: TableSource) -> tuple[VerifiedTable, str]:
        catalog = source.catalog(id)
        if catalog is None:
            raise ConfigError(f"the database has no table {id.schema}.{id.table}")
        options = self._task
        name = TableNaming.name(options.naming, topic, id)
        lake = self._lakehouse.table(options.namespace, name, replace(options.tables, adopt=False))
        key_fields = options.envelope.key_fields or lake.key_fields() or tuple(part.name for part in catalog.key)
        told = source.schema(catalog)
        fields = tuple(each for each in told.fields if options.fields.wants(topic, each.name, key_fields))
        wanted = comparison(replace(told, fields=fields), lake.schema(), key_fields)
        return VerifiedTable(id, catalog, wanted, source, lake), f"{options.namespace}.{name}"

    def _verifier(self, table: VerifiedTable, topic: str) -> TableVerifier:
        progress = LakeProgress(table.source, self._offsets, topic, CLOCK.now, CLOCK.sleep)
        options = VerifyOptions(self._arguments.wait, self._task.envelope.position_epoch, self._arguments.show_values)
        return TableVerifier(table, progress, options, CLOCK, self._folder, self._report.progress)

    def _compare_again(self, topic: str, before: VerifiedTable, differences: Sequence[Difference]) -> None:
        """Against a table opened anew: the repair may have added columns."""
        table, _ = self._opened(topic, before.id, before.source)
        keys = pa.concat_tables([each.key for each in differences]).combine_chunks()
        settled = self._verifier(table, topic).compare(keys)
        left = {key for each in settled if each.verdict is not Verdict.EXPLAINED for key in key_digests(each.key)}
        for difference in differences:
            if left.isdisjoint(key_digests(difference.key)):
                self._report.repaired(difference)


def _databases(reselect: ReselectOptions) -> list[tuple[DatabaseOptions, TableSource]]:
    """The source databases, opened at their primaries. Raises ConfigError where there is none to compare with."""
    options = reselect.databases or ((reselect.database,) if reselect.database else ())
    if not options:
        raise ConfigError(
            "the connector has no database to compare with: set reselect.database.*", "reselect.database.hostname"
        )
    return [(each, _open_primary(each, reselect)) for each in options]


def _open_primary(database: DatabaseOptions, reselect: ReselectOptions) -> TableSource:
    """A standby may be behind the position that it is read at, so only the primary is asked."""
    own = replace(reselect, database=database, databases=(), read_from="primary")
    source = plugins.load("row_sources", database.type)(own)
    if not isinstance(source, TableSource):
        raise ConfigError(
            f"tables of a database of type {database.type} cannot be read whole yet, which comparing them takes",
            "reselect.database.type",
        )
    return source


def _names(topic: str, table: TableId) -> set[str]:
    return {topic, f"{table.schema}.{table.table}"}


def _together(differences: Iterator[Difference]) -> Iterator[list[Difference]]:
    """As many at a time as are repaired at a time."""
    some: list[Difference] = []
    for difference in differences:
        some.append(difference)
        if len(some) == KEYS_AT_ONCE:
            yield some
            some = []
    if some:
        yield some
