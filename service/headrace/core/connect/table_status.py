"""The states of a task's tables, as a status shows them: of those that do not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.core.connect.lifecycle import TableState


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table that is retried or has failed. Times in seconds since the epoch; ``trace`` is Connect-shaped."""

    table: str
    state: TableState
    trace: str
    since: float
    next_attempt: float | None = None


def table_statuses(document: Sequence[Mapping[str, Any]]) -> tuple[TableStatus, ...]:
    """The statuses in a document of ``tables_document``."""
    return tuple(
        TableStatus(
            each["table"],
            TableState(each["state"]),
            each["trace"],
            _seconds(each["since"]),
            _seconds(each["next_attempt"]) if "next_attempt" in each else None,
        )
        for each in document
    )


def tables_document(statuses: Sequence[TableStatus]) -> list[Mapping[str, Any]]:
    """Statuses as JSON, in the status topic and in REST answers; times are ISO 8601 in UTC."""
    return [
        {
            "table": each.table,
            "state": each.state,
            "trace": each.trace,
            "since": _text(each.since),
            **({} if each.next_attempt is None else {"next_attempt": _text(each.next_attempt)}),
        }
        for each in statuses
    ]


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
