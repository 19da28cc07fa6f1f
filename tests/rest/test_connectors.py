"""Requests that the transcript lacks: start-up, offsets, failures, restarts of the worker, Headrace's connector."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.fix_asyncio import eventually
from support.rest.worker_api import SHOP, Api

from headrace import __version__
from headrace.core.connect.lifecycle import State, TargetState
from headrace.core.connect.status import Status
from headrace.core.model.errors import Fatal, Retriable
from headrace.runtime.worker.loggers import Loggers
from headrace_dev.memory.stores import MemoryStores

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A worker that has started."""
    api = Api()
    await api.worker.start()
    yield api
    await api.worker.stop()


async def test_every_path_answers_503_with_a_body_until_the_worker_is_up() -> None:
    """Probes and clients can distinguish a start from a fault from the first moment."""
    api = Api()
    health, listing = await api.call("GET", "/health"), await api.call("GET", "/connectors")
    assert (health.status, health.json()["status"]) == (503, "starting")
    assert "The worker is currently starting" in health.json()["message"]
    assert (listing.status, listing.json()["error_code"]) == (503, 503)
    await api.worker.stop()


async def test_notes_are_in_the_tasks_status(api: Api) -> None:
    """The status has notes only if there are any; a requested restart removes them, a failure does not."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    assert all("notes" not in task for task in (await api.status())["tasks"])
    api.worker.statuses.note("shop", 0, "no positions", "shop.public.orders")
    note = [{"note": "no positions", "where": ["shop.public.orders"]}]
    api.tasks.tasks["shop-0"].fail(Fatal("broken"))
    await api.until("RUNNING", "FAILED")
    assert [task["notes"] for task in (await api.status())["tasks"]] == [note]
    assert (await api.call("GET", "/connectors/shop/tasks/0/status")).json()["notes"] == note
    expanded = (await api.call("GET", "/connectors?expand=status")).json()
    assert expanded["shop"]["status"]["tasks"][0]["notes"] == note
    await api.call("POST", "/connectors/shop/tasks/0/restart")
    await api.until("RUNNING", "RUNNING")
    assert all("notes" not in task for task in (await api.status())["tasks"])


async def test_a_target_state_that_cannot_be_written_is_an_error(api: Api) -> None:
    """Kafka is down: the answer is an error and the state has not changed."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    api.stores.configs.outage = "no broker"
    answer = await api.call("PUT", "/connectors/shop/pause")
    assert (answer.status, answer.json()["message"]) == (500, "Error writing target state to Kafka")
    assert (await api.call("GET", "/connectors")).json() == ["shop"]


async def test_a_fatal_error_fails_the_task_with_a_trace_that_consoles_can_read(api: Api) -> None:
    """The first line of the trace is the error, then frames, then Caused by."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    error = Fatal("the table is somebody else's; stop the other writer")
    error.__cause__ = OSError("no space left on device")
    api.tasks.tasks["shop-0"].fail(error)
    await api.until("RUNNING", "FAILED")
    trace = (await api.status())["tasks"][0]["trace"]
    assert trace.startswith("headrace.core.model.errors.Fatal: the table is somebody else's")
    assert "\nCaused by: OSError: no space left on device" in trace


async def test_a_failed_task_runs_again_after_restart_with_only_failed(api: Api) -> None:
    """The restart starts the failed task and does not restart the running one."""
    await api.create(**{"tasks.max": "2"})
    await api.until("RUNNING", "RUNNING", "RUNNING")
    healthy = api.tasks.tasks["shop-1"]
    api.tasks.tasks["shop-0"].fail(Fatal("broken"))
    await api.until("RUNNING", "FAILED", "RUNNING")
    answer = await api.call("POST", "/connectors/shop/restart?includeTasks=true&onlyFailed=true")
    assert answer.status == 202
    assert [task["state"] for task in answer.json()["tasks"]] == ["RESTARTING", "RUNNING"]
    assert answer.json()["tasks"][0]["trace"].startswith("headrace.core.model.errors.Fatal: broken")
    await api.until("RUNNING", "RUNNING", "RUNNING")
    assert api.tasks.tasks["shop-1"] is healthy


async def test_a_restart_is_requested_although_everything_is_restarting(api: Api) -> None:
    """The answer equals the status before it. Every worker still receives the request."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    api.tasks.refusal = Retriable("the database is down")
    api.tasks.tasks["shop-0"].fail(Retriable("the database is down"))
    await api.until("RUNNING", "RESTARTING")
    api.herder.restart("shop")  # the instance is RESTARTING until the event loop runs
    before, records = api.herder.status("shop"), api.worker.configs.position()
    assert [before.connector.state, *(task.state for _, task in before.tasks)] == [State.RESTARTING] * 2
    answer = await api.herder.restart_with_tasks("shop", include_tasks=True, only_failed=False)
    assert answer == before
    assert api.worker.configs.position() == records + 1
    api.tasks.refusal = None
    await api.until("RUNNING", "RUNNING")


async def test_a_passing_failure_heals_by_itself(api: Api) -> None:
    """The task restarts with back-off, and its status has the error until then."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    first = api.tasks.tasks["shop-0"]
    api.tasks.refusal = Retriable("the database is down")
    first.fail(Retriable("the database is down"))
    await eventually(lambda: api.tasks.made > 3)
    seen = await api.status()
    assert seen["tasks"][0]["state"] == "RESTARTING"
    assert "the database is down" in seen["tasks"][0]["trace"]
    api.tasks.refusal = None
    await api.until("RUNNING", "RUNNING")
    assert first.calls == ["start", "stop"]


async def test_pause_keeps_the_task_and_stop_ends_it(api: Api) -> None:
    """The task of a paused connector stays in its group; a stopped connector has no tasks."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    task = api.tasks.tasks["shop-0"]
    await api.call("PUT", "/connectors/shop/pause")
    await api.until("PAUSED", "PAUSED")
    await api.call("PUT", "/connectors/shop/resume")
    await api.until("RUNNING", "RUNNING")
    await api.call("PUT", "/connectors/shop/stop")
    await api.until("STOPPED")
    assert task.calls == ["start", "pause", "resume", "stop"]
    assert (await api.call("GET", "/connectors/shop/tasks")).json() == []


async def test_a_task_that_cannot_pause_is_ended_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker stops a task that does not pause, because later requests for the connector would wait for it."""
    api = Api(**{"task.shutdown.graceful.timeout.ms": "10"})
    await api.worker.start()
    await api.create()
    await api.until("RUNNING", "RUNNING")
    task = api.tasks.tasks["shop-0"]
    monkeypatch.setattr(task, "pause", asyncio.Event().wait)
    await api.call("PUT", "/connectors/shop/pause")
    await api.until("PAUSED", "PAUSED")
    assert task.calls == ["start", "stop"]
    await api.call("PUT", "/connectors/shop/resume")
    await api.until("RUNNING", "RUNNING")
    await api.call("DELETE", "/connectors/shop")
    await eventually(lambda: api.worker.statuses.connector("shop") is None)
    await api.worker.stop()


async def test_a_paused_connector_is_paused_after_a_restart_of_the_worker(api: Api) -> None:
    """A restarted worker starts the tasks of a paused connector only after resume."""
    await api.create(**{"tasks.max": "2"})
    await api.until("RUNNING", "RUNNING", "RUNNING")
    await api.call("PUT", "/connectors/shop/pause")
    await api.until("PAUSED", "PAUSED", "PAUSED")
    await api.worker.stop()
    again = Api(api.stores)
    await again.worker.start()
    await again.until("PAUSED", "PAUSED", "PAUSED")
    assert again.tasks.made == 0
    await again.call("PUT", "/connectors/shop/resume")
    await again.until("RUNNING", "RUNNING", "RUNNING")
    await again.worker.stop()


async def test_a_task_that_fails_while_paused_waits_for_resume(api: Api) -> None:
    """A retriable error does not restart a task during the pause."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    await api.call("PUT", "/connectors/shop/pause")
    await api.until("PAUSED", "PAUSED")
    api.tasks.tasks["shop-0"].fail(Retriable("evicted"))
    await eventually(lambda: api.tasks.tasks["shop-0"].calls[-1] == "stop")
    assert (await api.status())["tasks"][0]["state"] == "PAUSED"
    assert api.tasks.made == 1
    await api.call("PUT", "/connectors/shop/resume")
    await api.until("RUNNING", "RUNNING")
    assert api.tasks.made == 2


async def test_a_new_configuration_restarts_the_tasks_and_the_same_one_does_not(api: Api) -> None:
    """Strimzi and Terraform send the same configuration repeatedly."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    await api.call("PUT", "/connectors/shop/config", SHOP)
    await api.until("RUNNING", "RUNNING")
    assert api.tasks.made == 1
    await api.call("PUT", "/connectors/shop/config", {**SHOP, "batch.linger.ms": "5"})
    await eventually(lambda: api.tasks.made == 2)
    await api.until("RUNNING", "RUNNING")


async def test_unknown_options_are_refused_with_the_right_one(api: Api) -> None:
    """POST and validate return the same error."""
    answer = await api.create(**{"taks.max": "2"})
    assert answer.status == 400
    assert "Unknown configuration 'taks.max'. Did you mean 'tasks.max'" in answer.json()["message"]
    target = "/connector-plugins/LakehouseSink/config/validate"
    infos = (await api.call("PUT", target, {**SHOP, "name": "x", "taks.max": "2"})).json()
    faulty = [info for info in infos["configs"] if info["value"]["errors"]]
    assert infos["error_count"] == 1
    assert faulty[0]["definition"]["name"] == "taks.max"


async def test_secrets_are_not_in_validation_answers(api: Api) -> None:
    """The answers contain no secrets, because consoles display and log them."""
    target = "/connector-plugins/LakehouseSink/config/validate"
    config = {
        **SHOP,
        "name": "x",
        "reselect.database.password": "s3cret-1",
        "consumer.override.sasl.jaas.config": "s3cret-2",
        "consumer.override.ssl.key.password": "s3cret-3",
        "database.pasword": "s3cret-4",
    }
    answer = await api.call("PUT", target, config)
    assert answer.status == 200
    assert b"s3cret" not in answer.body


async def test_the_state_of_every_task_is_a_metric(api: Api) -> None:
    """The metrics contain the state of every task, for alerts."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    text = (await api.call("GET", "/metrics")).body.decode()
    assert 'kafka_connect_connector_status{connector="shop",status="running"} 1.0' in text
    assert 'kafka_connect_connector_task_status{connector="shop",status="running",task="0"} 1.0' in text


async def test_what_strimzis_dashboard_asks_for_is_there(api: Api) -> None:
    """Counts of this worker and of each connector, its class, type and version, and starts by result."""
    await api.create()
    await api.create("pair", **{"tasks.max": "2"})
    await api.until("RUNNING", "RUNNING")
    await api.until("RUNNING", "RUNNING", "RUNNING", name="pair")
    api.tasks.tasks["pair-1"].fail(Fatal("broken"))
    await api.until("RUNNING", "RUNNING", "FAILED", name="pair")
    text = (await api.call("GET", "/metrics")).body.decode()
    for line in (
        "worker_connector_count 2.0",
        "worker_task_count 3.0",
        "worker_connector_startup_attempts_total 2.0",
        "worker_connector_startup_success_total 2.0",
        "worker_connector_startup_failure_total 0.0",
        "worker_task_startup_attempts_total 3.0",
        "worker_task_startup_success_total 3.0",
        "worker_task_startup_failure_total 0.0",
        'worker_connector_total_task_count{connector="pair"} 2.0',
        'worker_connector_running_task_count{connector="pair"} 1.0',
        'worker_connector_failed_task_count{connector="pair"} 1.0',
        'worker_connector_paused_task_count{connector="pair"} 0.0',
        'worker_connector_unassigned_task_count{connector="pair"} 0.0',
        'worker_connector_destroyed_task_count{connector="pair"} 0.0',
        'worker_connector_restarting_task_count{connector="pair"} 0.0',
        'connector_connector_class{connector="shop",connector_class="headrace.LakehouseSinkConnector"} 1.0',
        'connector_connector_type{connector="shop",connector_type="sink"} 1.0',
        f'connector_connector_version{{connector="shop",connector_version="{__version__}"}} 1.0',
        'connector_task_running_ratio{connector="shop",task="0"}',
    ):
        assert f"\nkafka_connect_{line}" in text, line


async def test_a_worker_shows_what_it_runs_itself(api: Api) -> None:
    """The sum over all workers counts every task once."""
    elsewhere = Status(State.RUNNING, "other:8083", 1)
    await api.worker.configs.put_connector("theirs", SHOP, TargetState.STOPPED)
    await api.until("STOPPED", name="theirs")
    api.worker.statuses.put_connector("theirs", elsewhere)
    api.worker.statuses.put_task("theirs", 0, elsewhere)
    text = (await api.call("GET", "/metrics")).body.decode()
    assert "kafka_connect_worker_connector_count 0.0" in text
    assert "kafka_connect_worker_task_count 0.0" in text
    assert "theirs" not in text


async def test_a_deleted_connector_is_not_in_the_metrics(api: Api) -> None:
    """Its error counters go with it, as JMX metrics do in Connect; a connector that is stopped keeps them."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    api.metrics.task("shop", 0, lambda topic: None).on_errant_records(1, skipped=False, logged=True)
    counter = b'kafka_connect_task_error_total_record_failures{connector="shop",task="0"} 1.0'
    await api.call("PUT", "/connectors/shop/stop")
    await api.until("STOPPED")
    assert counter in (await api.call("GET", "/metrics")).body
    await api.call("DELETE", "/connectors/shop")
    await eventually(lambda: b'connector="shop"' not in api.metrics.exposition()[0])


async def test_a_deleted_connector_can_be_made_again_at_once(api: Api) -> None:
    """The worker stops the old tasks before it starts the new ones."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    old = api.tasks.tasks["shop-0"]
    await api.call("DELETE", "/connectors/shop")
    await api.create()
    await eventually(lambda: api.tasks.made == 2)
    await api.until("RUNNING", "RUNNING")
    assert old.calls == ["start", "stop"]
    await api.call("DELETE", "/connectors/shop")
    await api.until("none")


async def test_a_level_for_the_cluster_reaches_every_worker() -> None:
    """The level is written to the config topic; an invalid one is refused before."""
    stores = MemoryStores()
    workers = [Api(stores), Api(stores)]
    loggers = [Loggers(each.worker.now, logging.Manager(logging.RootLogger(logging.INFO))) for each in workers]
    for each, own in zip(workers, loggers, strict=True):
        each.worker.loggers = own
        await each.worker.start()
    answer = await workers[0].call("PUT", "/admin/loggers/shop?scope=cluster", {"level": "debug"})
    refused = await workers[0].call("PUT", "/admin/loggers/aiokafka?scope=cluster", {"level": "debug"})
    assert (answer.status, answer.body, refused.status) == (204, b"", 400)
    assert [own.level("shop").level for own in loggers] == ["DEBUG", "DEBUG"]
    for each in workers:
        await each.worker.stop()


async def test_levels_are_not_served_where_they_are_switched_off() -> None:
    """admin.listeners is empty, as in Connect."""
    api = Api(**{"admin.listeners": ""})
    await api.worker.start()
    assert (await api.call("GET", "/admin/loggers")).status == 404
    await api.worker.stop()


def mounted(folder: Path) -> dict[str, str]:
    """Return the worker's options for secrets in a folder."""
    return {
        "config.providers": "dir",
        "config.providers.dir.class": "DirectoryConfigProvider",
        "config.providers.dir.param.allowed.paths": str(folder),
    }


async def test_only_the_task_gets_a_secret(tmp_path: Path) -> None:
    """The worker stores and shows the reference; it reads the value at each start of the task."""
    secret = tmp_path / "user"
    secret.write_text("reader")
    api = Api(**mounted(tmp_path))
    await api.worker.start()
    reference = f"${{dir:{tmp_path}:user}}"
    created = await api.create(**{"table.namespace": reference})
    await api.until("RUNNING", "RUNNING")
    shown = [created, *[await api.call("GET", f"/connectors/shop{path}") for path in ("", "/config", "/tasks")]]
    assert all(reference in answer.body.decode() and "reader" not in answer.body.decode() for answer in shown)
    assert api.tasks.configs["shop-0"].tables.namespace == "reader"
    secret.write_text("writer")
    await api.call("POST", "/connectors/shop/tasks/0/restart")
    await eventually(lambda: api.tasks.configs["shop-0"].tables.namespace == "writer")
    await api.worker.stop()


async def test_password_of_a_database_is_read_for_each_connection(tmp_path: Path) -> None:
    """A running task gets the present password from the config provider, without a restart."""
    secret = tmp_path / "password"
    secret.write_text("first")
    api = Api(**mounted(tmp_path))
    await api.worker.start()
    database = {"hostname": "db", "user": "reader", "dbname": "shop", "password": f"${{dir:{tmp_path}:password}}"}
    await api.create(**{f"reselect.database.{name}": value for name, value in database.items()})
    await api.until("RUNNING", "RUNNING")
    given = api.tasks.configs["shop-0"].reselect.database
    assert given is not None
    assert given.current_password() == "first"
    secret.write_text("second")
    assert given.current_password() == "second"
    secret.unlink()
    secret.mkdir()
    with pytest.raises(Retriable, match=r"^reselect\.database\.password: Could not read file"):
        given.current_password()
    await api.worker.stop()


async def test_a_secret_that_is_no_number_any_more_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The restarted task fails; trace and log contain only the name of the option."""
    secret = tmp_path / "rows"
    secret.write_text("500")
    api = Api(**mounted(tmp_path))
    await api.worker.start()
    await api.create(**{"batch.max.records": f"${{dir:{tmp_path}:rows}}"})
    await api.until("RUNNING", "RUNNING")
    secret.write_text("hunter2")
    api.tasks.tasks["shop-0"].fail(Retriable("the database is down"))
    await api.until("RUNNING", "FAILED")
    [task] = (await api.call("GET", "/connectors/shop/status")).json()["tasks"]
    assert "batch.max.records" in task["trace"]
    assert "hunter2" not in task["trace"] + caplog.text
    await api.worker.stop()
