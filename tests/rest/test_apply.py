"""``headrace apply`` against a worker's REST API over a real connection, and against one without owners."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from support.rest.served import served
from support.rest.worker_api import SHOP, Api

from headrace.core.connect.connector_plan import DIRECTORY
from headrace.core.connect.lifecycle import TargetState
from headrace.core.model.errors import ConfigError, RestError
from headrace.rest.client import ConnectClient, Credentials
from headrace_app.apply import ApplyArguments, apply
from headrace_app.command import main

pytestmark = pytest.mark.anyio
NAMED = {**SHOP, "name": "shop"}


@dataclass
class Command:
    """The command on a folder, with the worker that it talks to."""

    api: Api
    url: str
    folder: Path
    capsys: pytest.CaptureFixture[str]

    async def run(self, *options: str, path: Path | None = None) -> tuple[int, str]:
        """Return exit status and both outputs."""
        given = ["apply", "-f", str(path or self.folder), "--url", self.url, *options]
        status = await asyncio.to_thread(main, given)
        printed = self.capsys.readouterr()
        return status, printed.out + printed.err

    def write(self, name: str = "shop", *, initial: str | None = None, **config: str) -> Path:
        """Write a connector file."""
        state = {"initial_state": initial} if initial else {}
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps({"name": name, "config": {**SHOP, **config}, **state}))
        return file


@pytest.fixture
async def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Command]:
    """The command with a started worker."""
    api = Api()
    folder = tmp_path / "connectors"
    folder.mkdir()
    await api.worker.start()
    async with served(api.app) as url:
        yield Command(api, url, folder, capsys)
    await api.worker.stop()


async def test_connectors_follow_their_files(command: Command) -> None:
    """Create, change, leave and delete: one line for each connector, and the second run changes nothing."""
    command.write("shop")
    command.write("old", initial="PAUSED")
    assert await command.run() == (0, "old created\nshop created\n")
    assert command.api.worker.configs.state.target_state("old") is TargetState.PAUSED
    assert await command.run() == (0, "old unchanged\nshop unchanged\n")
    command.write("shop", **{"tasks.max": "2"})
    (command.folder / "old.json").unlink()
    assert await command.run() == (0, "old kept: no file; --prune deletes it\nshop changed (tasks.max)\n")
    assert await command.run("--prune") == (0, "old deleted\nshop unchanged\n")
    assert command.api.herder.connectors() == ["shop"]
    assert command.api.herder.config("shop") == {**NAMED, "tasks.max": "2"}


async def test_connectors_of_others_stay(command: Command) -> None:
    """A connector that was created over REST, or by another set, is changed and deleted only after --adopt."""
    await command.api.create("shop")
    await command.api.create("hand")
    command.write("shop", **{"tasks.max": "2"})
    status, text = await command.run("--prune")
    assert status == 1
    assert "shop conflict (shop.json): it was created over REST" in text
    assert "--adopt" in text
    assert command.api.herder.config("shop") == NAMED
    assert await command.run("--adopt") == (0, "shop changed (tasks.max)\n")
    assert await command.run("--prune") == (0, "shop unchanged\n")
    command.write("shop", **{"tasks.max": "3"})
    status, text = await command.run("--set", "other")
    assert (status, "its owner is connectors" in text) == (1, True)
    (command.folder / "shop.json").unlink()
    assert (await command.run("--set", "other", "--prune", "--yes"))[0] == 0
    assert (await command.run("--prune", "--yes"))[0] == 0
    assert command.api.herder.connectors() == ["hand"]


async def test_a_connector_of_the_workers_directory_is_a_conflict(command: Command) -> None:
    """Files on the cluster and on a laptop do not change the same connector in turns."""
    await command.api.create()
    await command.api.call("PUT", "/connectors/shop/owner", {"owner": DIRECTORY})
    command.write("shop", **{"tasks.max": "2"})
    status, text = await command.run()
    assert (status, f"its owner is {DIRECTORY}" in text) == (1, True)
    assert (await command.run("--set", DIRECTORY))[0] == 2


async def test_a_diff_changes_nothing_and_shows_no_password(command: Command) -> None:
    """Values of PASSWORD options and credentials in URLs are hidden; references are shown. The status is as diff's."""
    before = {"reselect.database.password": "old-secret", "tasks.max": "1", "collection.name.format": "a"}
    after = {"reselect.database.password": "new-secret", "tasks.max": "2", "batch.max.records": "5"}
    command.write("shop", **before)
    await command.run()
    await command.api.until("RUNNING", "RUNNING")
    position = command.api.worker.configs.position()
    command.write("shop", **after)
    command.write("new", **{"reselect.database.password": "${env:PASSWORD}"})
    status, text = await command.run("--diff")
    assert status == 1
    assert "secret" not in text
    assert text.splitlines() == [
        "new: create (new.json)",
        "  + connector.class = LakehouseSink",
        "  + name = new",
        "  + reselect.database.password = ${env:PASSWORD}",
        f"  + topics = {SHOP['topics']}",
        "shop: change (shop.json)",
        "  + batch.max.records = 5",
        "  - collection.name.format = a",
        "  - reselect.database.password = [hidden]",
        "  + reselect.database.password = [hidden]",
        "  - tasks.max = 1",
        "  + tasks.max = 2",
    ]
    assert command.api.worker.configs.position() == position
    await command.run()
    assert await command.run("--diff") == (0, "")


async def test_a_diff_shows_errors(command: Command) -> None:
    """An invalid configuration and an unreadable file give status 2."""
    command.write("shop", **{"taks.max": "2"})
    status, text = await command.run("--diff")
    assert (status, "Did you mean 'tasks.max'" in text) == (2, True)
    (command.folder / "shop.json").write_text("{")
    status, text = await command.run("--diff")
    assert (status, "shop.json: cannot be read as a connector" in text) == (2, True)


async def test_a_diff_hides_options_of_an_unknown_class(command: Command) -> None:
    """The worker does not know which of them are passwords; the options of the framework are none."""
    command.write(**{"connector.class": "Unknown", "connection.pwd": "hunter2"})
    status, text = await command.run("--diff")
    assert (status, "hunter2" in text) == (2, False)
    assert "  + connection.pwd = [hidden]\n  + connector.class = Unknown\n" in text


async def test_drift_is_named(command: Command) -> None:
    """The command replaces a change that somebody has made over REST, and says so."""
    command.write()
    await command.run()
    await command.api.call("PATCH", "/connectors/shop/config", {"tasks.max": "4"})
    status, text = await command.run("--diff")
    assert (status, text.splitlines()[0]) == (1, "shop: change (shop.json): its configuration was changed over REST")
    assert (await command.run())[0] == 0
    assert command.api.herder.config("shop") == NAMED


async def test_an_invalid_file_does_not_stop_the_others(command: Command) -> None:
    """The status is 1, the other connectors are applied, and the connector of the file is not deleted."""
    command.write("shop")
    command.write("bad")
    await command.run()
    (command.folder / "shop.json").write_text("{")
    command.write("bad", **{"taks.max": "2"})
    command.write("good")
    status, text = await command.run("--prune")
    assert status == 1
    assert "shop.json: cannot be read as a connector" in text
    assert "bad failed (bad.json): Connector configuration is invalid" in text
    assert "good created" in text
    assert set(command.api.herder.connectors()) == {"shop", "bad", "good"}


async def test_one_file(command: Command) -> None:
    """A file belongs to the set of its folder; it says nothing of other connectors, so it cannot prune."""
    command.write("shop")
    other = command.write("other")
    await command.run()
    command.write("other", **{"tasks.max": "2"})
    assert await command.run(path=other) == (0, "other changed (tasks.max)\n")
    status, text = await command.run("--prune", path=other)
    assert (status, "--prune needs a folder" in text) == (2, True)


async def test_an_empty_folder_deletes_only_after_yes(command: Command) -> None:
    """A wrong path must not delete all connectors."""
    file = command.write("shop")
    await command.run()
    file.unlink()
    status, text = await command.run("--prune")
    assert (status, "nothing is changed" in text) == (2, True)
    assert await command.run("--prune", "--yes") == (0, "shop deleted\n")
    status, text = await command.run(path=command.folder / "none")
    assert (status, "does not exist" in text) == (2, True)


async def test_a_refused_question_changes_nothing(command: Command) -> None:
    """On a terminal --prune asks with the names of the connectors."""
    command.write("keep")
    file = command.write("shop")
    await command.run()
    file.unlink()
    questions: list[str] = []

    def refuse(question: str) -> bool:
        questions.append(question)
        return False

    with pytest.raises(ConfigError, match="nothing is changed"):
        await asyncio.to_thread(apply, ApplyArguments(command.folder, command.url, prune=True), confirm=refuse)
    assert questions == ["Delete shop?"]
    assert set(command.api.herder.connectors()) == {"keep", "shop"}


async def test_a_cluster_without_owners(command: Command) -> None:
    """Kafka Connect ignores the parameters: new connectors work, changes need --adopt, --prune is refused."""
    async with served(WithoutOwners(command.api.app)) as command.url:
        command.write("shop")
        command.write("paused", initial="STOPPED")
        assert await command.run() == (0, "paused created\nshop created\n")
        status, text = await command.run()
        assert (status, "shop unchanged" in text) == (0, True)
        command.write("shop", **{"tasks.max": "2"})
        status, text = await command.run()
        assert (status, "the cluster stores no owners" in text) == (1, True)
        status, text = await command.run("--prune")
        assert (status, "stores no owners" in text) == (2, True)
        assert (await command.run("--adopt"))[0] == 0
        assert command.api.herder.config("shop")["tasks.max"] == "2"
        assert (await command.run("--diff"))[0] == 0


class WithoutOwners:
    """A worker that ignores the parameters and the view of owners, as Kafka Connect does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            assert not scope["path"].endswith("/owner")
            pairs = parse_qsl(scope["query_string"].decode())
            kept = [(name, value) for name, value in pairs if name not in ("owner", "source") and value != "owner"]
            scope = {**scope, "query_string": urlencode(kept).encode()}
        await self._app(scope, receive, send)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:1", "does not answer"),
        ("127.0.0.1:8083", "is not http://host:port"),
        ("http://[", "is not http://host:port"),
        ("http://user:pass@127.0.0.1:8083", "contains credentials"),
    ],
)
async def test_a_worker_that_cannot_be_reached(command: Command, url: str, reason: str) -> None:
    """The status is 2, and the message has no password."""
    command.write()
    command.url = url
    status, text = await command.run()
    assert (status, reason in text) == (2, True)
    assert "pass@" not in text


@dataclass
class Recorder:
    """A server that keeps the headers of requests and gives the same answers one after the other."""

    answers: list[tuple[int, object]]
    authorization: list[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.authorization.append(dict(scope["headers"]).get(b"authorization", b"").decode())
        status, document = self.answers.pop(0)
        headers = [(b"location", b"/elsewhere")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(document).encode()})


@pytest.mark.parametrize(
    ("environment", "header"),
    [
        ({"HEADRACE_USER": "u", "HEADRACE_PASSWORD": "pä"}, "Basic dTpww6Q="),
        ({"HEADRACE_TOKEN": "t"}, "Bearer t"),
        ({}, ""),
    ],
)
async def test_credentials_come_from_the_environment(
    command: Command, monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], header: str
) -> None:
    """They are sent with each request; a refusal gives status 2 and says what to set."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    recorder = Recorder([(401, {"message": "no"})], [])
    command.write()
    async with served(recorder) as command.url:
        status, text = await command.run()
    assert (status, "HEADRACE_PASSWORD" in text) == (2, True)
    assert recorder.authorization == [header]


async def test_requests_are_repeated_during_a_rebalance() -> None:
    """409 without a known leader is temporary; other conflicts, and redirects, are errors at once."""
    busy = {"message": "Cannot complete request momentarily due to no known leader URL, likely …"}
    recorder = Recorder([(409, busy), (409, busy), (200, {}), (409, {"message": "exists"}), (302, {})], [])
    pauses: list[float] = []
    async with served(recorder) as url:
        client = ConnectClient(url, Credentials(), sleep=pauses.append)
        assert await asyncio.to_thread(client.get, "/connectors") == {}
        assert len(pauses) == 2
        for status in (409, 302):
            with pytest.raises(RestError) as caught:
                await asyncio.to_thread(client.get, "/connectors")
            assert caught.value.status == status
    assert len(recorder.authorization) == 5


async def test_another_server_is_recognized(command: Command) -> None:
    """An answer that no worker gives is an error with the option to correct."""
    command.write()
    async with served(Recorder([(200, ["shop"])], [])) as command.url:
        status, text = await command.run()
    assert (status, "not that of a Kafka Connect worker" in text) == (2, True)


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    """The help has examples, the environment and the exit status."""
    with pytest.raises(SystemExit):
        main(["apply", "--help"])
    text = capsys.readouterr().out
    for part in ("--diff", "--prune", "HEADRACE_TOKEN", "exit status", "examples"):
        assert part in text
