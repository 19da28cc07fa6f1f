"""Connectors as code: the leader makes the connectors equal to the files of ``connectors.directory``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.rest.worker_api import SHOP, Api, leader_and_follower

from headrace.core.connect.connector_plan import DIRECTORY
from headrace.core.connect.lifecycle import TargetState
from headrace.runtime.worker.connector_directory import ConnectorDirectory
from headrace.runtime.worker.connector_files import ConnectorFiles, read_folder
from headrace_dev.memory.stores import MemoryStores

pytestmark = pytest.mark.anyio
NAMED = {**SHOP, "name": "shop"}
Json = dict[str, Any]


@asynccontextmanager
async def started(folder: Path, **options: str) -> AsyncIterator[Api]:
    """A worker with this folder, whose rounds the test runs."""
    api = Api(**{"connectors.directory": str(folder), **{f"connectors.directory.{k}": v for k, v in options.items()}})
    await api.worker.start()
    await eventually(lambda: api.worker.cluster.leads)
    yield api
    await api.worker.stop()


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A worker with the test's folder."""
    async with started(tmp_path) as api:
        yield api


def write(
    folder: Path, name: str = "shop", *, file: str | None = None, initial: str | None = None, **config: str
) -> None:
    """Write a connector file."""
    document = {"name": name, "config": {**SHOP, **config}, **({"initial_state": initial} if initial else {})}
    (folder / (file or f"{name}.json")).write_text(json.dumps(document))


async def entries(api: Api) -> dict[str, Json]:
    """The connectors of the report, by name."""
    report = (await api.call("GET", "/connectors-directory")).json()
    return {entry["connector"]: entry for entry in report["connectors"]}


async def states(api: Api, rounds: int = 1) -> dict[str, str]:
    """The states after some rounds."""
    for _ in range(rounds):
        await api.directory.reconcile()
    return {name: entry["state"] for name, entry in (await entries(api)).items()}


async def test_files_create_change_and_delete_connectors(api: Api, tmp_path: Path) -> None:
    """Each form of a file defines a connector; a changed file changes it, and a removed file deletes it."""
    write(tmp_path, "shop", **{"reselect.database.password": "${env:PASSWORD}"})
    (tmp_path / "flat.json").write_text(json.dumps({"name": "flat", **SHOP}))
    (tmp_path / "text.properties").write_text("".join(f"{k}={v}\n" for k, v in {"name": "text", **SHOP}.items()))
    assert await states(api) == {"flat": "IN_SYNC", "shop": "IN_SYNC", "text": "IN_SYNC"}
    assert api.herder.connectors() == ["flat", "shop", "text"]
    assert api.herder.config("shop")["reselect.database.password"] == "${env:PASSWORD}"
    await api.until("RUNNING", "RUNNING")
    write(tmp_path, "shop", **{"tasks.max": "2"})
    (tmp_path / "flat.json").unlink()
    await states(api, rounds=2)
    assert api.herder.connectors() == ["shop", "text"]
    assert api.herder.config("shop") == {**NAMED, "tasks.max": "2"}
    await api.until("RUNNING", "RUNNING", "RUNNING")


async def test_a_deletion_waits_for_a_second_reading(api: Api, tmp_path: Path) -> None:
    """A folder that is being filled does not delete connectors; a renamed connector does not run under both names."""
    write(tmp_path, "one")
    await api.directory.reconcile()
    (tmp_path / "one.json").unlink()
    write(tmp_path, "two")
    assert await states(api) == {"one": "PENDING", "two": "PENDING"}
    assert api.herder.connectors() == ["one"]
    assert await states(api) == {"two": "IN_SYNC"}
    assert api.herder.connectors() == ["two"]


async def test_unchanged_files_write_nothing(api: Api, tmp_path: Path) -> None:
    """A second round appends no record to the config topic."""
    write(tmp_path)
    await api.directory.reconcile()
    await api.until("RUNNING", "RUNNING")
    position = api.worker.configs.position()
    assert await states(api) == {"shop": "IN_SYNC"}
    assert api.worker.configs.position() == position


async def test_the_initial_state_counts_at_the_creation_only(api: Api, tmp_path: Path) -> None:
    """A connector that was resumed over REST stays so: pausing and resuming is no drift."""
    write(tmp_path, initial="PAUSED")
    await api.directory.reconcile()
    assert api.worker.configs.state.target_state("shop") is TargetState.PAUSED
    await api.call("PUT", "/connectors/shop/resume")
    write(tmp_path, initial="PAUSED", **{"tasks.max": "2"})
    assert await states(api) == {"shop": "IN_SYNC"}
    assert api.worker.configs.state.target_state("shop") is TargetState.STARTED


async def test_drift_is_corrected(api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A change over REST is replaced in the next round, with a warning that names the option, and counted."""
    write(tmp_path)
    await api.directory.reconcile()
    await api.call("PATCH", "/connectors/shop/config", {"tasks.max": "3"})
    assert await states(api) == {"shop": "IN_SYNC"}
    assert api.herder.config("shop") == NAMED
    assert "shop: changed from" in caplog.text
    assert "(options tasks.max): its configuration was changed over REST" in caplog.text
    assert "headrace_directory_corrections_total 1.0" in metrics(api)


async def test_drift_is_only_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With connectors.directory.drift=report a change over REST stays until the file changes, and is logged once."""
    async with started(tmp_path, drift="report") as api:
        write(tmp_path)
        await api.directory.reconcile()
        await api.call("PATCH", "/connectors/shop/config", {"tasks.max": "3"})
        assert await states(api, rounds=3) == {"shop": "DRIFTED"}
        assert (await entries(api))["shop"]["options"] == ["tasks.max"]
        assert caplog.text.count("differs from") == 1
        assert 'headrace_directory_connectors{state="DRIFTED"} 1.0' in metrics(api)
        assert api.herder.config("shop")["tasks.max"] == "3"
        write(tmp_path, **{"tasks.max": "2"})
        assert await states(api) == {"shop": "IN_SYNC"}
        assert api.herder.config("shop")["tasks.max"] == "2"


async def test_a_connector_of_somebody_else_is_a_conflict(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A connector that was created over REST is neither changed nor deleted, and the log says how to adopt it."""
    await api.create("shop", **{"tasks.max": "4"})
    await api.create("other")
    write(tmp_path)
    assert await states(api, rounds=2) == {"shop": "CONFLICT"}
    assert api.herder.config("shop")["tasks.max"] == "4"
    assert f'to adopt it, PUT /connectors/shop/owner {{"owner": "{DIRECTORY}"}}' in "\n".join(caplog.messages)
    await api.call("PUT", "/connectors/shop/owner", {"owner": DIRECTORY})
    assert await states(api) == {"shop": "IN_SYNC"}
    assert api.herder.config("shop") == NAMED
    (tmp_path / "shop.json").unlink()
    write(tmp_path, "new")
    await states(api, rounds=2)
    assert api.herder.connectors() == ["other", "new"]


INVALID: dict[str, Callable[[Path], object]] = {
    "not JSON": lambda path: path.write_text("{"),
    "too deep": lambda path: path.write_text("[" * 100_000),
    "too large": lambda path: path.write_text(" " * 2_000_000),
    "no name": lambda path: path.write_text(json.dumps(SHOP)),
    "another name in the config": lambda path: path.write_text(json.dumps({"name": "a", "config": {"name": "b"}})),
    "a null": lambda path: path.write_text(json.dumps({"name": "shop", "config": {"topics": None}})),
    "no text": lambda path: path.write_bytes(b"\xff\xfe"),
    "a dangling link": lambda path: (path.unlink(), path.symlink_to("nowhere")),
}


@pytest.mark.parametrize("damage", INVALID.values(), ids=INVALID.keys())
async def test_an_invalid_file_affects_only_itself(api: Api, tmp_path: Path, damage: Callable[[Path], object]) -> None:
    """Its connector stays as it is, the other files are applied, and the report has the file with the reason."""
    write(tmp_path, "shop")
    await api.directory.reconcile()
    damage(tmp_path / "shop.json")
    write(tmp_path, "other")
    await states(api, rounds=2)
    assert api.herder.connectors() == ["shop", "other"]
    assert api.herder.config("shop") == NAMED
    report = (await api.call("GET", "/connectors-directory")).json()
    assert [file["file"] for file in report["files"]] == ["shop.json"]
    assert {entry["connector"]: entry["state"] for entry in report["connectors"]} == {
        "other": "IN_SYNC",
        "shop": "KEPT",
    }
    assert "headrace_directory_invalid_files 1.0" in metrics(api)


async def test_a_refused_configuration_affects_only_itself(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The configuration passes the validation of the REST API, or its connector stays as it is with its error."""
    write(tmp_path, "shop")
    await api.directory.reconcile()
    write(tmp_path, "shop", **{"taks.max": "2"})
    write(tmp_path, "other")
    assert await states(api, rounds=2) == {"other": "IN_SYNC", "shop": "FAILED"}
    assert api.herder.config("shop") == NAMED
    assert "Did you mean 'tasks.max'" in (await entries(api))["shop"]["message"]
    assert caplog.text.count("connector shop is not changed: Connector configuration is invalid") == 1
    assert 'headrace_directory_connectors{state="FAILED"} 1.0' in metrics(api)


async def test_yaml_is_refused_and_other_files_are_ignored(api: Api, tmp_path: Path) -> None:
    """A file in YAML has a problem, because its author expects a connector. Other files are ignored."""
    write(tmp_path, "shop", file="shop.yaml")
    write(tmp_path, "hidden", file=".hidden.json")
    write(tmp_path, "old", file="old.json.bak")
    (tmp_path / "folder.json").mkdir()
    await api.directory.reconcile()
    report = (await api.call("GET", "/connectors-directory")).json()
    assert [file["file"] for file in report["files"]] == ["shop.yaml"]
    assert "write the connector as .json" in report["files"][0]["problem"]
    assert report["ignored"] == ["old.json.bak"]
    assert api.herder.connectors() == []


async def test_a_missing_folder_deletes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A volume that is not mounted changes nothing, whatever connectors.directory.empty says."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    async with started(folder, empty="delete") as api:
        write(folder)
        await api.directory.reconcile()
        folder.rename(tmp_path / "away")
        for _ in range(3):
            await api.directory.reconcile()
        report = (await api.call("GET", "/connectors-directory")).json()
        assert "No such file" in report["problem"]
        assert caplog.text.count("nothing is changed until the folder can be read") == 1
        assert "headrace_directory_readable 0.0" in metrics(api)
        assert api.herder.connectors() == ["shop"]


@pytest.mark.parametrize(("option", "left"), [("keep", ["shop"]), ("delete", [])])
async def test_an_empty_folder(tmp_path: Path, option: str, left: list[str]) -> None:
    """Only with connectors.directory.empty=delete an empty folder deletes the connectors of its files."""
    async with started(tmp_path, empty=option) as api:
        write(tmp_path)
        await api.create("other")
        await api.directory.reconcile()
        (tmp_path / "shop.json").unlink()
        await states(api, rounds=2)
        assert api.herder.connectors() == ["other", *left]


async def test_a_mounted_configmap_is_read_at_one_version(api: Api, tmp_path: Path) -> None:
    """The kubelet writes a folder for each version and replaces the link ..data; the files are links through it."""
    versions = [tmp_path / f"..2026_11_23_{number}" for number in range(2)]
    for version, tasks in zip(versions, ("1", "2"), strict=True):
        version.mkdir()
        write(version, "shop", **{"tasks.max": tasks})
    write(versions[0], "first")
    (tmp_path / "..data").symlink_to(versions[0].name)
    for file in ("shop.json", "first.json"):
        (tmp_path / file).symlink_to(f"..data/{file}")
    assert await states(api) == {"first": "IN_SYNC", "shop": "IN_SYNC"}
    (tmp_path / "..data_tmp").symlink_to(versions[1].name)
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")  # "first.json" still exists as a dangling link
    await states(api, rounds=2)
    assert api.herder.connectors() == ["shop"]
    assert api.herder.config("shop")["tasks.max"] == "2"


async def test_a_dry_run_writes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Log and report contain what would be done, and the error of a configuration that would be refused."""
    async with started(tmp_path, **{"dry.run": "true"}) as api:
        write(tmp_path, "shop")
        write(tmp_path, "bad", **{"taks.max": "2"})
        assert await states(api, rounds=2) == {"bad": "FAILED", "shop": "PENDING"}
        assert (await entries(api))["shop"]["action"] == "create"
        assert caplog.text.count("Connector shop: would be created") == 1
        assert api.herder.connectors() == []


async def test_the_next_leader_continues(tmp_path: Path) -> None:
    """Only the leader reads the folder; after its death the next one knows what belongs to the directory."""
    options = {"connectors.directory": str(tmp_path), "connectors.directory.poll.interval.ms": "100"}
    first = Api(host="one", **options)
    second = Api(MemoryStores(shared=first.stores), host="two", **options)
    reads: list[Path] = []

    def counted(folder: Path) -> ConnectorFiles:
        reads.append(folder)
        return read_folder(folder)

    second.directory = ConnectorDirectory(second.worker, second.herder, counted)
    write(tmp_path, "shop")
    write(tmp_path, "gone")
    for api in (first, second):
        await api.worker.start()
        api.directory.start()
    await eventually(lambda: set(second.herder.connectors()) == {"shop", "gone"})
    assert first.directory.current() is not None
    assert second.directory.current() is None
    assert reads == []
    await first.directory.stop()
    first.stores.group.leave("member-1")
    (tmp_path / "gone.json").unlink()
    write(tmp_path, "shop", **{"tasks.max": "2"})
    await eventually(lambda: second.herder.connectors() == ["shop"])
    await eventually(lambda: second.herder.config("shop").get("tasks.max") == "2")
    await second.directory.stop()
    for api in (first, second):
        await api.worker.stop()


async def test_any_worker_answers_with_the_leaders_report(tmp_path: Path) -> None:
    """A request to another worker is forwarded to the leader."""
    async with leader_and_follower("127.0.0.1", **{"connectors.directory": str(tmp_path)}) as (first, second):
        write(tmp_path)
        await first.directory.reconcile()
        assert set(await entries(second)) == {"shop"}


async def test_a_worker_without_a_folder_says_which_option_to_set() -> None:
    """The answer is 404 with the name of the option, and there are no metrics."""
    api = Api()
    await api.worker.start()
    answer = await api.call("GET", "/connectors-directory")
    assert answer.status == 404
    assert "set connectors.directory" in answer.json()["message"]
    assert "headrace_directory" not in metrics(api)
    await api.worker.stop()


async def test_an_outage_of_the_config_topic_is_retried(api: Api, tmp_path: Path) -> None:
    """A round whose write fails changes nothing, and the next one tries again."""
    write(tmp_path)
    api.stores.configs.outage = "no broker answers"
    await api.directory.reconcile()
    assert api.herder.connectors() == []
    api.stores.configs.outage = None
    await eventually(lambda: api.worker.cluster.leads)
    assert await states(api) == {"shop": "IN_SYNC"}


def metrics(api: Api) -> str:
    """The worker's metrics as text."""
    return api.metrics.exposition()[0].decode()
