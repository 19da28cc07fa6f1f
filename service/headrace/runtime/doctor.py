"""Check the parts of a connector's pipeline, for ``headrace doctor`` and for the REST API. Nothing is changed.

Tests: ``tests/rest/test_doctor.py``, ``tests/integration/test_doctor_postgres.py``,
``tests/integration/test_doctor_topics.py``, ``tests/integration/test_doctor_debezium.py``.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from headrace.config import SinkConnectorConfig
from headrace.config.source_connector import SourceConnectorSettings
from headrace.core.doctor import clocks, debezium, lake, machine, topics, versions
from headrace.core.doctor.debezium import SinkOptions
from headrace.core.doctor.findings import Finding, Severity, by_harm
from headrace.core.doctor.machine import Machine
from headrace.core.doctor.source_connector import SourceConnector, release
from headrace.core.doctor.topics import TopicDescription
from headrace.core.doctor.versions import KAFKA, PYTHON, Software
from headrace.core.model.errors import HeadraceError
from headrace.core.model.events import TableId
from headrace.core.reselect.options import DatabaseOptions
from headrace.ports import ClockedSource, ExaminedSource, Lakehouse, OpenRowSource, RowSource, Stores, TableSource
from headrace.runtime.task.task_options import sink_task_options, table_options
from headrace.runtime.verify.source_tables import SourceTables
from headrace.runtime.worker.memory_plan import MemoryPlan

ReadSourceConnector = Callable[[SourceConnectorSettings], SourceConnector | None]
"""Returns the source connector, None if none is named. Raises HeadraceError if it cannot be read."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, the worst first, and what could not be checked, with the reason."""

    findings: Sequence[Finding]
    not_checked: Sequence[str]

    def document(self) -> Mapping[str, Any]:
        """Return the diagnosis as JSON."""
        findings = [{**asdict(finding), "severity": finding.severity.name} for finding in self.findings]
        return {"findings": findings, "not_checked": list(self.not_checked)}

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


class Doctor:
    """``stores`` are those of the worker's Kafka, ``now`` is the clock of this machine, in seconds since the epoch.

    Without a ``lakehouse`` no table is tried, and without ``memory``, the plan of the worker, no machine is checked.
    """

    def __init__(
        self,
        stores: Stores,
        open_source: OpenRowSource,
        read_source_connector: ReadSourceConnector,
        lakehouse: Lakehouse | None = None,
        memory: MemoryPlan | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._memory = memory
        self._now = now
        self._stores = stores
        self._open_source = open_source
        self._read_source_connector = read_source_connector
        self._lakehouse = lakehouse

    async def diagnose(self, connector: SinkConnectorConfig) -> Diagnosis:
        """Check what the connector names.

        A part that does not answer is reported in the diagnosis, not raised.
        """
        findings: list[Finding] = []
        not_checked: list[str] = []
        described: Sequence[TopicDescription] = ()
        reselect, wanted = connector.reselect, connector.framework.topics
        databases = reselect.databases or ((reselect.database,) if reselect.database else ())
        try:
            cluster = self._stores.topic_offsets(connector.name, connector.kafka)
            described = await cluster.describe(wanted.whole_names)
            groups = self._stores.group_offsets(connector.name, connector.kafka)
            committed = await groups.committed(connector.group_id)
            findings += topics.findings(described, wanted.names, committed, reads_database=bool(databases))
            state = await cluster.cluster(self._now)
            findings += versions.findings([Software(KAFKA, state.release)])
            if state.clock is not None:
                findings += clocks.kafka_findings(state.clock)
            else:
                not_checked.append(f"clock of Kafka: {state.no_clock}")
        except HeadraceError as error:
            not_checked.append(f"topics: {error}")
        try:
            source = await asyncio.to_thread(self._read_source_connector, connector.source_connector)
            if source is not None:
                findings += debezium.findings(source, _sink_options(connector))
                if release(source.version) is None:
                    not_checked.append(
                        f"debezium: known defects: {source.version or 'no version'} of {source.name} is no release"
                    )
        except HeadraceError as error:
            not_checked.append(f"debezium: {error}")
        if not databases:
            not_checked.append("source: the connector names no database; set reselect.database.*")
        names = [topic.topic for topic in described]
        for database in databases:
            try:
                of_source = await asyncio.to_thread(self._look_at_source, connector, database, names)
                findings += of_source.findings
                not_checked += of_source.not_checked
            except HeadraceError as error:
                not_checked.append(f"source: {error}")
        try:
            findings += await asyncio.to_thread(self._look_at_lake, connector)
        except HeadraceError as error:
            not_checked.append(f"lake: {error}")
        if self._memory is not None:
            findings += machine.findings(read_machine(self._memory))
        findings += versions.findings([Software(PYTHON, platform.python_version())])
        return Diagnosis(by_harm(findings), not_checked)

    def _look_at_lake(self, connector: SinkConnectorConfig) -> Sequence[Finding]:
        """Return the findings of the lake. Raises HeadraceError if it does not answer."""
        tables, trial = connector.tables, None
        if self._lakehouse is not None:
            trial = self._lakehouse.try_out(tables.namespace, table_options(tables), tables.readers)
        version = tables.format_version if tables.format == "iceberg" else None
        return list(lake.findings(trial, version, tables.readers))

    def _look_at_source(
        self, connector: SinkConnectorConfig, database: DatabaseOptions, names: Sequence[str]
    ) -> Diagnosis:
        """Return the diagnosis of a database. Raises HeadraceError if it does not answer."""
        alone = replace(connector.reselect, database=database, databases=())
        source = self._open_source(database, alone)
        try:
            source.check()
            findings: list[Finding] = []
            if isinstance(source, ClockedSource):
                findings += clocks.source_findings(source.clock(self._now))
            if not isinstance(source, ExaminedSource):
                return Diagnosis(
                    findings, [f"source: of reselect.database.type={database.type} only the clock is checked"]
                )
            findings += source.findings(_tables(connector, database, source, names))
            return Diagnosis(findings, [])
        finally:
            source.close()


def _sink_options(connector: SinkConnectorConfig) -> SinkOptions:
    source, wanted = connector.source, connector.framework.topics
    return SinkOptions(
        source.placeholder, source.skipped_operations, source.modes, frozenset(wanted.names), wanted.pattern
    )


def read_machine(memory: MemoryPlan) -> Machine:
    """Return the state of this machine, with the worker's plan for its memory."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or tempfile.gettempdir()
    return Machine(memory.needed, memory.available, str(memory), folder, shutil.disk_usage(folder).free)


def _tables(
    connector: SinkConnectorConfig, database: DatabaseOptions, source: RowSource, names: Sequence[str]
) -> list[TableId]:
    """Return the tables of this database that the topics have by their names."""
    if not isinstance(source, TableSource):
        return []
    tables = SourceTables([(database, source)], sink_task_options(connector).naming.name, lambda _: ())
    return list(dict.fromkeys(table for name in names for table, _ in tables.of(name)))
