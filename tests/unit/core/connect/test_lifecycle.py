"""The state tables."""

from __future__ import annotations

import pytest

from headrace.core.connect.lifecycle import CONNECTOR, TASK, Event, State, Table, diagram, next_state


@pytest.mark.parametrize("table", [TASK, CONNECTOR])
def test_every_state_that_can_be_reached_has_a_row(table: Table) -> None:
    """Except the last one."""
    reached = {after for row in table.values() for after in row.values()}
    assert reached - set(table) == {State.DESTROYED}


def test_a_failed_task_stays_failed_until_it_is_restarted() -> None:
    """Pause and resume do not hide a failure."""
    for event in (Event.PAUSE, Event.RESUME):
        assert next_state(TASK, State.FAILED, event) is State.FAILED
    assert next_state(TASK, State.FAILED, Event.RESTART) is State.RESTARTING


def test_a_failed_connector_can_be_stopped_and_resumed() -> None:
    """Unlike a task."""
    assert next_state(CONNECTOR, State.FAILED, Event.STOP) is State.STOPPED
    assert next_state(CONNECTOR, State.STOPPED, Event.RESUME) is State.RUNNING


def test_what_the_table_does_not_list_is_a_mistake() -> None:
    """Tasks are never stopped: a stopped connector has none."""
    with pytest.raises(ValueError, match="event stop is not allowed"):
        next_state(TASK, State.RUNNING, Event.STOP)


def test_the_diagram_shows_every_step_that_changes_a_state() -> None:
    """It is made from the table."""
    assert "RUNNING --> FAILED: fail" in diagram(TASK)
    assert "RUNNING --> RUNNING" not in diagram(TASK)
