"""The worker as a process: it restarts with its state, reports why it cannot start, and always ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from recordings.records import RecordedRecord, publish
from support.records.envelopes import change, key
from support.repository.connect_names import TASK_METRICS

from headrace.core.decode.schema_changes import RENAMED
from headrace.runtime.task.freshness_notes import Cause
from headrace_dev.kafka import Kafka
from headrace_dev.server import free_ports, http, wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = pytest.mark.stack
_DEADLINE_SECONDS = 60
SHOP = {"connector.class": "LakehouseSink", "topics": "shop.orders,shop.items", "tasks.max": "2"}


@pytest.fixture
def worker(stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Worker]:
    """A worker with its own storage topics."""
    name = unique("process")
    properties = {
        **SHORT_LIVED,
        "group.id": name,
        "config.storage.topic": f"{name}-configs",
        "status.storage.topic": f"{name}-status",
    }
    worker = Worker(tmp_path, stack_kafka, tmp_path / "warehouse", properties=properties)
    worker.start()
    yield worker
    worker.kill()


def test_what_was_paused_is_paused_after_a_kill(worker: Worker) -> None:
    """Configurations and target states are stored in Kafka; after resume the task continues."""
    worker.put_connector("shop", SHOP)
    assert worker.states("shop") == ["RUNNING", "RUNNING", "RUNNING"]
    worker.call("PUT", "/connectors/shop/pause")
    wait_until(lambda: worker.states("shop") == ["PAUSED"] * 3, "paused", 30)
    worker.kill()
    worker.start()
    assert worker.states("shop") == ["PAUSED"] * 3
    worker.call("PUT", "/connectors/shop/resume")
    wait_until(lambda: worker.states("shop") == ["RUNNING"] * 3, "running", 60)


def test_notes_are_in_the_status_after_a_kill(worker: Worker, stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
    """A topic of schema changes belongs to no table; the note on it is stored in Kafka, like the states."""
    topic = unique("shop-schema")
    stack_kafka.create_topic(topic)
    altered = [{"type": "ALTER", "id": '"shop"."t"', "table": {"columns": []}}]
    change = json.dumps({"databaseName": "shop", "ddl": "ALTER TABLE t RENAME COLUMN a TO b", "tableChanges": altered})
    publish(stack_kafka.bootstrap_servers, [RecordedRecord(topic, 0, 0, 0, None, change.encode(), ())])
    config = {"connector.class": "LakehouseSink", "topics": topic}
    for side in ("key", "value"):
        config[f"{side}.converter"] = "org.apache.kafka.connect.json.JsonConverter"
        config[f"{side}.converter.schemas.enable"] = "false"
    worker.put_connector("schema", config)
    notes = [{"note": RENAMED, "where": [f"{topic} column shop.t.b"]}]
    wait_until(lambda: _notes(worker) == notes, "the note", 30)
    worker.call("PUT", "/connectors/schema/pause")
    wait_until(lambda: worker.states("schema") == ["PAUSED"] * 2, "paused", 30)
    worker.kill()
    worker.start()
    assert _notes(worker) == notes


def test_a_table_that_misses_its_target_is_in_status_and_metrics(
    worker: Worker, stack_kafka: Kafka, unique: Callable[[str], str]
) -> None:
    """A table whose commits are bounded is late: its events are counted, and a note in the status has the cause."""
    topic = unique("late")
    stack_kafka.create_topic(topic)

    def insert(number: int) -> None:  # its source time is in the past
        row = change("c", {"id": number, "name": "n"}, 10 + number)
        publish(stack_kafka.bootstrap_servers, [RecordedRecord(topic, 0, number, 0, key({"id": number}), row, ())])
        committed = {(topic, 0): number + 1}
        wait_until(lambda: worker.committed("late") == committed, "the row", 120)

    # 36 s between two commits: the second row has to wait even if the first commit, which starts Spark, is slow.
    options = {"freshness.target.ms": f"9000,{topic}:4000", "commits.per.hour": "100"}
    worker.put_connector("late", {"connector.class": "LakehouseSink", "topics": topic} | options)
    insert(0)
    insert(1)
    note = {"note": Cause.COMMITS_PER_HOUR.value, "where": [topic]}
    wait_until(lambda: note in (worker.tasks("late")[0].get("notes") or []), "the note", 30)
    [table] = worker.call("GET", "/connectors/late/tables")
    assert table["freshness_target_seconds"] == 4.0
    labels = frozenset({"connector": "late", "task": "0", "table": topic}.items())
    assert worker.metrics()["headrace_freshness_target_missed_total", labels] == 2.0


def _task(connector: str, task: str) -> frozenset[tuple[str, str]]:
    """Return the labels of a task's metrics."""
    return frozenset({"connector": connector, "task": task}.items())


def _notes(worker: Worker) -> list[dict[str, object]] | None:
    [task] = worker.tasks("schema")
    found: list[dict[str, object]] | None = task.get("notes")
    return found


def test_a_running_worker_shows_connects_metrics(
    worker: Worker, stack_kafka: Kafka, unique: Callable[[str], str]
) -> None:
    """The metrics of a task have all names of Connect, and count a record that cannot be decoded."""
    topic = unique("poisoned")
    stack_kafka.create_topic(topic)
    publish(stack_kafka.bootstrap_servers, [RecordedRecord(topic, 0, 0, 0, b"{", b"{broken", ())])
    worker.put_connector("bad", {"connector.class": "LakehouseSink", "topics": topic, "errors.tolerance": "all"})
    task = _task("bad", "0")

    def shown() -> dict[str, float]:
        return {name: value for (name, labels), value in worker.metrics().items() if labels == task}

    def at_rest() -> dict[str, float]:
        """The metrics once the record is committed, and the lag has been measured since."""
        now = shown()
        committed, *waiting = (
            now.get(f"kafka_connect_sink_task_{name}")
            for name in ("offset_commit_completion_total", "sink_record_active_count", "sink_record_lag_max")
        )
        return now if committed and waiting == [0, 0] and now.keys() >= TASK_METRICS else {}

    found = wait_until(at_rest, "metrics of a task that has read all", 30)
    assert {name for name in found if name.startswith("kafka_connect_")} == TASK_METRICS
    for name in ("sink_task_sink_record_read_total", "task_error_total_records_skipped", "sink_task_partition_count"):
        assert found[f"kafka_connect_{name}"] == 1, name
    wait_until(lambda: shown()["kafka_connect_connector_task_running_ratio"] > 0, "time in which the task runs", 30)


def test_tasks_read_again_before_the_sessions_of_killed_ones_end(
    worker: Worker, stack_kafka: Kafka, unique: Callable[[str], str]
) -> None:
    """The next process at the address removes the members of the killed one, whose sessions would block the group."""
    name = unique("killed")  # the sessions of its members block its group for ten minutes after the test
    topics = f"{name}-a", f"{name}-b"
    for topic in topics:
        stack_kafka.create_topic(topic)
    session = {"consumer.override.session.timeout.ms": str(_DEADLINE_SECONDS * 10_000)}
    worker.put_connector(name, {**SHOP, "topics": ",".join(topics), **session})

    def assigned() -> bool:
        partitions = "kafka_connect_sink_task_partition_count"
        return [worker.metrics().get((partitions, _task(name, task))) for task in "01"] == [1, 1]

    wait_until(assigned, "the first assignment", _DEADLINE_SECONDS)
    worker.kill()
    worker.start()
    wait_until(assigned, "the assignment after the kill", _DEADLINE_SECONDS)


def test_connectors_follow_their_files_across_a_kill(
    stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """The owner is stored in Kafka: the next worker changes and deletes what the first one has created from files."""
    name, folder = unique("directory"), tmp_path / "connectors"
    folder.mkdir()
    properties = {
        **SHORT_LIVED,
        "group.id": name,
        "config.storage.topic": f"{name}-configs",
        "status.storage.topic": f"{name}-status",
        "connectors.directory": str(folder),
        "connectors.directory.poll.interval.ms": "500",
    }
    worker = Worker(tmp_path, stack_kafka, tmp_path / "warehouse", properties=properties)
    for connector in ("shop", "gone"):
        config = {**SHOP, "topics": unique(connector), "tasks.max": "1"}
        (folder / f"{connector}.json").write_text(json.dumps({"name": connector, "config": config}))
    worker.start()
    try:
        for connector in ("shop", "gone"):
            wait_until(lambda c=connector: worker.states(c) == ["RUNNING"] * 2, f"{connector} running", 60)
        worker.put_connector("hand", {**SHOP, "topics": unique("hand"), "tasks.max": "1"})
        worker.kill()
        (folder / "gone.json").unlink()
        (folder / "shop.json").write_text(json.dumps({"name": "shop", "config": SHOP}))
        worker.start()
        wait_until(lambda: set(worker.call("GET", "/connectors")) == {"shop", "hand"}, "gone deleted", 60)
        wait_until(lambda: worker.states("shop") == ["RUNNING"] * 3, "shop with two tasks", 60)
        report = worker.call("GET", "/connectors-directory")
        assert [(each["connector"], each["state"]) for each in report["connectors"]] == [("shop", "IN_SYNC")]
        assert [value for (metric, _), value in worker.metrics().items() if metric.endswith("invalid_files")] == [0]
        command = [sys.executable, "-m", "headrace", "apply", "-f", str(folder), "--url", worker.url, "--diff"]
        assert subprocess.run(command, check=False, capture_output=True, text=True).returncode == 0
    finally:
        worker.kill()


def test_a_wrong_client_property_is_refused_by_name(worker: Worker) -> None:
    """The worker refuses the connector, so that no task fails later."""
    config = {**SHOP, "consumer.override.max.poll.recods": "5"}
    answer = http.put(f"{worker.url}/connectors/shop/config", json=config)
    assert answer.status_code == 400
    assert "did you mean max.poll.records" in answer.json()["message"]


def test_a_worker_ends_with_status_0_after_sigterm(
    stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """A worker in standalone mode with a connector from a file ends with status 0 after SIGTERM."""
    connector = tmp_path / "shop.json"
    connector.write_text(json.dumps({"name": unique("shop"), "config": SHOP}))
    port = free_ports(1)[0]
    process = _headrace(tmp_path, "connect-standalone", stack_kafka.bootstrap_servers, port, connector)
    wait_until(lambda: _states(port) == ["RUNNING"] * 3, "running", 60)
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 0


def test_a_worker_that_waits_for_brokers_can_be_stopped(tmp_path: Path) -> None:
    """GET /health reports what the worker waits for."""
    port = free_ports(1)[0]
    connector = tmp_path / "shop.json"
    connector.write_text(json.dumps({"name": "shop", "config": SHOP}))
    process = _headrace(tmp_path, "connect-standalone", "127.0.0.1:1", port, connector)
    wait_until(lambda: "connecting to Kafka" in _unready(port), "what the worker waits for", 30)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert time.monotonic() - began < 30


def test_a_port_in_use_is_reported_and_ends_the_process(tmp_path: Path) -> None:
    """The process ends with an error that names the port before it starts anything else."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = _headrace(tmp_path, "connect-standalone", "127.0.0.1:1", port, tmp_path / "absent.json")
        assert process.wait(60) == 1
    assert f"127.0.0.1:{port} is in use" in (tmp_path / "log").read_text()


def test_a_connector_file_that_is_not_valid_ends_the_process(tmp_path: Path) -> None:
    """In standalone mode the error is in the log; the check needs no broker."""
    connector = tmp_path / "shop.json"
    connector.write_text(json.dumps({"name": "shop", "config": {**SHOP, "taks.max": "1"}}))
    process = _headrace(tmp_path, "connect-standalone", "127.0.0.1:1", free_ports(1)[0], connector)
    assert process.wait(60) == 1
    assert "Did you mean 'tasks.max'" in (tmp_path / "log").read_text()


def _headrace(folder: Path, mode: str, bootstrap: str, port: int, connector: Path) -> subprocess.Popen[bytes]:
    properties = folder / "worker.properties"
    properties.write_text(
        f"bootstrap.servers={bootstrap}\nlisteners=http://127.0.0.1:{port}\nwarehouse={folder / 'warehouse'}\n"
    )
    command = [sys.executable, "-m", "headrace", mode, str(properties), str(connector)]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stderr=log)


def _states(port: int) -> list[str]:
    try:
        statuses = http.get(f"http://127.0.0.1:{port}/connectors?expand=status").json()
    except httpx.TransportError:
        return []
    if "error_code" in statuses or not statuses:
        return []
    [entry] = statuses.values()
    return [entry["status"]["connector"]["state"], *(task["state"] for task in entry["status"]["tasks"])]


def _unready(port: int) -> str:
    """Return why a worker is not ready; nothing if it is or does not answer."""
    try:
        answer = http.get(f"http://127.0.0.1:{port}/health", timeout=10)
    except httpx.TransportError:
        return ""
    return str(answer.json()["message"]) if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else ""
