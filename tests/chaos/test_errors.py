"""Faults in the environment of a worker: each is reported in status and log, loses no change, and can be corrected."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chaos.lane import Lane
from support.kafka.kafka_harness import first_messages, producer

from headrace_connectors.kafka.member import COMMIT_SECONDS
from headrace_dev.demo.load import TABLES
from headrace_dev.server import LOOPBACK, http, wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.chaos]

TRANSCRIPT = Path(__file__).parents[1] / "fixtures" / "connect-rest" / "transcript.jsonl"
"""Requests to Kafka Connect 4.3.1 and its answers."""

ALWAYS_RESELECTING = {"post.processors.reselector.reselect.cache.enabled": "false"}
"""Every cell that an event leaves out is read from the database."""


def test_a_record_that_cannot_be_decoded(lane: Lane, stack: Stack) -> None:
    """Its table fails with topic and offset, the others continue; with tolerance it is in the dead letter queue."""
    lane.reconfigure()  # another test may have tolerated bad records
    lane.begin_load()
    topic, dead = lane.topics[0], f"{lane.name}-dead"
    with producer(stack.kafka) as out:
        out.produce(topic, b"{broken", b"{not json")

    def failed() -> Any:
        return [table for table in lane.worker.tables(lane.name) if table["state"] == "FAILED"]

    [table] = wait_until(failed, "failed table", 180)
    assert f"{topic}-0 at offset" in table["trace"]
    written = lane.written()
    wait_until(lambda: lane.written() > written, "rows of other tables")
    assert lane.states() == {"RUNNING", "FAILED"}, "the connector, and its task with a failed table"
    lane.worker.put_connector(lane.name, lane.sink_config(**dead_letters(dead)))
    assert lane.prove() > 0
    assert lane.worker.tables(lane.name) == []
    [letter] = first_messages(stack.kafka.bootstrap_servers, dead, 1)
    assert (letter.key(), letter.value()) == (b"{not json", b"{broken")
    assert dict(letter.headers() or ())["__connect.errors.topic"] == topic.encode()


def test_a_record_that_cannot_be_decoded_stops_the_task_as_in_kafka_connect(lane: Lane, stack: Stack) -> None:
    """With ``errors.isolation=task``, status and restart have the form of Kafka Connect's answers for such a record."""
    lane.reconfigure(errors__isolation="task")
    lane.begin_load()
    with producer(stack.kafka) as out:
        out.produce(lane.topics[0], b"{broken", b"{not json")
    wait_until(lambda: "FAILED" in lane.states(), "failed task", 60)
    assert form(lane.worker.status(lane.name)) == form(answer("GET", "/connectors/f2/status"))
    assert f"Tolerance exceeded in error handler: {lane.topics[0]}-0 at offset" in lane.trace()
    restart = "restart?includeTasks=true&onlyFailed=true"
    restarted = lane.worker.call("POST", f"/connectors/{lane.name}/{restart}")
    assert form(restarted) == form(answer("POST", f"/connectors/f2/{restart}"))
    wait_until(lambda: "FAILED" in lane.states(), "task that failed at the same record again", 60)
    lane.worker.put_connector(lane.name, lane.sink_config(**dead_letters(f"{lane.name}-after")))
    assert lane.prove() > 0


def answer(method: str, path: str) -> dict[str, Any]:
    """What Kafka Connect first answered to a request while sinks failed."""
    exchanges = map(json.loads, TRANSCRIPT.read_text().splitlines())
    wanted = ("failing sinks", method, path)
    found = next(each for each in exchanges if (each["section"], each["method"], each["path"]) == wanted)
    document: dict[str, Any] = json.loads(found["response_body"])
    return document


def form(status: Mapping[str, Any]) -> object:
    """States and members of a status, without names, versions and texts."""
    parts = (status["connector"], *status["tasks"])
    return sorted(status), [(part["state"], sorted(part)) for part in parts]


def dead_letters(topic: str) -> dict[str, str]:
    """Options for a sink that continues after bad records and writes them to ``topic``."""
    return {
        "errors__tolerance": "all",
        "errors__deadletterqueue__topic__name": topic,
        "errors__deadletterqueue__topic__replication__factor": "1",
        "errors__deadletterqueue__context__headers__enable": "true",
    }


@pytest.mark.parametrize("seconds", [0, pytest.param(75, marks=pytest.mark.long)])
def test_the_broker_killed(lane: Lane, stack: Stack, seconds: int) -> None:
    """The worker loses its only broker during a batch, fails no task permanently, and resumes when it is back.

    A dead letter queue, which a task opens when it starts, does not change that.
    """
    lane.reconfigure(**dead_letters(f"{lane.name}-unused"))
    written = lane.written()
    lane.begin_load()
    wait_until(lambda: lane.written() > written, "rows that the new task has written")
    assert wait_until(lane.events_in_hand, "batch in hand") > 0
    logged = len(lane.log())
    stack.kafka.kill()
    try:
        wait_until(lambda: "Unable connect to node" in lane.log()[logged:], "worker that misses its broker")
        outlasts(lane, seconds)
        assert seconds <= COMMIT_SECONDS or "Kafka did not confirm offsets within" in lane.log()[logged:]
    finally:
        stack.kafka.start()  # other tests need the broker
    wait_until(lambda: lane.states() == {"RUNNING"}, "running tasks", 120)
    assert lane.prove() > 0


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.timeout(900)
def test_the_database_killed(lane: Lane, stack: Stack, seconds: int) -> None:
    """The worker names the database that it cannot read, fails no task permanently, and resumes when it is back."""
    lane.reconfigure(**ALWAYS_RESELECTING)
    lane.begin_load()
    answered = lane.reselects("ok")
    wait_until(lambda: lane.reselects("ok") > answered, "rows read from the database")
    lane.order("pause", "PAUSED")
    wait_until(lambda: lane.backlog() > 300, "records that wait for the worker")
    refused, logged = lane.reselects("transient"), len(lane.log())
    with lane.without_database():
        lane.worker.call("PUT", f"/connectors/{lane.name}/resume")
        wait_until(lambda: lane.reselects("transient") > refused, "rows asked for in vain", 120)
        away = f'database "{lane.name}" at {LOOPBACK}:{stack.postgres.port} (user "postgres") cannot be reached'
        wait_until(lambda: away in lane.log()[logged:], "warning that names the database", 60)
        outlasts(lane, seconds)
        lane.worker.call("POST", f"/connectors/{lane.name}/restart?includeTasks=true")
        wait_until(lambda: "RESTARTING" in lane.states() and away in lane.trace(), "trace that names the database", 60)
        answered = lane.reselects("ok")
    lane.begin_load()
    wait_until(lambda: lane.reselects("ok") > answered, "rows read from the database again", 180)
    wait_until(lambda: lane.states() == {"RUNNING"}, "running tasks", 120)
    assert lane.prove() > 0


def outlasts(lane: Lane, seconds: float) -> None:
    """Check for ``seconds`` that no task fails permanently."""
    with pytest.raises(TimeoutError, match="failed task"):
        wait_until(lambda: "FAILED" in lane.states(), "failed task", seconds)


def test_a_wrong_password(lane: Lane) -> None:
    """The task names the user and the options to correct, but no password; with the right password it resumes."""
    right, wrong = "a right pass phrase", "a wrong pass phrase"
    reader = f"{lane.name}_reader"
    lane.create_reader(reader, right)
    login = {"reselect.database.user": reader, "reselect.database.password": wrong}
    lane.begin_load()
    logged = len(lane.log())
    put(lane.worker, lane.name, lane, login)
    wait_until(lambda: "FAILED" in lane.states(), "failed task")
    trace = lane.trace()
    assert f'database "{lane.name}"' in trace
    assert f'password authentication failed for user "{reader}"' in trace
    assert "correct reselect.database.password" in trace
    login["reselect.database.password"] = right
    lane.reconfigure(**ALWAYS_RESELECTING, **login)
    answered = lane.reselects("ok")
    wait_until(lambda: lane.reselects("ok") > answered, "rows read by the reader")
    assert lane.prove() > 0
    assert not any(password in text for password in (right, wrong) for text in (trace, lane.log()[logged:]))


def test_an_unknown_option(lane: Lane) -> None:
    """The worker refuses it with the right spelling; running tasks continue."""
    config = lane.sink_config(batch__max__record="5")
    answer = http.put(f"{lane.worker.url}/connectors/{lane.name}/config", json=config, timeout=30)
    assert answer.status_code == 400
    assert "batch.max.records" in answer.json()["message"]
    assert lane.states() == {"RUNNING"}


def test_a_warehouse_that_cannot_be_written(lane: Lane, tmp_path: Path) -> None:
    """The task names the path; after the path is repaired, a restart suffices."""
    obstacle = tmp_path / "lake"
    obstacle.write_text("a file where a folder should be")
    with running(lane.other_worker("walled", obstacle / "warehouse")) as worker:
        put(worker, "walled", lane)
        wait_until(lambda: str(obstacle) in worker.traces("walled"), "trace that names the path", 120)
        obstacle.unlink()
        worker.call("POST", "/connectors/walled/restart?includeTasks=true")
        applied(worker, "walled", lane, obstacle / "warehouse")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 kB, where root may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", folder], capture_output=True)
    if mount.returncode:
        pytest.skip(f"needs to mount a tmpfs: {mount.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.long
def test_a_full_disk(lane: Lane, small_disk: Path) -> None:
    """The task reports it; when there is free space, no row is missing.

    ``test_a_warehouse_that_cannot_be_written`` is the short form.
    """
    with running(lane.other_worker("tight", small_disk / "warehouse")) as worker:
        put(worker, "tight", lane)
        wait_until(lambda: "no space left" in worker.traces("tight").lower(), "trace that names the cause", 120)
        subprocess.run(["mount", "-o", "remount,size=500m", small_disk], check=True)
        worker.call("POST", "/connectors/tight/restart?includeTasks=true")
        applied(worker, "tight", lane, small_disk / "warehouse")


@contextmanager
def running(worker: Worker) -> Iterator[Worker]:
    """Starts a worker, and kills it at the end."""
    worker.start()
    try:
        yield worker
    finally:
        worker.kill()


def put(worker: Worker, connector: str, lane: Lane, changes: Mapping[str, str] | None = None) -> None:
    """Create a connector over the lane's topics, running or not; they contain a record that the other tests ignore."""
    config = lane.sink_config(errors__tolerance="all", **(changes or {}))
    http.put(f"{worker.url}/connectors/{connector}/config", json=config, timeout=60).raise_for_status()


def applied(worker: Worker, connector: str, lane: Lane, warehouse: Path) -> None:
    """Wait until the other worker has applied all changes, then compare the tables."""
    wait_until(lambda: lane.applied_by(worker, connector), "everything applied", 120, 0.5)
    assert sum(lane.compare(table, warehouse) for table in TABLES) > 0
