"""``headrace doctor``: look at the parts of a pipeline, and say what will go wrong."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TextIO

from headrace.config import SinkConnectorConfig, WorkerConfig
from headrace.core.doctor import postgresql
from headrace.core.doctor.findings import Finding, Severity, by_harm
from headrace.core.model.errors import HeadraceError
from headrace.core.model.events import TableId
from headrace.core.reselect.options import DatabaseOptions
from headrace.ports import RowSource, SurveyedSource, TableSource
from headrace.runtime.task.task_factory import sink_task_options
from headrace.runtime.verify.source_tables import SourceTables
from headrace.service import checked_connector
from headrace_app import composition
from headrace_app.kafka_offsets import KafkaOffsets

DESCRIPTION = """\
Looks at a connector's source database, and prints what will go wrong, the worst first: what will happen, what was seen,
and the statement or setting to copy. Nothing is changed. Run it before the connector is created, and when something is
strange. The database is the one of reselect.database.*, PostgreSQL only; tables are those of the connector's topics.
"""
EPILOG = """\
examples:
  headrace doctor worker.properties shop.json
  headrace doctor worker.properties shop.json --json | jq '.findings[] | select(.severity == "ERROR")'

exit status: 0 nothing found; 1 warnings; 2 errors, or the command could not work (usage, configuration); 3 something
could not be looked at, and nothing worse than a warning was found elsewhere
"""
WARNINGS, ERRORS, NOT_LOOKED_AT = 1, 2, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "connector", type=Path, metavar="CONNECTOR.json", help="file of the connector, as it will be created"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: findings, and what could not be looked at")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, and what could not be looked at, with the reason."""

    findings: Sequence[Finding]
    not_looked_at: Sequence[str]

    @property
    def exit_status(self) -> int:
        if any(finding.severity is Severity.ERROR for finding in self.findings):
            return ERRORS
        return NOT_LOOKED_AT if self.not_looked_at else WARNINGS if self.findings else 0


def doctor(
    config: WorkerConfig, connector: Path, *, as_json: bool, out: TextIO | None = None, err: TextIO | None = None
) -> int:
    """Print the diagnosis, and return the exit status. Raises ConfigError for an invalid connector."""
    out, err = out or sys.stdout, err or sys.stderr
    found = _diagnose(config, checked_connector(config, connector), err)
    if as_json:
        findings = [{**asdict(finding), "severity": finding.severity.name} for finding in found.findings]
        print(json.dumps({"findings": findings, "not_looked_at": found.not_looked_at}, indent=2), file=out)
    else:
        for line in _lines(found):
            print(line, file=out)
    return found.exit_status


def _diagnose(config: WorkerConfig, connector: SinkConnectorConfig, err: TextIO) -> Diagnosis:
    findings: list[Finding] = []
    not_looked_at: list[str] = []
    print("doctor: reading the topics of the connector", file=err)
    try:
        with asyncio.Runner() as runner:
            topics = KafkaOffsets(composition.stores(config), connector, runner).topics()
    except HeadraceError as error:
        topics = []
        not_looked_at.append(f"tables: {error}")
    reselect = connector.reselect
    databases = reselect.databases or ((reselect.database,) if reselect.database else ())
    if not databases:
        not_looked_at.append("source: the connector names no database; set reselect.database.*")
    for database in databases:
        source = composition.row_source(replace(reselect, database=database, databases=(), read_from="primary"))
        try:
            if not isinstance(source, SurveyedSource):
                not_looked_at.append(f"source: reselect.database.type {database.type} is not looked at")
                continue
            print(f"doctor: looking at {database.dbname} and {len(topics)} topics", file=err)
            source.check()
            tables = _tables(connector, database, source, topics)
            findings += postgresql.findings(source.survey(tables))
        except HeadraceError as error:
            not_looked_at.append(f"source: {error}")
        finally:
            source.close()
    return Diagnosis(by_harm(findings), not_looked_at)


def _tables(
    connector: SinkConnectorConfig, database: DatabaseOptions, source: RowSource, topics: Sequence[str]
) -> list[TableId]:
    """Return the tables of this database that the topics have by their names."""
    if not isinstance(source, TableSource):
        return []
    tables = SourceTables([(database, source)], sink_task_options(connector).naming, lambda _: ())
    return list(dict.fromkeys(table for topic in topics for table, _ in tables.of(topic)))


def _lines(found: Diagnosis) -> Iterator[str]:
    for finding in found.findings:
        yield f"{finding.severity.name}: {finding.subject} [{finding.rule}]"
        yield f"  {finding.consequence}"
        yield f"  seen: {finding.evidence}"
        yield f"  do:   {finding.remedy}"
        yield ""
    for reason in found.not_looked_at:
        yield f"not looked at: {reason}"
    errors = sum(finding.severity is Severity.ERROR for finding in found.findings)
    yield f"{errors} errors, {len(found.findings) - errors} warnings" if found.findings else "nothing found"
