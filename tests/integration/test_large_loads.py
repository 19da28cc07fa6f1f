"""Many columns, large cells, long transactions, many partitions: all rows arrive, in bounded memory.

Each load is larger than the memory for changes, or would be if its parts were held at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from benchmarks.cpu import peaks_of
from confluent_kafka import Producer
from support.records.envelopes import SCHEMALESS, change, key

from headrace_dev.demo.compare import lake_table
from headrace_dev.kafka import Kafka
from headrace_dev.server import wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = pytest.mark.stack

MEBIBYTE = 2**20
CHANGES = 64 * MEBIBYTE
"""``worker.memory.bytes``."""
PYTHON = 512 * MEBIBYTE
QUEUE = 20_000

Record = tuple[int, bytes, bytes]
"""The partition, the key and the value."""


@dataclass
class Load:
    """A topic for one table of a worker; topic, connector and table are called ``name``."""

    kafka: Kafka
    worker: Worker
    name: str

    def run(self, records: Iterable[Record], *, partitions: int = 1, seconds: float = 120, **config: str) -> None:
        """Send the records, and wait until the connector has committed all of them."""
        self.kafka.create_topic(self.name, partitions, {"max.message.bytes": str(16 * MEBIBYTE)})
        sent = self._send(records)
        converters = {f"{side}.converter": "org.apache.kafka.connect.json.JsonConverter" for side in ("key", "value")}
        base = {"connector.class": "LakehouseSink", "topics": self.name, "table.namespace": "large", **converters}
        self.worker.put_connector(self.name, base | {"collection.name.format": self.name} | config)
        wait_until(lambda: self._committed() >= sent, f"commit of {sent} records", seconds)

    def _committed(self) -> int:
        assert set(self.worker.states(self.name)) == {"RUNNING"}, self.worker.traces(self.name)
        return sum(self.worker.committed(self.name).values())

    def _send(self, records: Iterable[Record]) -> int:
        """Return the number of records."""
        settings = {"linger.ms": 20, "compression.type": "lz4", "message.max.bytes": 16 * MEBIBYTE}
        producer, sent = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, **settings}), 0
        for partition, record_key, value in records:
            while len(producer) >= QUEUE:
                producer.poll(0.1)
            producer.produce(self.name, key=record_key, value=value, partition=partition)
            producer.poll(0)
            sent += 1
        assert not producer.flush(60)
        return sent

    def rows(self, *columns: str) -> pa.Table:
        """Return these columns of the table, or all of them."""
        table = lake_table(self.worker.warehouse / "large" / self.name)
        assert table
        return table.scan(selected_fields=columns or ("*",)).to_arrow()

    def check_memory(self) -> None:
        """Compare the most memory of the worker's Python process with that of Python and of changes.

        The worker plans two copies of changes; cells of megabytes have up to five while they are decoded and written.
        """
        [(_, python)] = [peak for peak in peaks_of(self.worker.server.pid) if peak[0].startswith("python")]
        assert python * MEBIBYTE <= PYTHON + 5 * CHANGES


@pytest.fixture(scope="module")
def worker(stack_kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker with little memory."""
    folder = tmp_path_factory.mktemp("large")
    storage = {"config.storage.topic": "large-configs", "status.storage.topic": "large-status"}
    memory = {"worker.memory.bytes": str(CHANGES), "spark.driver.memory": "1g"}
    properties = {"group.id": "large", **storage, **memory, **SHORT_LIVED}
    worker = Worker(folder, stack_kafka, folder / "warehouse", properties=properties)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture
def load(worker: Worker, stack_kafka: Kafka, unique: Callable[[str], str]) -> Iterator[Load]:
    """A load whose connector is deleted with the test."""
    load = Load(stack_kafka, worker, unique("large"))
    yield load
    worker.call("DELETE", f"/connectors/{load.name}")


@pytest.mark.parametrize(
    ("columns", "count"), [(300, 1_000), pytest.param(5_000, 200, marks=pytest.mark.long)], ids=["300", "5000"]
)
def test_rows_of_many_columns(load: Load, columns: int, count: int) -> None:
    """Each row is inserted and then updated; half of the columns are numbers, half are texts."""

    def row(number: int, generation: int) -> dict[str, Any]:
        cells = {f"c{c}": number * c + generation if c % 2 else f"{generation} {number} {c}" for c in range(columns)}
        return {"id": number} | cells

    def records() -> Iterator[Record]:
        for at in range(2 * count):
            cells = row(at % count, at // count)
            yield 0, key({"id": at % count}), change("u" if at >= count else "c", cells, 100 + at)

    load.run(records(), seconds=240)
    stored = load.rows().select(list(row(0, 0)))
    assert sorted(stored.to_pylist(), key=lambda each: each["id"]) == [row(number, 1) for number in range(count)]
    load.check_memory()


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.long)])
def test_cells_of_five_megabytes(load: Load, count: int) -> None:
    """Their sum is a multiple of the memory for changes."""

    def row(number: int) -> dict[str, Any]:
        return {"id": number, "large": f"{number:07}" * (5 * MEBIBYTE // 7)}

    load.run((0, key({"id": at}), change("c", row(at), 100 + at)) for at in range(count))
    stored = load.rows().select(["id", "large"])
    assert sorted(stored["id"].to_pylist()) == list(range(count))
    assert all(each == row(each["id"]) for batch in stored.to_batches(1) for each in batch.to_pylist())
    load.check_memory()


@pytest.mark.parametrize("changes", [100_000, pytest.param(5_000_000, marks=pytest.mark.long)], ids=str)
def test_a_transaction_of_many_changes(load: Load, changes: int) -> None:
    """A row has the value of its last change; the transaction is written in several batches."""
    rows = changes // 10
    event = change("u", {"id": 12345, "n": 67890}, 11111, schemas=False).replace(b'"txId":11111', b'"txId":7')
    event = event.replace(b"%", b"%%").replace(b"12345", b"%d").replace(b"67890", b"%d").replace(b"11111", b"%d")
    load.run(
        ((0, b'{"id":%d}' % (at % rows), event % (at % rows, at, 100 + at)) for at in range(changes)),
        seconds=180 + changes / 5_000,
        **SCHEMALESS,
    )
    stored = load.rows("id", "n").sort_by("id")
    assert stored["id"].to_numpy().tolist() == list(range(rows))
    assert stored["n"].to_numpy().tolist() == list(range(changes - rows, changes))
    load.check_memory()


@pytest.mark.parametrize(
    ("partitions", "config"),
    [(64, {}), (1, {"table.partition.by": "bucket(50, id)"})],
    ids=["64 of the topic", "50 of the table"],
)
def test_many_partitions(load: Load, partitions: int, config: dict[str, str]) -> None:
    """Each row is inserted and then updated in one partition of the topic."""
    rows = 5_000
    changes = ((at % rows, {"id": at % rows, "n": at}) for at in range(2 * rows))
    load.run(
        ((number % partitions, key({"id": number}), change("u", row, 100 + row["n"])) for number, row in changes),
        partitions=partitions,
        **config,
    )
    stored = load.rows("id", "n").sort_by("id")
    assert stored.to_pydict() == {"id": list(range(rows)), "n": list(range(rows, 2 * rows))}
    load.check_memory()
