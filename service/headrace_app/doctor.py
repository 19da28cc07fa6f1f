"""``headrace doctor``: check the parts of a pipeline, and report what will go wrong.

Tests: ``tests/unit/app/test_doctor_command.py``, ``tests/integration/test_doctor_debezium.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TextIO

from headrace.config import WorkerConfig
from headrace.core.doctor.findings import Severity
from headrace.runtime.doctor import Diagnosis, Doctor
from headrace.runtime.worker.memory_plan import memory_plan
from headrace.service import checked_connector
from headrace_app import composition
from headrace_app.source_connector import read_source_connector

DESCRIPTION = """\
Checks a connector's topics, source database and lake, and prints what will go wrong, the worst first: the consequence,
the evidence, and the statement or setting to copy. It changes nothing at the source. Run it before the connector is
created, and when something is strange. The database is the one of reselect.database.*, PostgreSQL only; tables are
those that the topics are named after. It also checks the settings and the release of the source connector, if
source.connector.url or --debezium names it.

To try the lake, it creates a table headrace_doctor_... in the connector's namespace, writes to it, and drops it again.
"""
EPILOG = """\
examples:
  headrace doctor worker.properties shop.json
  headrace doctor worker.properties shop.json --debezium http://connect:8083/connectors/shop
  headrace doctor worker.properties shop.json --json | jq '.findings[] | select(.severity == "ERROR")'

A running worker answers GET /connectors/shop/doctor with the same.

exit status: 0 nothing found, or information only; 1 warnings; 2 errors, or the command could not work (usage,
configuration); 3 something could not be checked, and nothing worse than a warning was found elsewhere
"""
WARNINGS, ERRORS, NOT_CHECKED = 1, 2, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "connector", type=Path, metavar="CONNECTOR.json", help="file of the connector, as it will be created"
    )
    parser.add_argument(
        "--debezium",
        metavar="URL_OR_FILE",
        help="the source connector: http://host:port/connectors/NAME of its Connect worker, or a file with its JSON "
        "(default: as source.connector.url in the connector file)",
    )
    parser.add_argument("--no-lake", action="store_true", help="try no table in the lake, so that Spark does not start")
    parser.add_argument("--json", action="store_true", help="print JSON: findings, and what could not be checked")


def doctor(
    config: WorkerConfig,
    connector: Path,
    *,
    debezium: str | None,
    try_lake: bool,
    as_json: bool,
    out: TextIO | None = None,
) -> int:
    """Print the diagnosis, and return the exit status. Raises ConfigError for an invalid connector.

    ``debezium`` is where the source connector is read from, in place of ``source.connector.url``: a URL or a file.
    With ``try_lake`` a table is created in the lake and dropped again.
    """
    out = out or sys.stdout
    checked = checked_connector(config, connector)
    print(f"doctor: checking the topics, the database and the lake of {checked.name}", file=sys.stderr)
    lakehouse = composition.small_lakehouse(config) if try_lake else None
    memory = memory_plan(config.lake.memory, composition.lakehouse(config).memory())
    examined = Doctor(
        composition.stores(config),
        lambda _, options: composition.row_source(options),
        partial(read_source_connector, debezium or None),
        lakehouse,
        memory,
    )
    try:
        found = asyncio.run(examined.diagnose(checked))
    finally:
        if lakehouse is not None:
            lakehouse.close()
    if as_json:
        print(json.dumps(found.document(), indent=2), file=out)
    else:
        for line in lines(found):
            print(line, file=out)
    return exit_status(found)


def exit_status(found: Diagnosis) -> int:
    """Return the exit status that ``EPILOG`` documents."""
    if found.count(Severity.ERROR):
        return ERRORS
    return NOT_CHECKED if found.not_checked else WARNINGS if found.count(Severity.WARNING) else 0


def lines(found: Diagnosis) -> Iterator[str]:
    """Yield the diagnosis for a terminal."""
    for finding in found.findings:
        yield f"{finding.severity.name}: {finding.subject} [{finding.rule}]"
        yield f"  {finding.consequence}"
        yield f"  seen: {finding.evidence}"
        yield f"  do:   {finding.remedy}"
        yield ""
    for reason in found.not_checked:
        yield f"not checked: {reason}"
    if found.findings:
        counts = f"errors: {found.count(Severity.ERROR)}, warnings: {found.count(Severity.WARNING)}"
        informations = found.count(Severity.INFORMATION)
        yield f"{counts}, information: {informations}" if informations else counts
    else:
        yield "nothing found"
