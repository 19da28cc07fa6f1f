"""``/connectors/{name}/dead-letters`` and its page: what they show, and replays that pause the connector meanwhile."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.rest.asgi import request
from support.rest.letters import (
    JSON,
    QUEUE,
    REASON,
    TOPIC,
    HeldFeeds,
    add_change,
    add_letter,
    add_letter_without_context,
    names,
)
from support.rest.secured import ANN, BOB, EVE, users
from support.rest.worker_api import SHOP, Api, leader_and_follower

from headrace.config.rest_options import BASIC_AUTH_EXTENSION
from headrace.core.connect.config_state import replay_record
from headrace.core.connect.dead_letters import Replay
from headrace.runtime.dead_letters import letters as reading
from headrace_dev.memory.stores import MemoryStores

pytestmark = pytest.mark.anyio
LETTERS, REPLAY = "/connectors/shop/dead-letters", "/connectors/shop/dead-letters/replay"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A worker whose connector runs, with a queue; replays wait before they send."""
    api = Api(feeds=HeldFeeds())
    await api.worker.start()
    await api.create(**QUEUE)
    await api.until("RUNNING", "RUNNING")
    yield api
    await api.worker.stop()


async def replay(api: Api, query: str = "") -> dict[str, Any]:
    """Begin a replay, and return its document."""
    answer = await api.call("POST", REPLAY + query)
    assert answer.status == 202, answer.body
    document: dict[str, Any] = answer.json()
    return document


async def replayed(api: Api, query: str = "") -> dict[str, Any]:
    """Replay, and return the result."""
    run = (await replay(api, query))["run"]
    feeds(api).go_on.set()
    await eventually(lambda: state_of(api) != "RUNNING")
    document: dict[str, Any] = (await api.call("GET", REPLAY)).json()
    assert document["run"] == run
    assert document["ended"] is not None
    return document


def feeds(api: Api) -> HeldFeeds:
    assert isinstance(api.feeds, HeldFeeds)
    return api.feeds


def state_of(api: Api) -> str:
    """The state of the last replay in the config topic."""
    stored = api.worker.configs.state.replay("shop")
    return "none" if stored is None else stored.state


async def test_letters_are_counted_and_listed_without_keys_and_values(api: Api) -> None:
    """By topic and reason; those of other connectors, without a coordinate and too old ones are counted separately."""
    await add_letter(api, 7, b"secret value", headers=[("trace", b"secret header")])
    await add_letter(api, 9, b"secret value", topic="shop.public.people", error=ValueError("secret cell"))
    await add_letter(api, 3, b"secret value", days_ago=30)
    await add_letter(api, 8, b"secret value", connector="other")
    add_letter_without_context(api)
    answer = await api.call("GET", LETTERS)
    document = answer.json()
    newest = document.pop("newest")
    assert document == {
        "connector": "shop",
        "queue": "dead",
        "records_read": 5,
        "complete": True,
        "letters": 2,
        "reasons": [
            {"topic": TOPIC, "reason": REASON, "count": 1},
            {"topic": "shop.public.people", "reason": "VALUE_CONVERTER, builtins.ValueError", "count": 1},
        ],
        "more_reasons": 0,
        "too_old": 1,
        "without_coordinate": 1,
        "other_connectors": [{"connector": "other", "count": 1}],
    }
    assert sorted(letter["offset"] for letter in newest) == [3, 7, 9]
    letter = next(letter for letter in newest if letter["offset"] == 7)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", letter.pop("time"))
    assert letter == {
        "topic": TOPIC,
        "partition": 0,
        "offset": 7,
        "reason": REASON,
        "error": "not JSON",
        "class": JSON,
        "task": "2",
        "headers": ["trace"],
        "too_old": False,
        "queue_partition": 0,
        "queue_offset": 0,
    }
    assert {letter["offset"]: (letter["error"], letter["too_old"]) for letter in newest if letter["offset"] != 7} == {
        9: (None, False),  # not an error of Headrace: its message may contain a cell
        3: ("not JSON", True),
    }
    assert b"secret" not in answer.body
    assert newest[-1]["offset"] == 3


async def test_a_listing_is_filtered_and_bounded(api: Api) -> None:
    """Filters and the limit choose letters; the counts are of all."""
    for offset in range(5):
        await add_letter(api, offset, b"{", topic="a" if offset % 2 else "b")

    async def listed(query: str) -> list[int]:
        document = (await api.call("GET", f"{LETTERS}?{query}")).json()
        assert document["letters"] == 5
        return [letter["offset"] for letter in document["newest"]]

    assert await listed("topic=b") == [4, 2, 0]
    assert await listed("topic=b&limit=2") == [4, 2]
    assert await listed(f"reason={REASON}&limit=1") == [4]
    assert await listed("reason=other") == []
    for limit in ("0", "1001", "-1", "many", "9" * 5000):
        answer = await api.call("GET", f"{LETTERS}?limit={limit}")
        assert (answer.status, answer.json()["message"]) == (400, "limit: must be a number between 1 and 1000")


async def test_a_long_queue_is_not_read_completely(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest records are read, and the answer says that there are others."""
    monkeypatch.setattr(reading, "_LISTED_RECORDS", 3)
    for offset in range(5):
        await add_letter(api, offset, b"{")
    document = (await api.call("GET", LETTERS)).json()
    assert (document["records_read"], document["complete"], document["letters"]) == (3, False, 3)
    assert [letter["offset"] for letter in document["newest"]] == [4, 3, 2]
    assert "Only the newest 3 records" in (await api.call("GET", f"/ui{LETTERS}")).body.decode()


async def test_hostile_times_and_coordinates(api: Api) -> None:
    """Anybody may write to a queue: a time that is none is null, and a name that no topic can have is no origin."""
    await add_letter(api, 1, b"{", days_ago=10**10)
    await add_letter(api, 2, b"{", topic="t" * 250)
    await add_letter(api, 3, b"{", days_ago=-(10**10))
    document = (await api.call("GET", LETTERS)).json()
    assert [(letter["offset"], letter["time"]) for letter in document["newest"]] == [(3, None), (1, None)]
    assert document["without_coordinate"] == 1


async def test_requests_that_cannot_be_served(api: Api) -> None:
    """404 for an unknown connector, 400 without a queue or for a flag that is none, 503 if the brokers are away."""
    await api.create("plain")
    for method, path in (("GET", ""), ("POST", "/replay"), ("GET", "/replay")):
        assert (await api.call(method, f"/connectors/no/dead-letters{path}")).status == 404
    for method, path in (("GET", ""), ("POST", "/replay")):
        answer = await api.call(method, f"/connectors/plain/dead-letters{path}")
        assert answer.status == 400
        assert "Connector plain has no dead letter queue: errors.deadletterqueue.topic.name" in answer.json()["message"]
    assert "no dead letter queue" in (await api.call("GET", "/ui/connectors/plain/dead-letters")).body.decode()
    assert (await api.call("GET", REPLAY)).status == 404
    answer = await api.call("POST", f"{REPLAY}?dry_run=yes")
    assert (answer.status, answer.json()["message"]) == (400, "dry_run: must be true or false")
    feeds(api).outage = "no broker"
    assert (await api.call("GET", LETTERS)).status == 503
    assert state_of(api) == "none"


async def test_a_replay_writes_the_letters_and_names_those_that_cannot_be_used(api: Api) -> None:
    await add_change(api, 3, "first")
    await add_change(api, 7, "second")
    await add_letter(api, 8, b"{broken")
    document = await replayed(api)
    assert (document["state"], document["error"]) == ("DONE", None)
    assert (document["counts"]["letters"], document["sent"], document["refused_count"]) == (3, 3, 1)
    [refused] = document["refused"]
    assert (refused["topic"], refused["offset"], refused["stage"]) == (TOPIC, 8, "VALUE_CONVERTER")
    assert names(api) == ["second"]
    await replayed(api)
    assert names(api) == ["second"]


async def test_the_connector_pauses_during_a_replay_and_resumes(api: Api) -> None:
    """The tasks pause, and their status says why. The connector's own state is that of the operator."""
    await add_change(api, 3, "row")
    assert (await replay(api))["state"] == "RUNNING"
    await api.until("RUNNING", "PAUSED")
    [task] = (await api.status())["tasks"]
    assert task["waits_for"] == "the replay of its dead letters"
    document = (await api.call("GET", REPLAY)).json()
    assert (document["state"], document["pauses"], document["counts"]["letters"]) == ("RUNNING", True, 1)
    assert "data-cancellable" in (await api.call("GET", f"/ui{LETTERS}")).body.decode()
    feeds(api).go_on.set()
    await api.until("RUNNING", "RUNNING")
    assert "data-cancellable" not in (await api.call("GET", f"/ui{LETTERS}")).body.decode()
    assert "waits_for" not in (await api.status())["tasks"][0]
    assert api.tasks.tasks["shop-0"].calls == ["start", "pause", "resume"]
    assert state_of(api) == "DONE"


async def test_a_second_replay_is_refused_while_one_runs(api: Api) -> None:
    await add_change(api, 3, "row")
    await replay(api)
    for query in ("", "?dry_run=true"):
        answer = await api.call("POST", REPLAY + query)
        assert answer.status == 409
        assert "A replay of the dead letters of connector shop is running" in answer.json()["message"]
    feeds(api).go_on.set()
    await eventually(lambda: state_of(api) == "DONE")
    assert (await replayed(api))["state"] == "DONE"


async def test_a_dry_run_counts_and_writes_nothing(api: Api) -> None:
    await add_change(api, 3, "row")
    document = await replayed(api, "?dry_run=true")
    assert (document["state"], document["dry_run"], document["counts"]["letters"]) == ("DONE", True, 1)
    assert document["sent"] == 0
    assert names(api) == []
    assert api.tasks.tasks["shop-0"].calls == ["start"]


async def test_old_letters_are_replayed_on_request(api: Api) -> None:
    """By default a letter is left out that is older than the tombstones."""
    await add_letter(api, 3, None, days_ago=30)
    assert (await replayed(api))["counts"]["too_old"] == 1
    assert (await replayed(api, "?old=true"))["counts"]["letters"] == 1


async def test_a_replay_that_fails_resumes_the_connector(api: Api) -> None:
    """The result has the error."""
    await add_change(api, 3, "row")
    await replay(api)
    await api.until("RUNNING", "PAUSED")
    feeds(api).outage = "the brokers do not answer"
    feeds(api).go_on.set()
    await api.until("RUNNING", "RUNNING")
    document = (await api.call("GET", REPLAY)).json()
    assert document["state"] == "FAILED"
    assert "the brokers do not answer" in document["error"]
    assert document["pauses"] is False


@pytest.mark.parametrize(("request_state", "expected"), [("pause", "PAUSED"), ("stop", "STOPPED")])
async def test_the_connector_resumes_as_its_operator_wants(api: Api, request_state: str, expected: str) -> None:
    """Also if the operator pauses or stops it in the middle of the replay."""
    await add_change(api, 3, "row")
    await replay(api)
    await api.until("RUNNING", "PAUSED")
    await api.call("PUT", f"/connectors/shop/{request_state}")
    feeds(api).go_on.set()
    await eventually(lambda: state_of(api) == "DONE")
    await api.until(*((expected, "PAUSED") if expected == "PAUSED" else (expected,)))
    assert names(api) == ["row"]
    assert not any("waits_for" in task for task in (await api.status())["tasks"])


async def test_a_deleted_connector_ends_its_replay(api: Api) -> None:
    """A connector that is created with its name inherits nothing of it."""
    await add_change(api, 3, "row")
    await replay(api)
    await api.until("RUNNING", "PAUSED")
    await api.call("DELETE", "/connectors/shop")
    feeds(api).go_on.set()
    await eventually(lambda: not api.worker.replays)
    await api.create(**QUEUE)
    await api.until("RUNNING", "RUNNING")
    assert (await api.call("GET", REPLAY)).status == 404


async def test_a_replay_is_cancelled_before_it_sends(api: Api) -> None:
    """The tasks resume, the letters stay, and the next replay sends them. A second request changes nothing."""
    await add_change(api, 3, "row")
    run = (await replay(api))["run"]
    await api.until("RUNNING", "PAUSED")
    for _ in range(2):
        answer = await api.call("DELETE", REPLAY)
        assert (answer.status, answer.json()["run"]) == (202, run)
    await api.until("RUNNING", "RUNNING")
    await eventually(lambda: not api.worker.replays)
    document = (await api.call("GET", REPLAY)).json()
    assert (document["run"], document["state"], document["error"]) == (run, "CANCELLED", None)
    assert (document["counts"]["letters"], document["sent"], document["pauses"]) == (1, 0, False)
    assert document["ended"] is not None
    assert (await api.call("DELETE", REPLAY)).json() == document
    assert names(api) == []
    assert (await replayed(api))["state"] == "DONE"
    assert names(api) == ["row"]


async def test_a_replay_is_cancelled_at_once(api: Api) -> None:
    """Before it has done anything, as a request that follows the first one without a pause."""
    await add_change(api, 3, "row")
    feeds(api).go_on.set()
    letters = api.parts.dead_letters
    began = await letters.begin("shop", dry_run=False, old=False)
    letters.cancel("shop")
    await eventually(lambda: state_of(api) == "CANCELLED")
    stored = api.worker.configs.state.replay("shop")
    assert stored is not None
    assert (stored.run, stored.counts) == (began.run, None)
    await eventually(lambda: not api.worker.replays)
    assert (await replayed(api))["state"] == "DONE"


async def test_a_long_queue_is_replayed_in_parts() -> None:
    """A part is durable before the next one is sent."""
    api = Api(feeds=HeldFeeds(first=2))
    await api.worker.start()
    await api.create(**QUEUE)
    await api.until("RUNNING", "RUNNING")
    for row in range(3):
        await add_change(api, row, f"row {row}", row=row)
    document = await replayed(api)
    assert (document["state"], document["sent"]) == ("DONE", 3)
    assert sorted(names(api)) == ["row 0", "row 1", "row 2"]
    await api.worker.stop()


async def test_what_was_applied_before_the_cancellation_stays() -> None:
    """The progress says how many letters that are, and names those that could not be used."""
    api = Api(feeds=HeldFeeds(first=2))
    await api.worker.start()
    await api.create(**QUEUE)
    await api.until("RUNNING", "RUNNING")
    await add_change(api, 3, "first")
    await add_letter(api, 4, b"{broken")
    await add_change(api, 5, "second")
    await replay(api)

    await eventually(lambda: (shown := api.parts.dead_letters.replay("shop")) is not None and shown.sent == 2)
    assert (await api.call("DELETE", REPLAY)).status == 202
    await api.until("RUNNING", "RUNNING")
    await eventually(lambda: not api.worker.replays)
    document = (await api.call("GET", REPLAY)).json()
    assert (document["state"], document["counts"]["letters"], document["sent"]) == ("CANCELLED", 3, 2)
    assert [letter["offset"] for letter in document["refused"]] == [4]
    assert names(api) == ["first"]
    page = (await api.call("GET", f"/ui{LETTERS}")).body.decode()
    assert "2 of 3 letters sent, 1 cannot be used" in page
    assert "stays applied" in page
    assert [text for text, _ in await replays(api)] == ["CANCELLED: 2 of 3 letters sent, 1 cannot be used"]
    await api.worker.stop()


async def replays(api: Api) -> list[tuple[str, dict[str, str]]]:
    """Text and trigger of the replays in the timeline, newest first."""
    events = (await api.call("GET", "/connectors/shop/timeline?kind=LETTERS_REPLAYED")).json()
    return [(event["text"], event["by"]) for event in events]


async def test_the_timeline_has_replays(api: Api) -> None:
    """Also those that fail; a dry run is none."""
    await add_change(api, 3, "row")
    await add_letter(api, 8, b"{broken")
    await replayed(api, "?dry_run=true")
    assert await replays(api) == []
    await replayed(api)
    by = {"type": "request", "method": "POST", "path": REPLAY}
    done = "DONE: 2 of 2 letters sent, 1 cannot be used", by
    assert await replays(api) == [done]
    feeds(api).outage = "the brokers do not answer"
    await replayed(api)
    [failed, former] = await replays(api)
    assert failed[0].startswith("FAILED: 0 letters sent, 0 cannot be used: ")
    assert failed[0].endswith("the brokers do not answer")
    assert (failed[1], former) == (by, done)


async def test_no_replay_to_cancel(api: Api) -> None:
    """404 for an unknown connector, without a replay, and after the end of the last one, which stays as it is."""
    assert (await api.call("DELETE", "/connectors/no/dead-letters/replay")).status == 404
    assert (await api.call("DELETE", REPLAY)).status == 404
    await add_change(api, 3, "row")
    done = await replayed(api)
    answer = await api.call("DELETE", REPLAY)
    assert (answer.status, answer.json()["message"]) == (
        404,
        "No replay of the dead letters of connector shop is running",
    )
    assert (await api.call("GET", REPLAY)).json() == done


async def test_after_the_death_of_the_worker_the_connector_is_not_paused() -> None:
    """The next run of the worker ends the replay of the process that is gone, and says so."""
    first = Api()
    await first.worker.start()
    await first.create(**QUEUE)
    await first.until("RUNNING", "RUNNING")
    gone = Replay("run-of-a-dead-process", "worker:8083", False, False, 1_700_000_000.0, pauses=True)
    await first.stores.configs.append([replay_record("shop", gone)])
    await first.worker.stop()
    second = Api(first.stores)
    await second.worker.start()
    await second.until("RUNNING", "RUNNING")
    document = (await second.call("GET", REPLAY)).json()
    assert document["state"] == "FAILED"
    assert document["error"].startswith("worker worker:8083 stopped during the replay")
    [(text, by)] = await replays(second)
    assert text.startswith("FAILED: 0 letters sent, 0 cannot be used: worker worker:8083 stopped")
    assert by == {"type": "worker"}
    await second.worker.stop()


async def test_another_leader_ends_the_replay() -> None:
    """The tasks run on the other worker. The earlier leader sends no more letters than those in hand."""
    first = Api(host="one", feeds=HeldFeeds())
    second = Api(MemoryStores(shared=first.stores), host="two")
    await first.worker.start()
    await second.worker.start()
    await first.create(**QUEUE)
    await second.until("RUNNING", "RUNNING")
    await add_change(first, 3, "row")
    await replay(first)
    await second.until("RUNNING", "PAUSED")
    first.stores.group.leave("member-1")
    await eventually(lambda: state_of(second) == "FAILED")
    await second.until("RUNNING", "RUNNING")
    feeds(first).go_on.set()
    await eventually(lambda: not first.worker.replays)
    document = (await second.call("GET", REPLAY)).json()
    assert document["error"].startswith("worker one:8083 stopped during the replay, or is not the leader any more")
    await first.worker.stop()
    await second.worker.stop()


async def test_requests_of_a_replay_are_forwarded_to_the_leader() -> None:
    """Any worker lists letters, begins a replay and shows its progress, over REST and on the page."""
    async with leader_and_follower("127.0.0.1") as (leader, follower):
        follower.feeds.queues = leader.feeds.queues
        await leader.create(**QUEUE)
        await add_change(leader, 3, "row")
        await follower.until("RUNNING", "RUNNING")
        assert (await follower.call("GET", LETTERS)).json()["letters"] == 1
        run = (await replay(follower))["run"]
        await eventually(lambda: state_of(leader) == "DONE")
        document = (await follower.call("GET", REPLAY)).json()
        assert (document["run"], document["worker_id"]) == (run, leader.worker.worker_id)
        assert names(leader) == ["row"]
        assert "1 of 1 letters sent" in (await follower.call("GET", f"/ui{LETTERS}")).body.decode()
        assert "is running" in (await follower.call("DELETE", REPLAY)).json()["message"]  # by the leader: it has ended


async def test_a_reader_sees_letters_and_no_buttons(tmp_path: Path) -> None:
    """The role operate may replay."""
    api = Api(**{"rest.extension.classes": BASIC_AUTH_EXTENSION, **users(tmp_path)})
    await api.worker.start()
    body = json.dumps({"name": "shop", "config": {**SHOP, **QUEUE}}).encode()
    await request(api.app, "POST", "/connectors", {**ANN, "Content-Type": "application/json"}, body)
    await api.until("RUNNING", "RUNNING")
    await add_change(api, 3, "row")
    shown = {}
    for role, header in {"reader": EVE, "operator": BOB}.items():
        assert (await request(api.app, "GET", LETTERS, header)).status == 200
        html = (await request(api.app, "GET", f"/ui{LETTERS}", header)).body.decode()
        shown[role] = re.findall(r'<button id="([a-z-]+)"', html)
    assert shown == {"reader": [], "operator": ["dry-run", "replay", "cancel-replay"]}
    for method in ("POST", "DELETE"):
        assert (await request(api.app, method, REPLAY, EVE)).status == 403
    assert (await request(api.app, "DELETE", REPLAY, BOB)).status == 404
    assert (await request(api.app, "POST", REPLAY, BOB)).status == 202
    await eventually(lambda: state_of(api) == "DONE")
    await api.worker.stop()


async def test_the_page_shows_letters_and_the_replay(api: Api) -> None:
    """The page of a connector links to it if there is a queue. Texts of others are never HTML."""
    await add_letter(api, 7, b"{", topic=HOSTILE, headers=[(HOSTILE, b"")], days_ago=30)
    await add_letter(api, 8, b"{")
    assert '/dead-letters">Dead letters</a>' in (await api.call("GET", "/ui/connectors/shop")).body.decode()
    html = (await api.call("GET", f"/ui{LETTERS}")).body.decode()
    assert "have not been replayed yet" in html
    assert re.findall(r'<button id="([a-z-]+)"', html) == ["dry-run", "replay", "cancel-replay", "replay-old"]
    assert HOSTILE not in html
    assert "not JSON" in html
    await replayed(api)
    html = (await api.call("GET", f"/ui{LETTERS}")).body.decode()
    assert "1 of 1 letters sent, 1 cannot be used, 1 are too old." in html
    await api.create("plain")
    assert "dead-letters" not in (await api.call("GET", "/ui/connectors/plain")).body.decode()
