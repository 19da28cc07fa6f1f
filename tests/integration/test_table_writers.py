"""Two connectors that would write one table: the second is refused before it writes, in every order, and says so.

Two worker processes of different clusters share a broker and a warehouse. The rows of all topics have the same keys, so
that a second writer would replace the rows of the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path

import pytest
from recordings.records import RecordedRecord, publish
from support.records.envelopes import change, key

from headrace_dev.demo.compare import lake_rows
from headrace_dev.kafka import Kafka
from headrace_dev.server import wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark]

SECONDS = 120
ROWS = 5


class Writers:
    """Workers, and topics whose rows have a name that identifies the topic."""

    def __init__(self, kafka: Kafka, folder: Path, name: str, workers: int) -> None:
        self._kafka = kafka
        self._name = name
        self._warehouse = folder / "warehouse"
        self._sent: dict[str, int] = {}
        self.workers = [self._worker(folder, f"{name}-{number}") for number in range(workers)]

    def _worker(self, folder: Path, group: str) -> Worker:
        storage = {"config.storage.topic": f"{group}-configs", "status.storage.topic": f"{group}-status"}
        properties = {"group.id": group, **storage, **SHORT_LIVED, "spark.driver.memory": "1g"}
        return Worker(folder, self._kafka, self._warehouse, name=group, properties=properties)

    def connector(self, name: str) -> str:
        """Return the name of a connector that only this test uses."""
        return f"{self._name}-{name}"

    def topic(self, name: str) -> str:
        """Return the topic of a source table."""
        return f"{self._name}.public.{name}"

    def send(self, name: str, count: int = ROWS) -> None:
        """Insert the next rows, beginning with key 0, into a source table."""
        topic = self.topic(name)
        if name not in self._sent:
            self._kafka.create_topic(topic)
        begin = self._sent.get(name, 0)
        self._sent[name] = begin + count
        for number in range(begin, begin + count):
            row = change("c", {"id": number, "name": name}, 100 + number, table=name)
            publish(self._kafka.bootstrap_servers, [RecordedRecord(topic, 0, number, 0, key({"id": number}), row, ())])

    def create(self, connector: str, source: str, table: str, worker: int = 0, **options: str) -> None:
        """Create a connector that writes a source table's rows to a lake table."""
        config = {
            "connector.class": "LakehouseSink",
            "topics": self.topic(source),
            "table.namespace": "dd",
            "collection.name.format": table,
            "batch.linger.ms": "0",
        }
        self.workers[worker].put_connector(self.connector(connector), config | options)

    def names(self, table: str) -> list[str]:
        """Return the names of a table's rows, in the order of their keys."""
        rows = lake_rows(self._warehouse / "dd" / table)
        return [row["name"] for row in sorted(rows, key=itemgetter("id"))]

    def committed(self, connector: str, source: str, worker: int = 0) -> int:
        """Return the offset that the connector has committed."""
        return self.workers[worker].committed(self.connector(connector)).get((self.topic(source), 0), 0)

    def wait_for_rows(self, connector: str, source: str, table: str, worker: int = 0) -> None:
        """Wait until a connector has committed all rows of its source; the table then has these and no others."""
        wait_until(
            lambda: self.committed(connector, source, worker) == self._sent[source], f"{connector}'s rows", SECONDS
        )
        assert self.names(table) == [source] * self._sent[source]

    def refusal(self, connector: str, worker: int = 0) -> str:
        """Return the trace of a refused connector, "" of any other. One that lost a race is retried before."""
        trace = self.workers[worker].traces(self.connector(connector))
        return trace if "the table belongs to another writer" in trace else ""

    def wait_for_refusal(self, connector: str, source: str, table: str, of: str, worker: int = 0) -> None:
        """Wait until a connector is refused; it has committed nothing, and its error names the owner and a way out."""
        trace = wait_until(lambda: self.refusal(connector, worker), f"the refusal of {connector}", SECONDS)
        for word in (f"dd.{table}: ", of, self.topic(source), "table.adopt.from"):
            assert word in trace, trace
        assert self.committed(connector, source, worker) == 0

    def begin_at_once(self, table: str, *workers: int) -> None:
        """Let two connectors begin to write a table from different topics: one does, and the other one is refused."""
        sources = {f"{table}-1": ("s1", workers[0]), f"{table}-2": ("s2", workers[1])}
        for connector, (source, worker) in sources.items():
            self.create(connector, source, table, worker)
        [loser] = wait_until(
            lambda: [each for each, (_, worker) in sources.items() if self.refusal(each, worker)], "a refusal", SECONDS
        )
        [winner] = sources.keys() - {loser}
        (source, worker), (lost_source, lost_worker) = sources[winner], sources[loser]
        self.wait_for_rows(winner, source, table, worker)
        self.wait_for_refusal(loser, lost_source, table, "connector " + self.connector(winner), lost_worker)


@pytest.fixture
def writers(
    stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str], request: pytest.FixtureRequest
) -> Iterator[Writers]:
    """Running workers."""
    writers = Writers(stack_kafka, tmp_path, unique("writers"), request.param)
    try:
        with ThreadPoolExecutor(len(writers.workers)) as starting:
            list(starting.map(Worker.start, writers.workers))
        yield writers
    finally:
        for worker in writers.workers:
            worker.kill()


@pytest.mark.parametrize("writers", [1], indirect=True)
def test_of_two_writers_that_begin_at_once_one_is_refused(writers: Writers) -> None:
    """The long form below has the other orders."""
    for source in ("s1", "s2"):
        writers.send(source)
    writers.begin_at_once("once", 0, 0)


@pytest.mark.long
@pytest.mark.parametrize("writers", [2], indirect=True)
def test_a_table_has_one_writer(writers: Writers) -> None:
    """Before, after and at the same time, on one worker and on two, after a restart and after a rename."""
    for source in ("s1", "s2"):
        writers.send(source)

    writers.create("d1", "s1", "same")
    writers.wait_for_rows("d1", "s1", "same")
    for worker in (0, 1):
        writers.create("d2", "s2", "same", worker)
        writers.wait_for_refusal("d2", "s2", "same", "connector " + writers.connector("d1"), worker)
    writers.create("d3", "s1", "same", 1)  # the same topic
    writers.wait_for_refusal("d3", "s1", "same", "connector " + writers.connector("d1"), 1)
    writers.create("d4", "s1", "another", 1)
    writers.wait_for_rows("d4", "s1", "another", 1)

    writers.begin_at_once("once", 0, 0)
    writers.begin_at_once("twice", 0, 1)

    writers.workers[0].stop()
    writers.workers[0].start()
    writers.send("s1")
    writers.wait_for_rows("d1", "s1", "same")
    writers.wait_for_refusal("d2", "s2", "same", "connector " + writers.connector("d1"))

    writers.workers[0].call("DELETE", f"/connectors/{writers.connector('d1')}")
    writers.create("renamed", "s1", "same")
    writers.wait_for_refusal("renamed", "s1", "same", "connector " + writers.connector("d1"))
    writers.create("renamed", "s1", "same", **{"table.adopt.from": writers.connector("d1")})
    writers.wait_for_rows("renamed", "s1", "same")
