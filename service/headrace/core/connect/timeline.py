"""The timeline: what has happened to connectors, tables, tasks and workers, when, and by which request.

An event is a record of the status topic with a key of its own, ``status-timeline-<ms>-<worker>``: no event replaces
another one, also if several workers write at once. Kafka Connect does not have this record and ignores it. The keys of
a worker have increasing times, and sort as text by their time.

The timeline has a bound: the newest events of each connector, and the newest of all. Every worker reads all events and
keeps those within the bound. It writes a record that removes the others with its next event.

Tests: ``tests/unit/core/connect/test_timeline.py``.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Any

from headrace.core.connect.stored_members import text_of
from headrace.core.connect.work import Task
from headrace.core.model.instants import iso_text

EVENTS_PER_CONNECTOR = 200
EVENTS = 10_000
"""The events of all connectors and workers: those of deleted connectors stay until others take their place."""
REPEATED_WITHIN_MS = 3_600_000
"""A failure, or a restart after it, that is equal to one of this time before replaces it, and counts it."""
_MAX_TEXT = 500
_NAMED = 20
"""The names that a text contains; it has the number of the others."""
_PREFIX = "status-timeline-"


class Kind(StrEnum):
    """What has happened."""

    CONNECTOR_CREATED = "CONNECTOR_CREATED"
    CONFIG_CHANGED = "CONFIG_CHANGED"
    CONNECTOR_DELETED = "CONNECTOR_DELETED"
    CONNECTOR_PAUSED = "CONNECTOR_PAUSED"
    CONNECTOR_RESUMED = "CONNECTOR_RESUMED"
    CONNECTOR_STOPPED = "CONNECTOR_STOPPED"
    CONNECTOR_RESTARTED = "CONNECTOR_RESTARTED"
    CONNECTOR_FAILED = "CONNECTOR_FAILED"
    OFFSETS_ALTERED = "OFFSETS_ALTERED"
    OFFSETS_RESET = "OFFSETS_RESET"
    TASK_STARTED = "TASK_STARTED"
    """A task runs again after a failure or a restart."""
    TASK_FAILED = "TASK_FAILED"
    TASK_RESTARTED = "TASK_RESTARTED"
    TABLE_PAUSED = "TABLE_PAUSED"
    TABLE_RESUMED = "TABLE_RESUMED"
    TABLE_RESTARTED = "TABLE_RESTARTED"
    TABLE_FAILED = "TABLE_FAILED"
    SCHEMA_CHANGED = "SCHEMA_CHANGED"
    ROWS_REPAIRED = "ROWS_REPAIRED"
    RESNAPSHOT_ENDED = "RESNAPSHOT_ENDED"
    LETTERS_REPLAYED = "LETTERS_REPLAYED"
    TASKS_MOVED = "TASKS_MOVED"
    WORKER_STARTED = "WORKER_STARTED"
    WORKER_STOPPED = "WORKER_STOPPED"


_REPEATED = frozenset(
    {Kind.CONNECTOR_FAILED, Kind.TASK_FAILED, Kind.TASK_RESTARTED, Kind.TASK_STARTED, Kind.TABLE_FAILED}
)
"""What may happen every minute for a night, and must not evict everything else."""


class TriggerType(StrEnum):
    """What an event was triggered by."""

    REQUEST = "request"
    FILE = "file"
    COMMAND = "command"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A request of the REST API, a file of connectors as code, a command, or the worker without any of them.

    ``path`` is that of the request, without its query, or that of the file; of a command it is what was called.
    ``user`` is "" without authentication.
    """

    type: TriggerType = TriggerType.WORKER
    method: str = ""
    path: str = ""
    user: str = ""

    def document(self) -> Mapping[str, str]:
        """Return the trigger as JSON, without the members that are empty."""
        members = {"type": str(self.type), "method": self.method, "path": self.path, "user": self.user}
        return {name: value for name, value in members.items() if value}


BY_WORKER = Trigger()


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """An event. ``time`` is in milliseconds since the epoch; no two events of a worker have the same.

    ``worker_id`` is the worker that has recorded it, or the process of a command.

    ``connector``, ``table`` and ``task`` are None for an event that concerns none. ``text`` has no value of a cell,
    or of an option that was changed. ``count`` is how often it has happened since ``since``, in milliseconds as well.
    """

    kind: Kind
    time: int
    worker_id: str
    connector: str | None = None
    task: int | None = None
    table: str | None = None
    text: str = ""
    trigger: Trigger = field(default=BY_WORKER)
    count: int = 1
    since: int | None = None

    @property
    def key(self) -> str:
        return f"{_PREFIX}{self.time:013d}-{self.worker_id}"

    def document(self) -> Mapping[str, Any]:
        """Return the event as JSON, as in the status topic and in REST answers."""
        optional = {"connector": self.connector, "task": self.task, "table": self.table}
        return {
            "time": iso_text(self.time / 1000, "milliseconds"),
            "kind": self.kind,
            **{name: value for name, value in optional.items() if value is not None},
            "text": self.text,
            "worker_id": self.worker_id,
            "by": self.trigger.document(),
            **({"count": self.count} if self.count > 1 else {}),
            **({} if self.since is None else {"since": iso_text(self.since / 1000, "milliseconds")}),
        }

    def repeats(self, other: TimelineEvent) -> bool:
        """Return whether this is the same failure or restart as ``other``, shortly after it.

        Each request is an event of its own, and so is all that is rare.
        """
        return (
            self.kind in _REPEATED
            and self.trigger.type is TriggerType.WORKER
            and 0 <= self.time - other.time <= REPEATED_WITHIN_MS
            and replace(self, time=other.time, count=other.count, since=other.since) == other
        )


def is_timeline_key(key: str) -> bool:
    """Return whether a record of the status topic is one of the timeline."""
    return key.startswith(_PREFIX)


def encode_event(event: TimelineEvent) -> bytes:
    document = {**event.document(), "time": event.time, **({} if event.since is None else {"since": event.since})}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def decode_event(value: bytes) -> TimelineEvent:
    """Decode a record. Raises ValueError, KeyError or TypeError for anything else, also of a later version."""
    document = json.loads(value)
    by, task, since = document["by"], document.get("task"), document.get("since")
    return TimelineEvent(
        Kind(document["kind"]),
        int(document["time"]),
        text_of(document["worker_id"]),
        _optional_text(document.get("connector")),
        None if task is None else int(task),
        _optional_text(document.get("table")),
        text_of(document["text"]),
        Trigger(TriggerType(by["type"]), *(text_of(by.get(name, "")) for name in ("method", "path", "user"))),
        int(document.get("count", 1)),
        None if since is None else int(since),
    )


class TimelineState:
    """The events after the records of a status log, in any order: at most those within the bound.

    ``of_connector`` bounds the events of each connector, and those without one; ``of_all`` bounds all.
    """

    def __init__(self, of_connector: int = EVENTS_PER_CONNECTOR, of_all: int = EVENTS) -> None:
        self._of_connector = of_connector
        self._of_all = of_all
        self._events: dict[str, TimelineEvent] = {}
        self._keys: list[str] = []
        """Sorted, and therefore oldest first; so are the keys of each connector."""
        self._connectors: dict[str | None, list[str]] = {}
        self._outside: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._events)

    def apply(self, key: str, value: bytes | None) -> None:
        """Apply a record with a key of the timeline. Raises any exception for a record that is not usable."""
        if value is None:
            self.remove(key)
            self._outside.pop(key, None)
        elif key not in self._events:
            event = decode_event(value)
            if event.key != key:
                raise ValueError("the key is not that of the event")
            self.add(event)

    def add(self, event: TimelineEvent) -> None:
        """Add an event, and evict the oldest of its connector, or of all, beyond the bound."""
        keys = self._connectors.setdefault(event.connector, [])
        self._events[event.key] = event
        insort(self._keys, event.key)
        insort(keys, event.key)
        if len(keys) > self._of_connector:
            self._evict(keys[0])
        if len(self._keys) > self._of_all:
            self._evict(self._keys[0])

    def remove(self, key: str) -> None:
        """Remove an event, if there is one."""
        event = self._events.pop(key, None)
        if event is None:
            return
        of_connector = self._connectors[event.connector]
        for keys in (self._keys, of_connector):
            del keys[bisect_left(keys, key)]
        if not of_connector:
            del self._connectors[event.connector]

    def _evict(self, key: str) -> None:
        self.remove(key)
        self._outside[key] = None

    def outside(self, limit: int) -> list[str]:
        """Return keys of the log that are outside of the bound, and that no record has removed yet."""
        return list(islice(self._outside, limit))

    def last_time(self, worker_id: str) -> int:
        """Return the time of the worker's newest event, 0 if it has none."""
        return max((event.time for event in self._events.values() if event.worker_id == worker_id), default=0)

    def same_before(self, event: TimelineEvent) -> TimelineEvent | None:
        """Return the event that this one repeats, None if it repeats none."""
        return next((other for other in self._newest_first(event.connector) if event.repeats(other)), None)

    def has_events(self, connector: str) -> bool:
        return connector in self._connectors

    def events(
        self,
        connector: str | None = None,
        *,
        table: str | None = None,
        kinds: Collection[Kind] = (),
        limit: int | None = None,
    ) -> list[TimelineEvent]:
        """Return events, newest first: those of a connector or all, of a table or all, of these kinds or all."""
        events = self._newest_first(connector) if connector is not None else map(self._events.get, self._keys[::-1])
        chosen = (
            event
            for event in events
            if event is not None and (table is None or event.table == table) and (not kinds or event.kind in kinds)
        )
        return list(islice(chosen, limit))

    def _newest_first(self, connector: str | None) -> Iterator[TimelineEvent]:
        return (self._events[key] for key in reversed(self._connectors.get(connector, ())))


def name_list(names: Iterable[str]) -> str:
    """Return names as text: the first ones, and how many more there are."""
    ordered = list(names)
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return ", ".join(ordered[:_NAMED]) + more


def moved_tasks(before: Mapping[Task, str], after: Mapping[Task, str]) -> list[str]:
    """Return which tasks have another worker than before, as texts. New and removed tasks have not moved."""
    moves = sorted(task for task, worker in after.items() if before.get(task, worker) != worker)
    return [f"{name}-{number} from {before[name, number]} to {after[name, number]}" for name, number in moves]


def changed_options(before: Mapping[str, str], after: Mapping[str, str]) -> Sequence[str]:
    """Return the names of the options that were added, changed or removed, sorted; values may be secrets."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def short(text: str) -> str:
    """Return the beginning of a text that an event may contain: the size of a record has a bound."""
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _optional_text(value: Any) -> str | None:
    return None if value is None else text_of(value)
