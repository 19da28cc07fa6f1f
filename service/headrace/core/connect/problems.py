"""What is wrong with connectors, tasks and tables, from the documents of the REST API. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.core.connect.lifecycle import TableState

Json = Mapping[str, Any]

DIFFERENT = "DIFFERENT"
"""What ``Problem.state`` is for rows that a verification has found: the table's own state does not change."""
_MAX_CAUSE = 300


class Problem(NamedTuple):
    """A connector, one of its tasks (a number), or one of its tables, that does not do its work.

    ``cause`` is the first line of its trace. ``state`` is "" if it only waits, ``since`` "" if that is unknown.
    """

    connector: str
    task: str
    table: str
    state: str
    since: str
    cause: str

    def __str__(self) -> str:
        where = f"task {self.connector}-{self.task}" if self.task else f"connector {self.connector}"
        table = f", table {self.table}" if self.table else ""
        since = f" since {self.since}" if self.since else ""
        return f"{where}{table}: " + (f"{self.state}{since}: " if self.state else "") + self.cause


def problems(connectors: Mapping[str, Json], tables: Sequence[Json]) -> Iterator[Problem]:
    """Yield the problems in ``/connectors/{name}/status`` of the connectors by name, and in ``/tables``."""
    for (name, task), part in parts(connectors):
        if part.get("waits_for"):
            yield Problem(name, task, "", "", "", f"waits for {part['waits_for']}")
        if part.get("trace") and not has_failed_tables(part):
            yield Problem(name, task, "", part["state"], "", headline(part["trace"]))
    for table in tables:
        error = table.get("last_error")
        if table["state"] in (TableState.FAILED, TableState.RETRYING) and error is not None:
            cause = headline(error["trace"])
            yield Problem(table["connector"], "", table["table"], table["state"], error["since"], cause)
        report = table.get("verification", {})
        if report.get("differing"):
            cause = f"{report['differing']:,} row(s) differ from the source"
            yield Problem(table["connector"], "", table["table"], DIFFERENT, report["ended"], cause)


def parts(connectors: Mapping[str, Json]) -> Iterator[tuple[tuple[str, str], Json]]:
    """Yield the connectors, and their tasks: name, number of the task, and status."""
    for name, status in connectors.items():
        yield (name, ""), status["connector"]
        for task in status["tasks"]:
            yield (name, str(task["id"])), task


def has_failed_tables(part: Json) -> bool:
    """Return whether a task that is shown as FAILED has failed tables, which are problems of their own."""
    return any(table["state"] == TableState.FAILED for table in part.get("tables", ()))


def headline(trace: str) -> str:
    """Return the first line of a trace."""
    line = trace.strip().partition("\n")[0]
    return line if len(line) <= _MAX_CAUSE else f"{line[:_MAX_CAUSE]}..."


def age_text(seconds: float) -> str:
    """Return an age in the unit that fits."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"
