"""The state tables of connectors, tasks and lake tables."""

from __future__ import annotations

import pytest

from headrace.core.connect.lifecycle import (
    CONNECTOR,
    LAKE_TABLE,
    TASK,
    Event,
    State,
    Table,
    TableEvent,
    TableState,
    next_state,
)


@pytest.mark.parametrize("table", [TASK, CONNECTOR])
def test_every_state_that_can_be_reached_has_a_row(table: Table) -> None:
    """Each reachable state has a row in the table, except DESTROYED."""
    reached = {after for row in table.values() for after in row.values()}
    assert reached - set(table) == {State.DESTROYED}


def test_a_failed_task_stays_failed_until_it_is_restarted() -> None:
    """Pause and resume do not change the FAILED state."""
    for event in (Event.PAUSE, Event.RESUME):
        assert next_state(TASK, State.FAILED, event) is State.FAILED
    assert next_state(TASK, State.FAILED, Event.RESTART) is State.RESTARTING


def test_a_failed_connector_can_be_stopped_and_resumed() -> None:
    """A connector leaves FAILED through a stop and a resume; a task does not."""
    assert next_state(CONNECTOR, State.FAILED, Event.STOP) is State.STOPPED
    assert next_state(CONNECTOR, State.STOPPED, Event.RESUME) is State.RUNNING


def test_a_failed_table_stays_failed_until_it_is_restarted() -> None:
    """Pause and resume do not change the FAILED state; a restart does not end a pause."""
    for event in (TableEvent.PAUSE, TableEvent.RESUME):
        assert next_state(LAKE_TABLE, TableState.FAILED, event) is TableState.FAILED
    assert next_state(LAKE_TABLE, TableState.PAUSED, TableEvent.RESTART) is TableState.PAUSED


def test_an_event_that_the_table_lacks_is_an_error() -> None:
    """A task has no stop event: a stopped connector has no tasks."""
    with pytest.raises(ValueError, match="event stop is not allowed"):
        next_state(TASK, State.RUNNING, Event.STOP)
