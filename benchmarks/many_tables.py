"""Freshness of many tables of one connector: from the commit at the source to the commit in the lake.

A producer sends changes to all tables at a steady rate, each with the time at which it was sent as its source time. A
table's commits say up to which offset the table has its topic (``headrace.offsets``), and when they were made, so that
the age of every change at its commit follows from files alone. It also prints CPU time and memory of the worker and its
JVM, and the size of the warehouse.

``--broken`` breaks three of the tables once all of them exist: the first gets a column of another type, the folder of
the second does not accept files (``chattr +i``, as root), and a record of the third is no JSON. It prints the freshness
of the others, what the status says of the three, and repairs and restarts each of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer, TopicPartition

from benchmarks.cpu import Cpu, cpu_of, peaks_of
from headrace_dev.kafka import Kafka
from headrace_dev.server import wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import Worker

CONNECTOR = "many"
KEYS = 100
START_SECONDS = 1_200.0
DRAIN_SECONDS = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it and print the freshness. Returns 1 if a change is missing, or a broken table does not continue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--rate", type=int, default=400, help="changes a second in all tables together")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--broken", action="store_true", help="break three of the tables")
    parser.add_argument("--worker", action="append", default=[], metavar="KEY=VALUE", help="a property of the worker")
    parser.add_argument("--connector", action="append", default=[], metavar="KEY=VALUE", help="one of the connector")
    parser.add_argument("--logs", type=Path, default=Path(".logs"), help="where logs go if something fails")
    chosen = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="headrace-many-"))
    try:
        with Stack("kafka", logs=chosen.logs, sustained=True) as stack:
            return Run(stack.kafka, root, chosen).run()
    finally:
        shutil.rmtree(root, ignore_errors=True)


class Run:
    """One run, with its folder for the warehouse and the worker."""

    def __init__(self, kafka: Kafka, root: Path, chosen: argparse.Namespace) -> None:
        self._kafka = kafka
        self._chosen = chosen
        self._topics = [f"many.public.t{number:03d}" for number in range(chosen.tables)]
        self._warehouse = root / "warehouse"
        self._worker = Worker(root, kafka, self._warehouse, properties=_properties(chosen.worker))
        self._sent: dict[str, list[float]] = {topic: [] for topic in self._topics}
        self._lsn = 0
        self._written = (0.0, 0.0)  # before the load: seconds of writes, and their number
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 20, "log_level": 3})

    def run(self) -> int:
        """Run all steps."""
        for topic in self._topics:
            self._kafka.create_topic(topic)
            self._send(topic)
        self._producer.flush()
        self._worker.start()
        try:
            with _step(f"creating {len(self._topics)} tables"):
                self._worker.put_connector(CONNECTOR, self._config())
                wait_until(lambda: self._is_written(self._topics), "the first commit of each table", START_SECONDS, 1.0)
            broken = self._topics[:3] if self._chosen.broken else []
            if broken:
                self._break(*broken)
            self._written = self._writes()
            begin, used = time.time(), cpu_of(self._worker.server.pid)
            with _step(f"sending {self._chosen.rate} changes a second for {self._chosen.seconds} s"):
                self._send_steadily(set(broken))
            healthy = [topic for topic in self._topics if topic not in broken]
            with _step("waiting for the last change"):
                wait_until(lambda: self._is_written(healthy), "all changes", DRAIN_SECONDS, 1.0)
            self._print_freshness(healthy, begin)
            self._print_resources(cpu_of(self._worker.server.pid).since(used), time.time() - begin)
            return self._repair(*broken) if broken else 0
        except (TimeoutError, AssertionError):
            print(self._worker.status(CONNECTOR), self._worker.server.log_end(60), sep="\n")
            raise
        finally:
            self._worker.stop()

    def _config(self) -> dict[str, str]:
        return {
            "connector.class": "headrace.LakehouseSinkConnector",
            "topics.regex": r"many\..*",
            "table.namespace": CONNECTOR,
            "collection.name.format": "${topic}",
            **_properties(self._chosen.connector),
        }

    # -- the load -----------------------------------------------------------------------------------------------------

    def _send(self, topic: str, **cells: Any) -> None:
        """Send one change of a table; its source time is the current time."""
        self._lsn += 1
        now = time.time()
        row = {"id": self._lsn % KEYS, "name": f"name {self._lsn}", "amount": self._lsn, **cells}
        value = _document(_envelope(row, topic.rpartition(".")[2], self._lsn, int(now * 1000)), _schema(row))
        key = _document({"id": row["id"]}, _struct({"id": row["id"]}))
        self._producer.produce(topic, key=key, value=value)
        self._sent[topic].append(now)

    def _send_steadily(self, without: set[str]) -> None:
        topics, begin = [topic for topic in self._topics if topic not in without], time.monotonic()
        for number in range(self._chosen.rate * self._chosen.seconds):
            time.sleep(max(0.0, begin + number / self._chosen.rate - time.monotonic()))
            self._send(topics[number % len(topics)])
            self._producer.poll(0)
        self._producer.flush()

    # -- what the tables have -----------------------------------------------------------------------------------------

    def _folder(self, topic: str) -> Path:
        return self._warehouse / CONNECTOR / topic.replace(".", "_")

    def _commits(self, topic: str) -> list[tuple[float, int]]:
        """Time and next offset of each commit of a table, in order."""
        files = sorted(self._folder(topic).glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:-14]))
        snapshots = json.loads(files[-1].read_text())["snapshots"] if files else []
        found = []
        for snapshot in snapshots:
            offsets = json.loads(snapshot["summary"].get("headrace.offsets", "{}")).get(topic, {}).get("offsets", {})
            found.append((snapshot["timestamp-ms"] / 1000, offsets.get("0", 0)))
        return sorted(found)

    def _is_written(self, topics: Sequence[str]) -> bool:
        return all((self._commits(topic) or [(0.0, 0)])[-1][1] >= len(self._sent[topic]) for topic in topics)

    def _print_freshness(self, topics: Sequence[str], begin: float) -> None:
        ages, commits = [], 0
        for topic in topics:
            made = self._commits(topic)
            times, ends = np.array([time for time, _ in made]), np.array([end for _, end in made])
            sent = np.array(self._sent[topic])
            first = np.searchsorted(ends, np.arange(len(sent)) + 1)
            ages.append((times[first] - sent)[sent >= begin])
            commits += int((times >= begin).sum())
        every = np.concatenate(ages)
        p50, p95 = np.percentile(every, [50, 95])
        print(
            f"{len(topics)} tables, {len(every)} changes, {commits} commits: freshness p50 {p50:.1f} s, "
            f"p95 {p95:.1f} s, most {every.max():.1f} s"
        )

    def _writes(self) -> tuple[float, float]:
        """Seconds of all writes of batches, and their number."""
        samples = [*self._worker.metrics().items()]
        sums = [
            sum(value for (name, _), value in samples if name == f"headrace_write_seconds_{part}")
            for part in ("sum", "count")
        ]
        return sums[0], sums[1]

    def _print_resources(self, cpu: Cpu, seconds: float) -> None:
        files = [file for file in self._warehouse.rglob("*") if file.is_file()]
        kinds = Counter(file.suffix for file in files)
        peaks = [f"{name} {memory} MiB" for name, memory in peaks_of(self._worker.server.pid)]
        took, writes = (after - before for after, before in zip(self._writes(), self._written, strict=True))
        print(
            f"CPU: {cpu.total / seconds:.2f} cores, {seconds:.0f} s (Python {cpu.python:.0f} s, JVM {cpu.jvm:.0f} s)\n"
            f"a batch: {cpu.total / writes:.3f} s of CPU, {took / writes:.3f} s of a writing thread\n"
            f"largest memory: {', '.join(peaks)}\n"
            f"warehouse: {sum(file.stat().st_size for file in files) >> 20} MiB in {len(files)} files "
            f"({', '.join(f'{number} {kind}' for kind, number in kinds.most_common())})"
        )

    # -- three broken tables ------------------------------------------------------------------------------------------

    def _break(self, typed: str, read_only: str, bad: str) -> None:
        self._send(typed, amount="much")
        subprocess.run(["chattr", "-R", "+i", str(self._folder(read_only))], check=True)
        self._send(read_only)
        self._producer.produce(bad, key=b"{", value=b"{broken")
        self._sent[bad].append(time.time())
        self._producer.flush()

    def _repair(self, typed: str, read_only: str, bad: str) -> int:
        """Print the status of the three tables, remove the causes, restart the tables and wait for them."""
        for each in self._worker.tables(CONNECTOR):
            print(f"{each['table']}: {each['state']}: {each['trace'].splitlines()[0]}")
        states = {
            dict(labels)["table"]: dict(labels)["state"]
            for (name, labels), value in self._worker.metrics().items()
            if name == "headrace_table_state" and value and dict(labels)["state"] != "RUNNING"
        }
        print(f"headrace_table_state: {states}")
        subprocess.run(["chattr", "-R", "-i", str(self._folder(read_only))], check=True)
        admin = self._kafka.admin()
        for topic in (typed, bad):
            removed = admin.delete_records([TopicPartition(topic, 0, len(self._sent[topic]))])
            for each in removed.values():
                each.result(timeout=30)
            self._send(topic)
        self._producer.flush()
        for topic in (typed, read_only, bad):
            self._worker.call("POST", f"/connectors/{CONNECTOR}/tables/{topic.replace('.', '_')}/restart")
        with _step("repaired and restarted"):
            wait_until(lambda: self._is_written([typed, read_only, bad]), "the repaired tables", DRAIN_SECONDS, 1.0)
        print(f"tables that do not run: {self._worker.tables(CONNECTOR)}")
        return 0


def _properties(pairs: Sequence[str]) -> dict[str, str]:
    """Return the properties of ``KEY=VALUE`` arguments."""
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def _envelope(row: dict[str, Any], table: str, lsn: int, millis: int) -> dict[str, Any]:
    source = {
        "connector": "postgresql",
        "name": CONNECTOR,
        "ts_ms": millis,
        "snapshot": "false",
        "db": CONNECTOR,
        "schema": "public",
        "table": table,
        "txId": lsn,
        "lsn": lsn,
    }
    return {"before": None, "after": row, "source": source, "op": "u", "ts_ms": millis}


def _schema(row: dict[str, Any]) -> dict[str, Any]:
    fields = [_struct(row) | {"field": "after"}, {"type": "string", "field": "op"}]
    return {"type": "struct", "name": f"{CONNECTOR}.Envelope", "fields": fields}


def _struct(row: dict[str, Any]) -> dict[str, Any]:
    types = {int: "int64", str: "string"}
    fields = [{"type": types[type(cell)], "optional": name != "id", "field": name} for name, cell in row.items()]
    return {"type": "struct", "optional": True, "name": f"{CONNECTOR}.Value", "fields": fields}


def _document(payload: dict[str, Any], schema: dict[str, Any]) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


@contextmanager
def _step(text: str) -> Iterator[None]:
    print(f"{text} ...", end=" ", flush=True)
    began = time.monotonic()
    yield
    print(f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
