"""``headrace status``: the tables of all connectors, worst first, over the REST API."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TextIO

from headrace.core.connect.lifecycle import State
from headrace.core.connect.problems import age_text, has_failed_tables, parts, problems
from headrace.core.model.errors import ConfigError, RestError
from headrace.rest import client
from headrace.rest.client import ConnectClient, Credentials

DESCRIPTION = """\
Prints the lake tables of all connectors and workers, over the REST API of any worker: failed ones first, then those
that are retried, then those that are behind their source the most. Connectors and tasks that have failed, and
connectors without tables, have lines as well. The causes follow.

columns:
  STATE        RUNNING; RETRYING: the cause may pass, and the write is repeated; FAILED: needs an operator; PAUSED
  BEHIND       age of the oldest change that was read and is not in the table; - for a table that is not read
  WAITING      changes that were read and are not in the table
  LAST COMMIT  time of the last commit of the table since its task started
"""
EPILOG = """\
examples:
  headrace status                      all connectors of the worker on this machine
  headrace status shop                 one connector
  headrace status --json | jq '.tables[] | select(.state == "FAILED")'
  HEADRACE_TOKEN=... headrace status --url https://connect.example.com --ca ca.pem

environment: HEADRACE_URL (--url), HEADRACE_USER (--user), HEADRACE_PASSWORD, HEADRACE_TOKEN (bearer token)

After the cause of a failed table is gone, restart it: curl -X POST $HEADRACE_URL/connectors/shop/tables/TABLE/restart
Stop one table and continue it later: curl -X PUT $HEADRACE_URL/connectors/shop/tables/TABLE/pause (or .../resume)
All that has failed: curl -X POST "$HEADRACE_URL/connectors/shop/restart?includeTasks=true&onlyFailed=true"

exit status: 0 no connector, task or table has failed; 1 something has failed; 2 the command could not work (usage, a
worker that does not answer, missing permission)
"""
FAILED = 1
_HEAD = ("STATE", "CONNECTOR", "TASK", "TABLE", "BEHIND", "WAITING", "LAST COMMIT")
_NONE = "-"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StatusArguments:
    """The arguments of the command line; without ``connectors`` all are printed."""

    connectors: Sequence[str] = ()
    as_json: bool = False
    url: str = client.DEFAULT_URL
    credentials: Credentials = Credentials()  # noqa: RUF009 - frozen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("connectors", nargs="*", metavar="CONNECTOR", help="only these connectors (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON: connectors by name, and tables")
    client.add_arguments(parser)


def arguments(options: argparse.Namespace) -> StatusArguments:
    """Return the arguments from the command line and the environment."""
    return StatusArguments(options.connectors, options.json, client.url_of(options), client.credentials_of(options))


def status(given: StatusArguments, out: TextIO | None = None) -> int:
    """Print the tables. Return the exit status. Raises ConfigError and RestError."""
    out = out or sys.stdout
    connectors, tables = _fetch(given)
    if given.as_json:
        print(json.dumps({"connectors": connectors, "tables": tables}, indent=2, ensure_ascii=False), file=out)
    else:
        rows = [*_rows_of_connectors(connectors, tables), *map(_row, tables)]
        widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
        for row in (_HEAD, *rows):
            print("  ".join(map(str.ljust, row, widths)).rstrip(), file=out)
        causes = list(map(str, problems(connectors, tables)))
        for line in ([""] if causes else []) + causes:
            print(line, file=out)
    states = [table["state"] for table in tables]
    for _, part in parts(connectors):
        states.append(part["state"])
    return FAILED if State.FAILED in states else 0


def _fetch(given: StatusArguments) -> tuple[dict[str, Json], list[Json]]:
    """Return the statuses of the connectors by name, and their tables."""
    worker = ConnectClient(given.url, given.credentials)
    answer = worker.get("/connectors", {"expand": "status"})
    try:
        tables = worker.get("/tables")
    except RestError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise ConfigError(
            f"{given.url}: does not know GET /tables: it is a worker of Kafka Connect, or of an earlier release of "
            "Headrace; set --url to a worker of this release"
        ) from error
    try:
        connectors = {name: entry["status"] for name, entry in sorted(answer.items())}
        if unknown := [name for name in given.connectors if name not in connectors]:
            names = ", ".join(connectors) or "none"
            raise ConfigError(f"{given.url}: has no connector {', '.join(unknown)}; its connectors: {names}")
        wanted = given.connectors or connectors
        connectors = {name: status for name, status in connectors.items() if name in wanted}
        return connectors, [table for table in tables if table["connector"] in wanted]
    except (AttributeError, KeyError, TypeError) as error:
        raise ConfigError("--url: the answer is not that of a worker of Headrace; set it to a worker") from error


def _rows_of_connectors(connectors: Mapping[str, Json], tables: Sequence[Json]) -> Iterator[Sequence[str]]:
    """Yield a row for each connector or task that has failed, and for each connector without tables."""
    with_tables = {table["connector"] for table in tables}
    failed, others = [], []
    for (name, task), part in parts(connectors):
        row = (part["state"], name, task or _NONE, *(_NONE,) * 4)
        if part["state"] == State.FAILED and not has_failed_tables(part):
            failed.append(row)
        elif not task and name not in with_tables:
            others.append(row)
    yield from (*failed, *others)


def _row(table: Json) -> Sequence[str]:
    freshness, last = table["freshness_seconds"], table.get("last_batch")
    return (
        table["state"],
        table["connector"],
        str(table["task"]),
        table["table"],
        _NONE if freshness is None else age_text(freshness),
        str(table["waiting"]["events"]),
        _NONE if last is None else last["committed"],
    )
