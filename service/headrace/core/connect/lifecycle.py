"""The life cycle of connectors, tasks and lake tables as tables (``connect.md`` section 3).

Rules of this file: the *target* state (``TargetState``, stored with the configurations) is separate from the *actual*
state (``State``, stored with the statuses). A state changes only by ``next_state``. An event that a table does not list
for a state cannot happen there: ``next_state`` raises an error, which is a programming error of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class TargetState(StrEnum):
    """The state that the operator requests (Kafka Connect's ``TargetState``; REST calls STARTED ``RUNNING``)."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class State(StrEnum):
    """The state of a connector or task (Kafka Connect's ``AbstractStatus.State``). DESTROYED is never shown."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"
    DESTROYED = "DESTROYED"


class Event(StrEnum):
    """Events of a connector or task."""

    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    FAIL = "fail"
    RESTART = "restart"
    STOP = "stop"
    RELEASE = "release"
    """The worker shuts down and releases it; another worker, or this one after its restart, adopts it."""
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
    # Pause and resume leave a failed task FAILED: only a restart or a new configuration changes that.
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
"""A connector accepts every event in every state; a failed one can be stopped and resumed."""


class TableState(StrEnum):
    """The state of one lake table of a task. The task itself is RUNNING or PAUSED."""

    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    """A write failed for a passing reason and is repeated."""
    FAILED = "FAILED"
    """The table needs an operator; its topics are not read, and their offsets stay."""
    PAUSED = "PAUSED"
    """The table or its connector is paused, and no write of the table is in progress."""


NOT_READ = frozenset((TableState.FAILED, TableState.PAUSED))
"""The states in which the topics of a table are not read, so that it is unknown how far it is behind its source."""


class TableEvent(StrEnum):
    """Events of a table. PAUSE and RESUME are those of the table and of its connector: either keeps it PAUSED."""

    RETRY = "retry"
    SUCCEED = "succeed"
    FAIL = "fail"
    RESTART = "restart"
    PAUSE = "pause"
    RESUME = "resume"


_RUNNING_ROW: Mapping[TableEvent, TableState] = {
    TableEvent.RETRY: TableState.RETRYING,
    TableEvent.SUCCEED: TableState.RUNNING,
    TableEvent.FAIL: TableState.FAILED,
    TableEvent.RESTART: TableState.RUNNING,
    TableEvent.PAUSE: TableState.PAUSED,
    TableEvent.RESUME: TableState.RUNNING,
}
LAKE_TABLE: Mapping[TableState, Mapping[TableEvent, TableState]] = {
    TableState.RUNNING: _RUNNING_ROW,
    TableState.RETRYING: {**_RUNNING_ROW, TableEvent.RESUME: TableState.RETRYING},
    # The write that was under way when the table failed does not bring it back, nor does a resume.
    TableState.FAILED: {
        TableEvent.FAIL: TableState.FAILED,
        TableEvent.RESTART: TableState.RUNNING,
        TableEvent.PAUSE: TableState.FAILED,
        TableEvent.RESUME: TableState.FAILED,
    },
    TableState.PAUSED: {
        TableEvent.FAIL: TableState.FAILED,
        TableEvent.RESTART: TableState.PAUSED,
        TableEvent.PAUSE: TableState.PAUSED,
        TableEvent.RESUME: TableState.RUNNING,
    },
}

_State = TypeVar("_State", bound=StrEnum)
_Event = TypeVar("_Event", bound=StrEnum)


def next_state(table: Mapping[_State, Mapping[_Event, _State]], state: _State, event: _Event) -> _State:
    """Return the state after ``event``. Raises ValueError if the table has no such transition."""
    try:
        return table[state][event]
    except KeyError:
        raise ValueError(f"event {event} is not allowed in state {state}") from None
