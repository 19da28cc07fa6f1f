"""The state of the status topic (``connect.md`` section 18): connectors, tasks, active topics.

A status of a task contains the states of its tables that do not run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from headrace.core.connect.lifecycle import State, TableState
from headrace.core.connect.resnapshots import ResnapshotProgress, progress_document, resnapshot_progress
from headrace.core.connect.table_activity import LastBatch, TableDetails
from headrace.core.connect.table_load import LoadProgress
from headrace.core.model.instants import iso_text
from headrace.core.model.notes import Notes
from headrace.core.model.proof import VerificationReport


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table that is retried, has failed or is paused by itself. Times in seconds since the epoch.

    ``trace`` is Connect-shaped, and a sentence for a paused table. ``topics`` are those of its changes; earlier
    releases have stored none. With ``recreate`` the table was restarted with ``missing=recreate``, and has no durable
    batch since.
    """

    table: str
    state: TableState
    trace: str
    since: float
    next_attempt: float | None = None
    topics: tuple[str, ...] = ()
    recreate: bool = False


@dataclass(frozen=True, slots=True)
class TableReport:
    """A task's report on one of its tables.

    ``waiting_events`` and ``waiting_bytes`` are read and not durable. ``oldest`` is when the oldest of them was read,
    ``oldest_source_time`` when it was committed at the source, in seconds since the epoch. ``last_error`` stays after
    the table runs again. ``freshness_target`` is in seconds, None for a table without changes. ``load`` is the last one
    of this run of the task, None if no snapshot has sent rows. ``verification`` is None without ``verify.interval.ms``.
    ``details`` returns what only the report on this table alone has.
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
    freshness_target: float | None = None
    load: LoadProgress | None = None
    verification: VerificationReport | None = None
    details: Callable[[], TableDetails] = TableDetails

    def complete_document(self, task: int, now: float, waits_for: str | None = None) -> Mapping[str, Any]:
        """Return ``document`` with the details."""
        return {**self.document(task, now, waits_for), **self.details().document()}

    def document(self, task: int, now: float, waits_for: str | None = None) -> Mapping[str, Any]:
        """Return the report as JSON. ``waits_for`` is what the task waits for before it writes changes that wait.

        ``freshness_seconds`` is the age of the oldest change that the table does not have. It is null if that change
        may not have been read: the table's topics are not read, or the table has failed and its changes were not read
        again.
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
            **({} if self.freshness_target is None else {"freshness_target_seconds": self.freshness_target}),
            "waiting": {"events": self.waiting_events, "bytes": self.waiting_bytes},
        }
        if waits_for is not None and self.waiting_events:
            answer["waits_for"] = waits_for
        if self.last_batch is not None:
            answer["last_batch"] = self.last_batch.document()
        if self.load is not None:
            answer["load"] = _load_document(self.load)
        if self.verification is not None:
            answer["verification"] = self.verification.document(now)
        if self.last_error is not None:
            (error,) = tables_document([self.last_error])
            answer["last_error"] = {
                name: value for name, value in error.items() if name not in ("table", "topics", "recreate")
            }
        return answer


def _load_document(load: LoadProgress) -> Mapping[str, Any]:
    ends = {"estimated_end": load.estimated_end, "ended": load.ended}
    return {
        "rows": load.rows,
        "remaining": load.remaining,
        "rows_per_second": round(load.rate, 1),
        "began": iso_text(load.began),
        **{name: iso_text(end) for name, end in ends.items() if end is not None},
    }


def report_of(status: TableStatus) -> TableReport:
    """Return the report on a table whose task does not run: it contains only the status."""
    error = None if status.state is TableState.PAUSED else status
    return TableReport(status.table, status.state, status.topics, 0, 0, None, None, None, error)


def with_verifications(
    reports: Sequence[TableReport], verified: Mapping[str, VerificationReport]
) -> Sequence[TableReport]:
    """Return the reports with those of verifications, which also name tables without changes since the start."""
    by_name = {report.table: report for report in reports}
    for name, verification in verified.items():
        topics = [verification.topic]
        report = by_name.get(name) or TableReport(name, TableState.RUNNING, topics, 0, 0, None, None, None, None)
        by_name[name] = replace(report, verification=verification)
    return [by_name[name] for name in sorted(by_name)]


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
            entry["table"],
            TableState(entry["state"]),
            entry["trace"],
            _seconds(entry["since"]),
            _seconds(entry["next_attempt"]) if "next_attempt" in entry else None,
            tuple(entry.get("topics", ())),
            bool(entry.get("recreate", False)),
        )
        for entry in document
    )


def tables_document(statuses: Sequence[TableStatus]) -> list[dict[str, Any]]:
    """Statuses as JSON, in the status topic and in REST answers; times are ISO 8601 in UTC."""
    return [
        {
            "table": status.table,
            "state": status.state,
            "trace": status.trace,
            "since": iso_text(status.since),
            **({} if status.next_attempt is None else {"next_attempt": iso_text(status.next_attempt)}),
            **({"topics": list(status.topics)} if status.topics else {}),
            **({"recreate": True} if status.recreate else {}),
        }
        for status in statuses
    ]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


_CONNECTOR, _TASK, _TOPIC = "status-connector-", "status-task-", "status-topic-"
_NOTES, _TABLES, _RESNAPSHOT = "status-notes-", "status-tables-", "status-resnapshot-"
_MAX_TRACES = 10
_TABLES_FAILED = (
    "Tables that have failed: {}. The task writes its other tables; restart these once the cause is gone: POST "
    "/connectors/<name>/restart?includeTasks=true&onlyFailed=true (with errors.isolation.status=running, such a task "
    "shows RUNNING)"
)


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a connector or task, and why it failed (``trace``, in Connect's form).

    ``notes`` and ``tables``, of tasks only, have records of their own: they are kept when the state changes. ``tables``
    has those that do not run. ``waits_for`` is what a task waits for before it writes; Kafka Connect ignores it.
    """

    state: State
    worker_id: str
    generation: int = 0
    version: str | None = None
    trace: str | None = None
    notes: Notes = field(default_factory=dict)
    tables: tuple[TableStatus, ...] = ()
    waits_for: str | None = None

    @property
    def has_failed_tables(self) -> bool:
        return any(table.state is TableState.FAILED for table in self.tables)

    def with_failed_tables(self) -> Status:
        """Return the status in which a task with failed tables is FAILED, with their traces, if it is RUNNING."""
        failed = [table for table in self.tables if table.state is TableState.FAILED]
        if not failed or self.state is not State.RUNNING:
            return self
        names = ", ".join(table.table for table in failed)
        traces = "".join(f"Caused by: table {table.table}: {table.trace.rstrip()}\n" for table in failed[:_MAX_TRACES])
        return replace(self, state=State.FAILED, trace=f"{_TABLES_FAILED.format(names)}\n{traces}")


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic that a connector has read; ``discovered`` is in milliseconds."""

    topic: str
    connector: str
    task: int
    discovered: int


class StatusState:
    """The state after the records of a status log. ``apply`` takes them in order."""

    __slots__ = ("connectors", "notes", "resnapshots", "tables", "tasks", "topics")

    def __init__(self) -> None:
        self.connectors: dict[str, Status] = {}
        self.tasks: dict[str, dict[int, Status]] = {}
        """By connector and number of the task."""
        self.topics: dict[str, dict[str, TopicStatus]] = {}
        """By connector and topic."""
        self.notes: dict[tuple[str, int], Notes] = {}
        self.tables: dict[tuple[str, int], tuple[TableStatus, ...]] = {}
        self.resnapshots: dict[str, dict[str, ResnapshotProgress]] = {}
        """By connector and table."""

    def apply(self, key: str, value: bytes | None) -> None:
        """Apply a record; records with unknown keys are ignored.

        Raises any exception for a record that is not in Connect's format: answers must not contain what is not text.
        """
        document = None if value is None else json.loads(value)
        if key.startswith(_CONNECTOR):
            _set(self.connectors, key.removeprefix(_CONNECTOR), _status(document))
        elif key.startswith(_TASK):
            name, number = _task_of(key.removeprefix(_TASK))
            _set_inner(self.tasks, name, number, _status(document))
        elif key.startswith(_NOTES):
            notes = None if document is None else _notes(document)
            _set(self.notes, _task_of(key.removeprefix(_NOTES)), notes)
        elif key.startswith(_TABLES):
            blocked = None if document is None else _tables(document)
            _set(self.tables, _task_of(key.removeprefix(_TABLES)), blocked)
        elif key.startswith(_TOPIC):
            topic, _, connector = key.removeprefix(_TOPIC).partition(":connector-")
            _set_inner(self.topics, connector, topic, _topic_status(document))
        elif key.startswith(_RESNAPSHOT):
            table, _, connector = key.removeprefix(_RESNAPSHOT).partition(":")
            progress = None if document is None else resnapshot_progress(document)
            _set_inner(self.resnapshots, connector, unquote(table), progress)


def connector_key(name: str) -> str:
    return _CONNECTOR + name


def task_key(name: str, number: int) -> str:
    return f"{_TASK}{name}-{number}"


def notes_key(name: str, number: int) -> str:
    """Return the key of a task's notes, a record that Kafka Connect does not have and ignores."""
    return f"{_NOTES}{name}-{number}"


def tables_key(name: str, number: int) -> str:
    """The key of the states of a task's tables; Kafka Connect does not have this record and ignores it."""
    return f"{_TABLES}{name}-{number}"


def resnapshot_key(name: str, table: str) -> str:
    """Return the key of a table's resnapshot: the quoted name has no colon. Kafka Connect ignores this record."""
    return f"{_RESNAPSHOT}{quote(table, safe='')}:{name}"


def topic_key(name: str, topic: str) -> str:
    """Return the key of an active topic; a topic's name has no colon, so the connector's name follows the first."""
    return f"{_TOPIC}{topic}:connector-{name}"


def encode_status(status: Status | None) -> bytes | None:
    """Encode the status of a connector or task; None removes it."""
    if status is None:
        return None
    return _encode(
        {
            "state": status.state,
            "trace": status.trace,
            "worker_id": status.worker_id,
            "generation": status.generation,
            "version": status.version,
            **({} if status.waits_for is None else {"waits_for": status.waits_for}),
        }
    )


def decode_status(value: bytes) -> Status:
    """Decode the status of a connector or task. Raises ValueError, KeyError or TypeError for anything else."""
    status = _status(json.loads(value))
    if status is None:
        raise ValueError("the record contains no status")
    return status


def encode_notes(notes: Notes) -> bytes | None:
    """Encode a task's notes; None, if there are none, removes the record."""
    return _encode({"notes": notes_document(notes)}) if notes else None


def encode_tables(tables: Sequence[TableStatus]) -> bytes | None:
    """The value of the states of a task's tables; without any the record is removed."""
    return _encode({"tables": tables_document(tables)}) if tables else None


def encode_resnapshot(progress: ResnapshotProgress) -> bytes:
    return _encode(progress_document(progress))


def notes_document(notes: Notes) -> list[Mapping[str, Any]]:
    """Return notes as JSON, as in the status topic and in REST answers."""
    return [{"note": text, "where": list(where)} for text, where in notes.items()]


def encode_topic(status: TopicStatus | None) -> bytes | None:
    """Encode an active topic; None removes it."""
    if status is None:
        return None
    topic = {"name": status.topic, "connector": status.connector, "task": status.task}
    return _encode({"topic": {**topic, "discoverTimestamp": status.discovered}})


def _task_of(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("-")
    return name, int(number)


def _set(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _set_inner(table: dict[Any, dict[Any, Any]], name: Any, key: Any, value: Any) -> None:
    inner = table.setdefault(name, {})
    _set(inner, key, value)
    if not inner:
        del table[name]


def _text(value: Any) -> str:
    """Return text that an answer can contain: JSON may name half of a surrogate pair. Raises TypeError for no text."""
    if not isinstance(value, str):
        raise TypeError("a member of the status is not text")
    return value.encode(errors="replace").decode()


def _optional_text(value: Any) -> str | None:
    return None if value is None else _text(value)


def _notes(document: Any) -> Notes:
    return {_text(entry["note"]): tuple(map(_text, entry["where"])) for entry in document["notes"]}


def _tables(document: Any) -> tuple[TableStatus, ...]:
    statuses = table_statuses(document["tables"])
    return tuple(replace(status, table=_text(status.table), trace=_text(status.trace)) for status in statuses)


def _status(document: Any) -> Status | None:
    if document is None:
        return None
    return Status(
        State(document["state"]),
        _text(document["worker_id"]),
        int(document.get("generation") or 0),
        _optional_text(document.get("version")),
        _optional_text(document.get("trace")),
        waits_for=_optional_text(document.get("waits_for")),
    )


def _topic_status(document: Any) -> TopicStatus | None:
    if document is None:
        return None
    topic = document["topic"]
    return TopicStatus(
        _text(topic["name"]), _text(topic["connector"]), int(topic["task"]), int(topic["discoverTimestamp"])
    )


def _encode(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
