"""Tests of ``headrace replay-dlq``, which writes dead letters to their tables."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.records.envelopes import change, key

from headrace.config import SinkConnectorConfig
from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.core.model.errors import BadRecord, Stage
from headrace.ports import ErrantRecord, TableOptions
from headrace.runtime.dead_letters.letters import oldest, survey
from headrace.runtime.dead_letters.replay import Edges
from headrace.runtime.task.conversions import no_registries
from headrace_app.command import main
from headrace_app.replay_dlq import ReplayReport, write
from headrace_dev.memory import MemoryLakehouse, MemoryRowSource
from headrace_dev.memory.dead_letter_queue import MemoryDeadLetterQueue, QueuedLetter
from headrace_dev.memory.feed import MemoryBroker, MemoryFeeds, MemoryRecord

pytestmark = pytest.mark.anyio

TOPIC = "shop.public.items"
JSON = "org.apache.kafka.connect.json.JsonConverter"
NOW = 1_800_000_000_000


class Scene:
    """A connector, its dead letter queue and its lake."""

    def __init__(self, **more: str) -> None:
        given = {
            "name": "items",
            "connector.class": "LakehouseSink",
            "topics": TOPIC,
            "errors.deadletterqueue.topic.name": "dead",
            "key.converter": JSON,
            "value.converter": JSON,
            **{name.replace("__", "."): value for name, value in more.items()},
        }
        self.sink: SinkConnectorConfig = sink_connector_config(given, WorkerDefaults({}, "1.0"))
        self.feeds = MemoryFeeds(MemoryBroker())
        self.queue = self.feeds.queues["dead"] = MemoryDeadLetterQueue("items", 0)
        self.lakehouse = MemoryLakehouse()
        self.out = io.StringIO()

    async def dead(self, offset: int, value: bytes | None, row: int = 1, connector: str = "items") -> None:
        """Add a dead letter of the connector to the queue."""
        record = MemoryRecord(TOPIC, 0, offset, NOW, key({"id": row}), value, ())
        errant = ErrantRecord(record, Stage.VALUE_CONVERTER, JSON, BadRecord("no use"))
        queue = MemoryDeadLetterQueue(connector, 0)
        await queue.report([errant])
        self.queue.letters.extend(queue.letters)

    async def insert(self, offset: int, lsn: int, name: str, row: int = 1) -> None:
        await self.dead(offset, change("c" if lsn == 10 else "u", {"id": row, "name": name}, lsn), row)

    async def survey(self, since: int = 0) -> str:
        counts = await survey(self.feeds, self.sink, since)
        ReplayReport(self.out, io.StringIO()).found(counts, self.sink.name)
        return self.out.getvalue()

    async def replay(self, since: int = 0) -> list[ErrantRecord]:
        report = ReplayReport(self.out, io.StringIO())
        edges = Edges(self.lakehouse, lambda database, options: MemoryRowSource(), no_registries, {})
        return await write(self.feeds, self.sink, since, edges, report)

    def names(self, *, history: bool = False) -> list[Any]:
        table = self.lakehouse.table("headrace", "shop_public_items", TableOptions(history=history))
        return [row["name"] for row in table.to_arrow().to_pylist()]


async def test_letters_become_rows_in_the_order_of_their_offsets() -> None:
    """A replay writes letters in the order of their offsets, also if they are duplicated or replayed twice."""
    scene = Scene()
    await scene.insert(7, 20, "second")
    await scene.insert(3, 10, "first")
    await scene.insert(3, 10, "first")
    await scene.insert(9, 10, "another row", row=2)
    for _ in range(2):
        assert await scene.replay() == []
        assert sorted(scene.names()) == ["another row", "second"]


async def test_a_change_that_is_older_than_its_row_is_not_applied() -> None:
    """A replay does not apply a letter whose position is below that of the stored row."""
    scene = Scene()
    await scene.insert(7, 20, "newer")
    await scene.replay()
    scene.queue.letters.clear()
    await scene.insert(3, 10, "older")
    assert await scene.replay() == []
    assert scene.names() == ["newer"]


async def test_a_row_that_was_deleted_since_does_not_come_back() -> None:
    """The delete is no letter, so a replay does not read it: its tombstone blocks letters before it at once."""
    scene = Scene()
    await scene.insert(2, 10, "first")
    await scene.dead(7, change("d", {"id": 1, "name": "first"}, 30))
    await scene.replay()
    assert scene.names() == []
    scene.queue.letters.clear()
    await scene.insert(3, 20, "before the delete")
    assert await scene.replay() == []
    assert scene.names() == []


async def test_a_history_contains_each_event_once() -> None:
    """A replay appends each letter once to a history, also below the offsets that the table contains."""
    scene = Scene(insert__mode="insert")
    await scene.insert(7, 20, "later")
    await scene.replay()
    await scene.insert(3, 10, "earlier")
    for _ in range(2):
        assert await scene.replay() == []
        assert sorted(scene.names(history=True)) == ["earlier", "later"]


async def test_commits_contain_no_offsets() -> None:
    """The commit of a replay contains no offsets of the connector."""
    scene = Scene()
    await scene.insert(7, 20, "row")
    await scene.replay()
    assert scene.lakehouse.table("headrace", "shop_public_items", TableOptions()).offsets("connect-items") == {}


async def test_a_letter_that_fails_again_is_reported() -> None:
    """A letter that fails again is reported by its original offset with exit status 1. Other letters are written."""
    scene = Scene()
    await scene.dead(4, b"{broken")
    await scene.insert(5, 10, "good")
    refused = await scene.replay()
    assert scene.names() == ["good"]
    assert [(each.record.topic, each.record.offset) for each in refused] == [(TOPIC, 4)]
    assert ReplayReport(scene.out, io.StringIO()).end(await survey_of(scene), refused) == 1
    assert f"{TOPIC}-0 at offset 4 cannot be used: VALUE_CONVERTER" in scene.out.getvalue()


async def survey_of(scene: Scene) -> Any:
    return await survey(scene.feeds, scene.sink, 0)


async def test_a_dry_run_reports_the_letters() -> None:
    """A dry run counts letters by topic and error, and letters of other connectors or without headers separately."""
    scene = Scene()
    await scene.insert(7, 20, "secret")
    await scene.dead(9, b"{", connector="other")
    scene.queue.letters.append(QueuedLetter(b"k", b"v", NOW, []))
    assert await scene.survey() == (
        f"{TOPIC}: 1 (VALUE_CONVERTER, headrace.core.model.errors.BadRecord)\n"
        "1 letters without context headers: their origin is unknown; set "
        "errors.deadletterqueue.context.headers.enable=true for later ones\n"
        "1 letters of connector other are ignored\n"
        "1 dead letters of connector items\n"
    )


async def test_letters_older_than_the_tombstones_are_not_replayed() -> None:
    """Letters older than ``tombstone.retention.ms`` are not replayed: the tombstone of their row can have expired."""
    scene = Scene(tombstone__retention__ms="1000")
    await scene.insert(7, 20, "old")
    assert oldest(scene.sink, NOW / 1000 + 2) == NOW + 1000
    assert await scene.replay(since=NOW + 1) == []
    assert scene.names() == []
    assert "1 letters are older than tombstone.retention.ms" in await scene.survey(since=NOW + 1)
    assert oldest(Scene(insert__mode="insert").sink, NOW) == 0


def test_a_connector_without_a_queue_has_nothing_to_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 2 without ``errors.deadletterqueue.topic.name``, and the error names the option."""
    worker, connector = tmp_path / "worker.properties", tmp_path / "shop.json"
    worker.write_text(f"bootstrap.servers=127.0.0.1:1\nwarehouse={tmp_path / 'warehouse'}\n")
    connector.write_text(json.dumps({"name": "shop", "config": {"connector.class": "LakehouseSink", "topics": "a"}}))
    assert main(["replay-dlq", str(worker), str(connector)]) == 2
    assert "errors.deadletterqueue.topic.name is not set" in capsys.readouterr().err
