"""The state that the records of the config and status topics give, also after compaction."""

from __future__ import annotations

from headrace.core.connect.config_state import (
    MAX_TASKS,
    ClusterConfigState,
    KeyValue,
    RestartRequest,
    connector_records,
    paused_tables_record,
    removal_records,
    target_state_record,
    task_records,
)
from headrace.core.connect.lifecycle import State, TargetState
from headrace.core.connect.paused_tables import PausedTable
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


def test_records_have_the_format_of_kafka_connect() -> None:
    """Keys and values are those that tools for Kafka Connect read (``connect.md`` section 18)."""
    assert connector_records("n", CONFIG) == [("connector-n", b'{"properties":{"topics":"t"}}')]
    assert target_state_record("n", TargetState.STOPPED) == (
        "target-state-n",
        b'{"state":"PAUSED","state.v2":"STOPPED"}',
    )
    assert task_records("n", [CONFIG])[1] == ("commit-n", b'{"tasks":1}')


def test_a_target_state_without_state_v2_is_read() -> None:
    """Workers before KIP-875 write one field."""
    assert _state(("target-state-n", b'{"state":"PAUSED"}')).target_state("n") is TargetState.PAUSED


def test_task_configs_apply_from_their_commit_on() -> None:
    """A worker that crashes between the records has written no configuration."""
    first, second = task_records("n", [CONFIG, CONFIG])[:2]
    half = _state(*connector_records("n", CONFIG), first, second)
    assert half.task_configs("n") == []
    half.apply("commit-n", b'{"tasks":2}')
    assert half.task_configs("n") == [CONFIG, CONFIG]


def test_a_connector_has_a_bounded_number_of_tasks() -> None:
    """Records of an older worker, or of Connect, may have any task number; those above the limit are not kept."""
    numbers = [*range(MAX_TASKS + 50), 10**9, int("9" * 4000)]
    records: list[KeyValue] = [(f"task-n-{number}", b'{"properties":{"topics":"t"}}') for number in numbers]
    records.append((f"task-n-{'9' * 5000}", b'{"properties":{}}'))
    state = _state(*connector_records("n", CONFIG), *records, ("commit-n", b'{"tasks":999999999}'))
    assert state.task_configs("n") == [CONFIG] * MAX_TASKS
    assert state._pending == {}


def test_compaction_may_leave_the_commit_before_its_connector() -> None:
    """The connector's configuration was written again later, so its record is after the commit of the tasks."""
    state = _state(*task_records("n", [CONFIG]), *connector_records("n", CONFIG))
    assert state.task_configs("n") == [CONFIG]


def test_a_removed_connector_leaves_nothing_to_a_later_one() -> None:
    """A new connector of the same name inherits no state, also if compaction has removed the removal records."""
    made = [*connector_records("n", CONFIG), target_state_record("n", TargetState.PAUSED), *task_records("n", [CONFIG])]
    log = dict([*made, *removal_records("n", 1), *connector_records("n", CONFIG)])
    compacted = _state(*((key, value) for key, value in log.items() if value is not None))
    assert compacted.connector_config("n") == CONFIG
    assert compacted.task_configs("n") == []
    assert compacted.target_state("n") is TargetState.STARTED


def test_paused_tables_are_stored_beside_the_target_state() -> None:
    """Neither a target state nor another configuration changes them, as written by any version; a removal does."""
    paused = {"orders": PausedTable(("shop.orders",), 1_700_000_000.0)}
    record = paused_tables_record("n", paused)
    assert record == (
        "headrace-paused-tables-n",
        b'{"tables":{"orders":{"topics":["shop.orders"],"since":"2023-11-14T22:13:20Z"}}}',
    )
    state = _state(record, *connector_records("n", CONFIG, TargetState.PAUSED))
    for key, value in (target_state_record("n", TargetState.STARTED), *connector_records("n", {"topics": "u"})):
        state.apply(key, value)
        assert state.paused_tables("n") == paused
    for key, value in removal_records("n", 1, [paused_tables_record("n", {})]):
        state.apply(key, value)
    assert state.paused_tables("n") == {}


def test_other_keys_are_ignored() -> None:
    """Kafka Connect keeps its session key and logger levels in this topic."""
    assert _state(("session-key", b"{}"), ("logger-cluster-x", b"{}")).connectors() == []


def test_a_restart_applies_to_the_instances_of_its_flags() -> None:
    """It applies to tasks only with includeTasks, and only to failed instances with onlyFailed (KIP-745)."""
    for tasks, failed in ((False, False), (False, True), (True, False), (True, True)):
        request = RestartRequest(include_tasks=tasks, only_failed=failed)
        assert [request.takes(State.FAILED), request.takes(State.RUNNING)] == [True, not failed]
        assert [request.takes_task(State.FAILED), request.takes_task(State.RUNNING)] == [tasks, tasks and not failed]


def test_statuses_are_read_as_they_were_written() -> None:
    """Names of connectors may contain dashes and colons."""
    state = StatusState()
    seen = Status(State.FAILED, "host:8083", 3, "1.0", "trace")
    topic = TopicStatus("shop.orders", "a-b:c", 1, 5)
    state.apply(connector_key("a-b:c"), encode_status(seen))
    state.apply(task_key("a-b:c", 12), encode_status(seen))
    state.apply(topic_key("a-b:c", "shop.orders"), encode_topic(topic))
    assert state.connectors == {"a-b:c": seen}
    assert state.tasks == {"a-b:c": {12: seen}}
    assert state.topics == {"a-b:c": {"shop.orders": topic}}
    state.apply(task_key("a-b:c", 12), encode_status(None))
    assert state.tasks == {}
