"""Logs that are not what the group has read, under a real worker: cut, or of a topic that was created again.

The tables of such a topic fail with an error that names the topic, nothing of it is skipped without an error, and the
connector of another topic continues. A log that was cut behind the last record that was read is continued.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recordings.records import RecordedRecord, publish
from support.records.envelopes import change, key

from headrace_dev.demo.compare import lake_rows
from headrace_dev.kafka import Kafka
from headrace_dev.server import http, wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.long]

SECONDS = 120
BATCH = 10
OTHER = "other"


class Logs:
    """A worker with a connector, a topic of one partition and a table for each name; rows are numbers."""

    def __init__(self, kafka: Kafka, folder: Path, name: str) -> None:
        self._kafka = kafka
        self._name = name
        self.warehouse = folder / "warehouse"
        storage = {"config.storage.topic": f"{name}-configs", "status.storage.topic": f"{name}-status"}
        self.worker = Worker(folder, kafka, self.warehouse, properties={"group.id": name, **storage, **SHORT_LIVED})
        self._sent = 0

    def topic(self, name: str) -> str:
        """Return the name of a topic and of its connector."""
        return f"{self._name}-{name}"

    def create(self, *names: str) -> None:
        """Create topics and connectors, each with three batches of rows, and wait for the rows."""
        for name in names:
            self._kafka.create_topic(self.topic(name))
            config = {
                "connector.class": "LakehouseSink",
                "topics": self.topic(name),
                "table.namespace": "shop",
                "collection.name.format": name,
                "batch.linger.ms": "0",
            }
            self.worker.put_connector(self.topic(name), config)
        rows = {name: self.send(name, 3) for name in names}
        for name in names:
            self.wait(name, 3 * BATCH, rows[name])

    def send(self, name: str, batches: int) -> list[int]:
        """Send rows that no topic has contained before, in batches of the log; return them."""
        rows = list(range(self._sent, self._sent + batches * BATCH))
        self._sent += len(rows)
        topic = self.topic(name)
        for begin in range(0, len(rows), BATCH):
            records = [
                RecordedRecord(
                    topic, 0, 0, 0, key({"id": row}), change("c", {"id": row, "name": name}, 100 + row, table=name), ()
                )
                for row in rows[begin : begin + BATCH]
            ]
            publish(self._kafka.bootstrap_servers, records)
        return rows

    def rows(self, name: str) -> list[int]:
        """Return the rows of a table; none if it does not exist."""
        return sorted(row["id"] for row in lake_rows(self.warehouse / "shop" / name))

    def offset(self, name: str) -> int:
        """Return the committed offset of a connector."""
        return self.worker.committed(self.topic(name)).get((self.topic(name), 0), 0)

    def wait(self, name: str, offset: int, rows: list[int]) -> None:
        """Wait until a connector has committed an offset; the table then has these rows."""
        wait_until(lambda: self.offset(name) >= offset or self.trace(name), f"offset {offset} of {name}", SECONDS)
        assert (self.trace(name), self.offset(name), self.rows(name)) == ("", offset, rows)

    def trace(self, name: str) -> str:
        """Return the error of a connector's task, "" without one."""
        return self.worker.traces(self.topic(name)).strip()

    def wait_for_refusal(self, name: str, *words: str) -> None:
        """Wait for the failure of a topic; its table and offset stay, and another topic is written."""
        offset, rows, others = self.offset(name), self.rows(name), self.rows(OTHER)
        trace = wait_until(lambda: self.trace(name), f"the failure of {name}", SECONDS)
        for word in (self.topic(name), *words):
            assert word in trace, trace
        others += self.send(OTHER, 1)
        self.wait(OTHER, len(others), others)
        assert (self.offset(name), self.rows(name)) == (offset, rows)

    def set_offset(self, name: str, offset: int) -> None:
        """Stop a connector, set its offset, and resume it."""
        self.worker.call("PUT", f"/connectors/{self.topic(name)}/stop")
        wait_until(lambda: self.worker.states(self.topic(name)) == ["STOPPED"], "stopped", SECONDS)
        place = {"kafka_topic": self.topic(name), "kafka_partition": 0}
        body = {"offsets": [{"partition": place, "offset": {"kafka_offset": offset}}]}
        url = f"{self.worker.url}/connectors/{self.topic(name)}/offsets"
        http.patch(url, json=body, timeout=SECONDS).raise_for_status()
        self.worker.call("PUT", f"/connectors/{self.topic(name)}/resume")

    def cut(self, name: str, end: int) -> None:
        """Lose the end of a topic's log."""
        self._kafka.cut(self.topic(name), 0, end)

    def create_again(self, name: str) -> None:
        """Delete a topic and create it again."""
        admin = self._kafka.admin()
        admin.delete_topics([self.topic(name)])[self.topic(name)].result(timeout=30)
        wait_until(lambda: self.topic(name) not in self._kafka.topics(), "the deletion", SECONDS)
        self._kafka.create_topic(self.topic(name))


@pytest.fixture
def logs(stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Logs]:
    """A running worker."""
    logs = Logs(stack_kafka, tmp_path, unique("logs"))
    try:
        logs.worker.start()
        yield logs
    finally:
        logs.worker.kill()


def test_a_log_that_is_cut_while_the_worker_is_stopped(logs: Logs) -> None:
    """Cut before the group's offset, the topic fails; cut at the offset or behind it, the topic is continued."""
    ends = {"before": 20, "at": 30, "behind": 40}
    logs.create(OTHER, *ends)
    rows = {name: logs.rows(name) for name in ends}
    logs.worker.stop()
    unread = {name: logs.send(name, 2) for name in ends}
    for name, end in ends.items():
        logs.cut(name, end)
    new = {name: logs.send(name, 8) for name in ends}
    logs.worker.start()
    logs.wait_for_refusal("before", "-0: the log is not the one that group", "at offset 29", "/offsets")
    logs.wait("at", 110, rows["at"] + new["at"])
    logs.wait("behind", 120, rows["behind"] + unread["behind"][:BATCH] + new["behind"])
    logs.worker.call("POST", f"/connectors/{logs.topic('before')}/restart?includeTasks=true&onlyFailed=true")
    logs.wait_for_refusal("before", "at offset 29")
    logs.set_offset("before", 0)
    logs.wait("before", 100, rows["before"] + new["before"])


def test_a_log_that_is_cut_while_it_is_read(logs: Logs) -> None:
    """Cut before what was read, the topic fails; after a restart of the broker alone, it is continued."""
    logs.create(OTHER, "before", "at")
    rows = {name: logs.rows(name) for name in ("before", "at")}
    logs.cut("before", 20)
    new = {name: logs.send(name, 8) for name in rows}
    logs.wait_for_refusal("before", "the log")
    logs.wait("at", 110, rows["at"] + new["at"])
    logs.set_offset("before", 30)
    logs.wait("before", 100, rows["before"] + new["before"][BATCH:])


@pytest.mark.parametrize("stopped", [True, False])
def test_a_topic_that_is_created_again(logs: Logs, stopped: bool) -> None:
    """Kafka removes the offsets of its groups, so the table shows that the topic is another one."""
    logs.create(OTHER, "again")
    if stopped:
        logs.worker.stop()
    logs.create_again("again")
    new = logs.send("again", 8)
    if stopped:
        logs.worker.start()
    logs.wait_for_refusal("again", "was deleted and created again", "drop the table")
    logs.worker.call("PUT", f"/connectors/{logs.topic('again')}/stop")
    wait_until(lambda: logs.worker.states(logs.topic("again")) == ["STOPPED"], "stopped", SECONDS)
    for folder in (logs.warehouse / "shop").glob("again*"):
        shutil.rmtree(folder)
    http.delete(f"{logs.worker.url}/connectors/{logs.topic('again')}/offsets", timeout=SECONDS).raise_for_status()
    logs.worker.call("PUT", f"/connectors/{logs.topic('again')}/resume")
    logs.wait("again", 80, new)
