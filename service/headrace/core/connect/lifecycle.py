"""The life cycle of connectors, tasks and lake tables as tables (``connect.md`` section 3).

Rules of this file: what is *wanted* (``TargetState``, stored with the configs) is kept apart from what is *seen*
(``State``, stored with the statuses). A state changes only by ``next_state``; an event that a table does not list for a
state cannot happen there, and asking for it is a programming error.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class TargetState(StrEnum):
    """What the operator wants of a connector (Kafka Connect's ``TargetState``; REST calls STARTED ``RUNNING``)."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class State(StrEnum):
    """What is seen of a connector or task (Kafka Connect's ``AbstractStatus.State``). DESTROYED is never shown."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"
    DESTROYED = "DESTROYED"


class Event(StrEnum):
    """What happens to a connector or task."""

    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    FAIL = "fail"
    RESTART = "restart"
    STOP = "stop"
    RELEASE = "release"
    """The worker shuts down and lets go; another one, or its next life, picks up."""
    DELETE = "delete"


Table = Mapping[State, Mapping[Event, State]]

TASK: Table = {
    State.UNASSIGNED: {
        Event.START: State.RUNNING,
        Event.PAUSE: State.PAUSED,
        Event.FAIL: State.FAILED,
        Event.RESTART: State.RESTARTING,
        Event.RELEASE: State.UNASSIGNED,
        Event.DELETE: State.DESTROYED,
    },
    State.RUNNING: {
        Event.START: State.RUNNING,
        Event.PAUSE: State.PAUSED,
        Event.RESUME: State.RUNNING,
        Event.FAIL: State.FAILED,
        Event.RESTART: State.RESTARTING,
        Event.RELEASE: State.UNASSIGNED,
        Event.DELETE: State.DESTROYED,
    },
    State.PAUSED: {
        Event.PAUSE: State.PAUSED,
        Event.RESUME: State.RUNNING,
        Event.START: State.RUNNING,
        Event.FAIL: State.FAILED,
        Event.RESTART: State.RESTARTING,
        Event.RELEASE: State.UNASSIGNED,
        Event.DELETE: State.DESTROYED,
    },
    # Pause and resume leave a failed task failed: only a restart or a new configuration takes it out.
    State.FAILED: {
        Event.PAUSE: State.FAILED,
        Event.RESUME: State.FAILED,
        Event.FAIL: State.FAILED,
        Event.RESTART: State.RESTARTING,
        Event.RELEASE: State.UNASSIGNED,
        Event.DELETE: State.DESTROYED,
    },
    State.RESTARTING: {
        Event.START: State.RUNNING,
        Event.PAUSE: State.PAUSED,
        Event.RESUME: State.RESTARTING,
        Event.FAIL: State.FAILED,
        Event.RESTART: State.RESTARTING,
        Event.RELEASE: State.UNASSIGNED,
        Event.DELETE: State.DESTROYED,
    },
}
"""Tasks have no STOPPED: a stopped connector has no tasks."""

_CONNECTOR_ROW: Mapping[Event, State] = {
    Event.START: State.RUNNING,
    Event.RESUME: State.RUNNING,
    Event.PAUSE: State.PAUSED,
    Event.STOP: State.STOPPED,
    Event.FAIL: State.FAILED,
    Event.RESTART: State.RESTARTING,
    Event.RELEASE: State.UNASSIGNED,
    Event.DELETE: State.DESTROYED,
}
CONNECTOR: Table = dict.fromkeys((state for state in State if state is not State.DESTROYED), _CONNECTOR_ROW)
"""A connector instance obeys every event from every state; a failed one can be stopped and resumed."""


class TableState(StrEnum):
    """The state of the lane that writes one lake table of a task; the task itself is RUNNING or PAUSED meanwhile."""

    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    """A write failed for a passing reason and is repeated."""
    FAILED = "FAILED"
    """The table needs an operator; its topics are not read, and their offsets stay."""


class TableEvent(StrEnum):
    """What happens to the lane of a table."""

    RETRY = "retry"
    SUCCEED = "succeed"
    FAIL = "fail"
    RESTART = "restart"


LAKE_TABLE: Mapping[TableState, Mapping[TableEvent, TableState]] = {
    TableState.RUNNING: {
        TableEvent.RETRY: TableState.RETRYING,
        TableEvent.SUCCEED: TableState.RUNNING,
        TableEvent.FAIL: TableState.FAILED,
        TableEvent.RESTART: TableState.RUNNING,
    },
    TableState.RETRYING: {
        TableEvent.RETRY: TableState.RETRYING,
        TableEvent.SUCCEED: TableState.RUNNING,
        TableEvent.FAIL: TableState.FAILED,
        TableEvent.RESTART: TableState.RUNNING,
    },
    # The write that was under way when the table failed does not bring it back.
    TableState.FAILED: {
        TableEvent.FAIL: TableState.FAILED,
        TableEvent.RESTART: TableState.RUNNING,
    },
}

_State = TypeVar("_State", bound=StrEnum)
_Event = TypeVar("_Event", bound=StrEnum)


def next_state(table: Mapping[_State, Mapping[_Event, _State]], state: _State, event: _Event) -> _State:
    """The state after ``event``. Raises ValueError when the table has no such step."""
    try:
        return table[state][event]
    except KeyError:
        raise ValueError(f"nothing can {event} in state {state}") from None


def diagram(table: Table) -> str:
    """The table as a Mermaid state diagram, for the documentation."""
    steps = [
        f"    {state} --> {after}: {event}"
        for state, row in table.items()
        for event, after in row.items()
        if after is not state
    ]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {State.UNASSIGNED}", *steps, f"    {State.DESTROYED} --> [*]"])
