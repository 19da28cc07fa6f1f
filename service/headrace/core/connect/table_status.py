"""The states of a task's tables, as a status shows them: of those that do not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.core.connect.lifecycle import TableState


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table that is retried or has failed. Times in seconds since the epoch; ``trace`` is Connect-shaped.

    ``topics`` are those of its changes; earlier releases have stored none.
    """

    table: str
    state: TableState
    trace: str
    since: float
    next_attempt: float | None = None
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last batch of a table that became durable. ``seconds`` is what its write took.

    ``committed`` is the time of its commit, ``source_time`` that of its newest change at the source, None if unknown;
    both in seconds since the epoch.
    """

    events: int
    bytes: int
    seconds: float
    committed: float
    source_time: float | None


@dataclass(frozen=True, slots=True)
class TableReport:
    """What a task knows of one of its tables.

    ``waiting_events`` and ``waiting_bytes`` are read and not durable. ``oldest`` is when the oldest of them was read,
    ``oldest_source_time`` when it was committed at the source, in seconds since the epoch. ``last_error`` stays after
    the table runs again.
    """

    table: str
    state: TableState
    topics: Sequence[str]
    waiting_events: int
    waiting_bytes: int
    oldest: float | None
    oldest_source_time: float | None
    last_batch: LastBatch | None
    last_error: TableStatus | None

    def document(self, task: int, now: float, waits_for: str | None = None) -> Mapping[str, Any]:
        """The report as JSON. ``freshness_seconds`` is the age of the oldest change that the table does not have.

        ``waits_for`` is what the task waits for before it writes. A table has it if changes wait.

        It is null if nobody knows what the topics contain: for a table whose topics are not read, and for one that has
        failed and has not read again what it lacks.
        """
        behind = self.oldest_source_time or self.oldest
        freshness = 0.0 if behind is None else round(max(now - behind, 0.0), 3)
        is_known = self.state is TableState.RUNNING or (self.state is TableState.RETRYING and behind is not None)
        answer: dict[str, Any] = {
            "table": self.table,
            "task": task,
            "state": self.state,
            "topics": list(self.topics),
            "freshness_seconds": freshness if is_known else None,
            "waiting": {"events": self.waiting_events, "bytes": self.waiting_bytes},
        }
        if waits_for is not None and self.waiting_events:
            answer["waits_for"] = waits_for
        if self.last_batch is not None:
            batch = self.last_batch
            answer["last_batch"] = {
                "events": batch.events,
                "bytes": batch.bytes,
                "seconds": round(batch.seconds, 3),
                "committed": _text(batch.committed),
                **({} if batch.source_time is None else {"source_time": _text(batch.source_time)}),
            }
        if self.last_error is not None:
            (error,) = tables_document([self.last_error])
            answer["last_error"] = {name: value for name, value in error.items() if name not in ("table", "topics")}
        return answer


def report_of(status: TableStatus) -> TableReport:
    """Return the report on a table of which only its status is known, because its task does not run."""
    return TableReport(status.table, status.state, status.topics, 0, 0, None, None, None, status)


def worst_first(documents: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Sort documents of tables with their ``connector``: failed ones, those that are retried, then the least fresh."""
    ranks = {TableState.FAILED: 0, TableState.RETRYING: 1}

    def order(document: Mapping[str, Any]) -> tuple[int, float, str, str]:
        freshness = document["freshness_seconds"] or 0.0
        return ranks.get(document["state"], 2), -freshness, document["connector"], document["table"]

    return sorted(documents, key=order)


def table_statuses(document: Sequence[Mapping[str, Any]]) -> tuple[TableStatus, ...]:
    """The statuses in a document of ``tables_document``."""
    return tuple(
        TableStatus(
            each["table"],
            TableState(each["state"]),
            each["trace"],
            _seconds(each["since"]),
            _seconds(each["next_attempt"]) if "next_attempt" in each else None,
            tuple(each.get("topics", ())),
        )
        for each in document
    )


def tables_document(statuses: Sequence[TableStatus]) -> list[dict[str, Any]]:
    """Statuses as JSON, in the status topic and in REST answers; times are ISO 8601 in UTC."""
    return [
        {
            "table": each.table,
            "state": each.state,
            "trace": each.trace,
            "since": _text(each.since),
            **({} if each.next_attempt is None else {"next_attempt": _text(each.next_attempt)}),
            **({"topics": list(each.topics)} if each.topics else {}),
        }
        for each in statuses
    ]


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
