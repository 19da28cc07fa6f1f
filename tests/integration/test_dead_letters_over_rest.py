"""Dead letters of a real worker over REST: shown, counted and replayed, also if the worker is killed meanwhile.

A replay can be cancelled.

A transform that cannot be applied makes the letters; the operator removes it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable
from recordings.records import RecordedRecord, publish
from support.records.envelopes import change, key
from support.repository.headrace_command import headrace

from headrace.runtime.failpoints import AFTER_TABLE_COMMIT
from headrace_dev.kafka import Kafka
from headrace_dev.server import wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark]

SECONDS = 60
LETTERS, REPLAY = "/connectors/shop/dead-letters", "/connectors/shop/dead-letters/replay"
MANY = 6_000
"""Letters that several reads of the queue bring."""
NOT_APPLICABLE = {
    "transforms": "number",
    "transforms.number.type": "org.apache.kafka.connect.transforms.Cast$Value",
    "transforms.number.spec": "op:int32",
    "transforms.number.predicate": "marked",
    "predicates": "marked",
    "predicates.marked.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "predicates.marked.name": "mark",
}
"""An operation is no number, so the transform refuses each record with the header ``mark``."""


class Shop:
    """A topic, its table, and workers of one cluster, of which one runs at a time."""

    def __init__(self, kafka: Kafka, folder: Path, name: str) -> None:
        self.topic, self.marker = f"{name}.public.items", folder / AFTER_TABLE_COMMIT
        self._kafka, self._folder, self._name = kafka, folder, name
        self._offset = 0
        self.worker: Worker

    def publish(self, *changes: tuple[int, bytes], mark: bool = True) -> None:
        headers = (("mark", b"hidden header"),) if mark else ()
        records = [
            RecordedRecord(self.topic, 0, self._offset + number, 0, key({"id": row}), value, headers)
            for number, (row, value) in enumerate(changes)
        ]
        self._offset += len(records)
        publish(self._kafka.bootstrap_servers, records)

    @contextlib.contextmanager
    def running(self, name: str, failpoints: str = "") -> Iterator[Worker]:
        """Run a worker, and kill it afterwards."""
        storage = {"config.storage.topic": f"{self._name}-c", "status.storage.topic": f"{self._name}-s"}
        self.worker = Worker(
            self._folder,
            self._kafka,
            self._folder / "warehouse",
            name=name,
            properties={"group.id": self._name, **storage, **SHORT_LIVED},
            environment={"HEADRACE_FAILPOINTS": failpoints, "HEADRACE_FAILPOINTS_DIR": str(self._folder)},
        )
        self.worker.start()
        try:
            yield self.worker
        finally:
            self.worker.kill()

    def configure(self, **transforms: str) -> None:
        config = {
            "connector.class": "LakehouseSink",
            "topics": self.topic,
            "table.namespace": "shop",
            "batch.linger.ms": "0",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{self._name}-dead",
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
            **transforms,
        }
        self.worker.put_connector("shop", config)

    def replayed(self, query: str = "") -> dict[str, Any]:
        """Replay the letters, and return the result."""
        self.worker.call("POST", REPLAY + query)
        wait_until(lambda: self.replay()["state"] != "RUNNING", "the end of the replay", SECONDS)
        return self.replay()

    def replay(self) -> dict[str, Any]:
        document: dict[str, Any] = self.worker.call("GET", REPLAY)
        return document

    def replay_dlq(self) -> int:
        """Replay the letters by the command, and return its exit status."""
        connector = self._folder / "shop.json"
        connector.write_text(json.dumps({"name": "shop", "config": self.worker.call("GET", "/connectors/shop/config")}))
        status, _ = headrace(self._folder, "replay-dlq", self._folder / "second" / "worker.properties", connector)
        return status

    def table(self) -> Path:
        return self._folder / "warehouse" / "shop" / self.topic.replace(".", "_")

    def rows(self) -> list[tuple[int, str]]:
        if not self.table().exists():
            return []
        rows = StaticTable.from_metadata(str(self.table())).scan().to_arrow().to_pylist()
        return sorted((row["id"], row["name"]) for row in rows)


def test_letters_become_rows_also_if_the_worker_is_killed_meanwhile(
    stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """The kill leaves no connector paused, and the next replay writes each row once."""
    shop = Shop(stack_kafka, tmp_path, unique("letters"))
    shop.publish(
        (1, change("c", {"id": 1, "name": "hidden a"}, 10)),
        (2, change("c", {"id": 2, "name": "hidden b"}, 11)),
        (1, change("u", {"id": 1, "name": "hidden c"}, 12)),
        (3, b"{hidden, and no JSON"),
    )
    with shop.running("first", f"{AFTER_TABLE_COMMIT}=hold") as worker:
        shop.configure(**NOT_APPLICABLE)
        wait_until(lambda: worker.committed("shop").get((shop.topic, 0)) == 4, "letters", SECONDS)
        listing = worker.call("GET", LETTERS)
        assert listing["complete"]
        assert {(group["reason"].partition(",")[0], group["count"]) for group in listing["reasons"]} == {
            ("TRANSFORMATION", 3),
            ("VALUE_CONVERTER", 1),
        }
        assert [letter["offset"] for letter in listing["newest"]] == [3, 2, 1, 0]
        assert {tuple(letter["headers"]) for letter in listing["newest"]} == {("mark",)}
        assert "hidden" not in str(listing)
        shop.configure()
        dry = shop.replayed("?dry_run=true")
        assert (dry["state"], dry["counts"]["letters"], dry["sent"]) == ("DONE", 4, 0)
        assert shop.rows() == []
        worker.call("POST", REPLAY)
        wait_until(shop.marker.exists, "a commit of the replay", SECONDS)
        assert worker.states("shop") == ["RUNNING", "PAUSED"]
        assert worker.tasks("shop")[0]["waits_for"] == "the replay of its dead letters"
    with shop.running("second") as worker:
        wait_until(lambda: worker.states("shop") == ["RUNNING", "RUNNING"], "running task", SECONDS)
        interrupted = shop.replay()
        assert interrupted["state"] == "FAILED"
        assert "stopped during the replay" in interrupted["error"]
        done = shop.replayed()
        assert (done["state"], done["sent"], done["refused_count"]) == ("DONE", 4, 1)
        assert [(letter["offset"], letter["stage"]) for letter in done["refused"]] == [(3, "VALUE_CONVERTER")]
        assert "hidden" not in str(done)
        assert shop.rows() == [(1, "hidden c"), (2, "hidden b")]
        shop.publish((2, change("u", {"id": 2, "name": "later"}, 20)))
        wait_until(lambda: shop.rows() == [(1, "hidden c"), (2, "later")], "a later change", SECONDS)
        assert shop.replay_dlq() == 1
        sent = "4 of 4 letters sent, 1 cannot be used"
        path = "/connectors/shop/timeline?kind=LETTERS_REPLAYED"
        wait_until(lambda: len(worker.call("GET", path)) == 3, "the events", SECONDS)
        [by_command, by_request, failed] = worker.call("GET", path)
        assert (by_command["text"], by_command["by"]) == (sent, {"type": "command", "path": "headrace replay-dlq"})
        assert (by_request["text"], by_request["by"]["method"]) == (f"DONE: {sent}", "POST")
        assert failed["text"].startswith("FAILED: ")
        assert shop.rows() == [(1, "hidden c"), (2, "later")]


def test_a_replay_is_cancelled(stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]) -> None:
    """The write in flight ends first. What was sent is in the table, and the next replay writes the others."""
    shop = Shop(stack_kafka, tmp_path, unique("cancelled"))
    shop.publish(*((row, change("c", {"id": row, "name": "a"}, 10 + row)) for row in range(MANY)))
    with shop.running("worker", f"{AFTER_TABLE_COMMIT}=hold:2") as worker:
        shop.configure(**NOT_APPLICABLE)
        wait_until(lambda: worker.committed("shop").get((shop.topic, 0)) == MANY, "letters", SECONDS)
        shop.configure()
        worker.call("POST", REPLAY)
        wait_until(shop.marker.exists, "the second commit of the replay", SECONDS)
        before = shop.replay()["sent"]
        assert worker.call("DELETE", REPLAY)["state"] == "RUNNING"
        assert worker.states("shop") == ["RUNNING", "PAUSED"]
        shop.publish((MANY, change("c", {"id": MANY, "name": "later"}, 20 + MANY)), mark=False)
        shop.marker.unlink()
        wait_until(lambda: shop.replay()["state"] != "RUNNING", "the end of the replay", SECONDS)
        wait_until(lambda: worker.states("shop") == ["RUNNING", "RUNNING"], "running task", SECONDS)
        cancelled = shop.replay()
        assert (cancelled["state"], cancelled["pauses"]) == ("CANCELLED", False)
        assert 0 < before < cancelled["sent"] < cancelled["counts"]["letters"] == MANY
        wait_until(lambda: (MANY, "later") in shop.rows(), "a later change", SECONDS)
        assert len(shop.rows()) == cancelled["sent"] + 1
        done = shop.replayed()
        assert (done["state"], done["sent"]) == ("DONE", MANY)
        assert [row for row, _ in shop.rows()] == list(range(MANY + 1))
