"""A shop of two connectors with a table each, one of which a test loses or damages."""

from __future__ import annotations

from pathlib import Path

from recordings.records import RecordedRecord, publish
from support.lake.delta_tables import delta_rows, delta_table
from support.records.envelopes import change, key

from headrace_connectors.lakehouse.ledger import SUFFIX
from headrace_dev.demo.compare import lake_rows
from headrace_dev.kafka import Kafka
from headrace_dev.server import http, wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

OTHER = "other"
SECONDS = 120


class Shop:
    """Two topics of one partition, a connector and a table for each; rows are numbers that are never deleted.

    The table that gets lost has the name of its format.
    """

    def __init__(self, kafka: Kafka, folder: Path, name: str, lost: str) -> None:
        self._kafka = kafka
        self._name = name
        self.warehouse = folder / "warehouse"
        self.lost = lost
        self.sent = {lost: 0, OTHER: 0}
        storage = {"config.storage.topic": f"{name}-configs", "status.storage.topic": f"{name}-status"}
        self.worker = Worker(folder, kafka, self.warehouse, properties={"group.id": name, **storage, **SHORT_LIVED})

    def connector(self, name: str) -> str:
        """The name of a connector that only this test uses."""
        return f"{self._name}-{name}"

    def create(self) -> None:
        """Create the connectors and wait for their tasks."""
        for name in self.sent:
            self._kafka.create_topic(self.connector(name))
            self.worker.put_connector(self.connector(name), self.config(name))

    def config(self, name: str) -> dict[str, str]:
        """The configuration of a table's connector."""
        return {
            "connector.class": "LakehouseSink",
            "topics": self.connector(name),
            "table.namespace": "shop",
            "collection.name.format": name,
            "table.format": "delta" if name == "delta" else "iceberg",
            "batch.linger.ms": "0",
            # Upkeep follows a commit: it must not write while a test removes or copies the folders.
            "table.maintenance": "off",
        }

    def send(self, *names: str) -> None:
        """Send one more row to each topic."""
        for name in names:
            number = self.sent[name]
            row = change("c", {"id": number, "name": "n"}, 100 + number)
            record = RecordedRecord(self.connector(name), 0, number, 0, key({"id": number}), row, ())
            publish(self._kafka.bootstrap_servers, [record])
            self.sent[name] += 1

    def rows(self, name: str) -> list[int]:
        """The rows of a table; none if it does not exist."""
        folder = self.warehouse / "shop" / name
        if name == "delta":
            return sorted(delta_rows(delta_table(folder))["id"].to_pylist()) if folder.exists() else []
        return sorted(row["id"] for row in lake_rows(folder))

    def offset(self, name: str) -> int:
        """The committed offset of the connector."""
        return self.worker.committed(self.connector(name)).get((self.connector(name), 0), 0)

    def wait(self, *names: str) -> None:
        """Wait until all rows are in the tables and committed."""
        for name in names:
            wait_until(lambda name=name: self.offset(name) == self.sent[name], f"offsets of {name}", SECONDS)
            assert self.rows(name) == list(range(self.sent[name]))

    def folders(self, name: str) -> list[Path]:
        """The folders of the table and its ledger."""
        return [self.warehouse / "shop" / each for each in (name, name + SUFFIX)]

    def stop(self, *names: str) -> None:
        for name in names:
            self.worker.call("PUT", f"/connectors/{self.connector(name)}/stop")
            wait_until(lambda name=name: self.worker.states(self.connector(name)) == ["STOPPED"], "stopped", SECONDS)

    def resume(self, *names: str) -> None:
        for name in names:
            self.worker.call("PUT", f"/connectors/{self.connector(name)}/resume")

    def refused(self, *words: str) -> None:
        """The lost table fails with the next row and is not written; the other table continues."""
        before, found = self.offset(self.lost), self.rows(self.lost)
        self.send(*self.sent)
        trace = wait_until(lambda: self.trace(self.lost), "the failure", SECONDS)
        connector = self.connector(self.lost)
        for word in (f"shop.{self.lost}", f"{connector}-0@{before}", f"/connectors/{connector}/offsets", *words):
            assert word in trace, trace
        assert (self.rows(self.lost), self.offset(self.lost)) == (found, before)
        self.wait(OTHER)

    def trace(self, name: str) -> str:
        """The trace of a failed task."""
        return self.worker.traces(self.connector(name)).strip()

    def rewind(self, offset: int, *names: str) -> None:
        """The documented repair: stop, set the offsets, resume; then all rows are in the table."""
        self.stop(*names)
        for name in names:
            place = {"kafka_topic": self.connector(name), "kafka_partition": 0}
            body = {"offsets": [{"partition": place, "offset": {"kafka_offset": offset}}]}
            url = f"{self.worker.url}/connectors/{self.connector(name)}/offsets"
            http.patch(url, json=body, timeout=SECONDS).raise_for_status()
        self.resume(*names)
        self.wait(*names)
