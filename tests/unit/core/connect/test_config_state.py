"""What the config and status logs add up to, whatever compaction has left of them."""

from __future__ import annotations

from headrace.core.connect.config_state import (
    MAX_TASKS,
    ClusterConfigState,
    KeyValue,
    RestartRequest,
    connector_records,
    removal_records,
    target_state_record,
    task_records,
)
from headrace.core.connect.lifecycle import State, TargetState
from headrace.core.connect.status import (
    Status,
    StatusState,
    TopicStatus,
    connector_key,
    encode_status,
    encode_topic,
    task_key,
    topic_key,
)

CONFIG = {"topics": "t"}


def _state(*records: KeyValue) -> ClusterConfigState:
    state = ClusterConfigState()
    for key, value in records:
        state.apply(key, value)
    return state


def test_records_are_connects() -> None:
    """Keys and values as its own tools read them (``connect.md`` section 18)."""
    assert connector_records("n", CONFIG) == [("connector-n", b'{"properties":{"topics":"t"}}')]
    assert target_state_record("n", TargetState.STOPPED) == (
        "target-state-n",
        b'{"state":"PAUSED","state.v2":"STOPPED"}',
    )
    assert task_records("n", [CONFIG])[1] == ("commit-n", b'{"tasks":1}')


def test_a_target_state_of_an_old_worker_is_understood() -> None:
    """Before KIP-875 there was one field."""
    assert _state(("target-state-n", b'{"state":"PAUSED"}')).target_state("n") is TargetState.PAUSED


def test_tasks_count_from_their_commit_on() -> None:
    """A worker that died between the records has written nothing."""
    first, second = task_records("n", [CONFIG, CONFIG])[:2]
    half = _state(*connector_records("n", CONFIG), first, second)
    assert half.task_configs("n") == []
    half.apply("commit-n", b'{"tasks":2}')
    assert half.task_configs("n") == [CONFIG, CONFIG]


def test_a_connector_has_a_bounded_number_of_tasks() -> None:
    """Records of an older worker, or of Connect, may ask for any number; they are read without being kept."""
    numbers = [*range(MAX_TASKS + 50), 10**9, int("9" * 4000)]
    records: list[KeyValue] = [(f"task-n-{number}", b'{"properties":{"topics":"t"}}') for number in numbers]
    records.append((f"task-n-{'9' * 5000}", b'{"properties":{}}'))
    state = _state(*connector_records("n", CONFIG), *records, ("commit-n", b'{"tasks":999999999}'))
    assert state.task_configs("n") == [CONFIG] * MAX_TASKS
    assert state._pending == {}


def test_compaction_may_leave_the_commit_before_its_connector() -> None:
    """The configuration was written again later."""
    state = _state(*task_records("n", [CONFIG]), *connector_records("n", CONFIG))
    assert state.task_configs("n") == [CONFIG]


def test_a_removed_connector_leaves_nothing_to_a_later_one() -> None:
    """Also when compaction has dropped the removal itself."""
    made = [*connector_records("n", CONFIG), target_state_record("n", TargetState.PAUSED), *task_records("n", [CONFIG])]
    log = dict([*made, *removal_records("n", 1), *connector_records("n", CONFIG)])
    compacted = _state(*((key, value) for key, value in log.items() if value is not None))
    assert compacted.connector_config("n") == CONFIG
    assert compacted.task_configs("n") == []
    assert compacted.target_state("n") is TargetState.STARTED


def test_foreign_keys_are_left_alone() -> None:
    """Connect keeps a session key and logger levels there."""
    assert _state(("session-key", b"{}"), ("logger-cluster-x", b"{}")).connectors() == []


def test_a_restart_takes_what_its_flags_say() -> None:
    """Tasks only where they are included, and of all of it only what has failed, if so asked (KIP-745)."""
    for tasks, failed in ((False, False), (False, True), (True, False), (True, True)):
        request = RestartRequest(include_tasks=tasks, only_failed=failed)
        assert [request.takes(State.FAILED), request.takes(State.RUNNING)] == [True, not failed]
        assert [request.takes_task(State.FAILED), request.takes_task(State.RUNNING)] == [tasks, tasks and not failed]


def test_statuses_come_back_as_they_were_written() -> None:
    """Names may hold dashes and colons."""
    state = StatusState()
    seen = Status(State.FAILED, "host:8083", 3, "1.0", "trace")
    topic = TopicStatus("shop.orders", "a-b:c", 1, 5)
    state.apply(connector_key("a-b:c"), encode_status(seen))
    state.apply(task_key("a-b:c", 12), encode_status(seen))
    state.apply(topic_key("a-b:c", "shop.orders"), encode_topic(topic))
    assert state.connectors == {"a-b:c": seen}
    assert state.tasks == {("a-b:c", 12): seen}
    assert state.topics == {("a-b:c", "shop.orders"): topic}
    state.apply(task_key("a-b:c", 12), encode_status(None))
    assert state.tasks == {}
