"""Freshness of many tables of one connector: from the commit at the source to the commit in the lake.

All tables change at a steady rate, and the changes arrive as Debezium sends them (``delivery.py``). Each has the time
of its commit at the source. A table's commits say up to which offset the table has its topic (``headrace.offsets``),
and when they were made, so that the age of every change at its commit follows from files alone. It also prints CPU time
and memory of the worker and its JVM, and the size of the warehouse.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
from confluent_kafka import TopicPartition

from benchmarks.cpu import Cpu, cpu_of, peaks_of
from benchmarks.delivery import Delivery
from headrace_dev.kafka import Kafka
from headrace_dev.server import wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import Worker

CONNECTOR = "many"
START_SECONDS = 1_200.0
DRAIN_SECONDS = 600.0
_TICK_SECONDS = 0.002


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it and print the freshness. Returns 1 if a change is missing, or a broken table does not continue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--rate", type=int, default=400, help="changes a second in all tables together")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--broken", action="store_true", help="break three of the tables")
    parser.add_argument("--logs", type=Path, default=Path(".logs"), help="where logs go if something fails")
    chosen = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="headrace-many-"))
    try:
        with Stack("kafka", logs=chosen.logs, sustained=True) as stack:
            sink = HeadraceSink(stack.kafka, root)
            run = Run(stack.kafka, sink, Load(chosen.tables, chosen.rate, chosen.seconds))
            run.run(_Breakage(stack.kafka, sink, run) if chosen.broken else None)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


@dataclass(frozen=True, slots=True)
class Load:
    """``rate`` changes a second in all tables together, for some seconds; each table has ``keys`` rows."""

    tables: int
    rate: int
    seconds: int
    keys: int = 100


class Sink(Protocol):
    """What keeps a table equal to each topic."""

    name: str
    warehouse: Path

    def start(self, topics: Sequence[str]) -> None:
        """Start, and create the tables."""

    def events(self, summary: Mapping[str, str], topic: str) -> int:
        """Return how many events of a topic a snapshot contains."""

    def cpu(self) -> Cpu:
        """Return the CPU time of all processes."""

    def pids(self) -> Sequence[int]:
        """Return the processes whose descendants belong to it."""

    def report(self) -> str:
        """Return what explains a failure."""

    def stop(self) -> None:
        """Stop all processes. Idempotent."""


class HeadraceSink:
    """A worker with one connector. ``properties`` are more properties of the worker."""

    name = "Headrace"

    def __init__(self, kafka: Kafka, root: Path, properties: Mapping[str, str] | None = None) -> None:
        self.warehouse = root / "warehouse"
        self.worker = Worker(root, kafka, self.warehouse, properties=properties)

    def start(self, topics: Sequence[str]) -> None:
        """Start the worker and its connector, which creates each table with its first batch."""
        self.worker.start()
        config = {
            "connector.class": "headrace.LakehouseSinkConnector",
            "topics.regex": r"many\..*",
            "table.namespace": CONNECTOR,
            "collection.name.format": "${topic}",
        }
        self.worker.put_connector(CONNECTOR, config)

    def events(self, summary: Mapping[str, str], topic: str) -> int:
        offsets = json.loads(summary.get("headrace.offsets", "{}")).get(topic, {}).get("offsets", {})
        return int(offsets.get("0", 0))

    def cpu(self) -> Cpu:
        return cpu_of(self.worker.server.pid)

    def pids(self) -> Sequence[int]:
        return [self.worker.server.pid]

    def report(self) -> str:
        return f"{self.worker.status(CONNECTOR)}\n{self.worker.server.log_end(60)}"

    def stop(self) -> None:
        self.worker.stop()


@dataclass(frozen=True, slots=True)
class Freshness:
    """Ages of the changes at their commits, in seconds, and the number of these commits."""

    ages: npt.NDArray[np.float64]
    commits: int

    @property
    def percentiles(self) -> tuple[float, float]:
        """Return the 50th and the 95th percentile."""
        p50, p95 = np.percentile(self.ages, [50, 95])
        return float(p50), float(p95)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has measured, from the first change of the load until the last one is visible."""

    freshness: Freshness
    cpu: Cpu
    seconds: float
    created: float
    """Seconds until each table had its first commit."""


class Run:
    """One load and one sink."""

    def __init__(self, kafka: Kafka, sink: Sink, load: Load) -> None:
        self._kafka = kafka
        self._sink = sink
        self._load = load
        self.topics = [f"many.public.t{number:03d}" for number in range(load.tables)]
        self.sent: dict[str, list[float]] = {topic: [] for topic in self.topics}
        self.rows: dict[str, dict[int, dict[str, Any]]] = {topic: {} for topic in self.topics}
        """The rows that each table must contain in the end, by id."""
        self._lsn = 0
        self.delivery = Delivery(kafka.bootstrap_servers)

    def run(self, breakage: _Breakage | None = None, on_load: Callable[[], None] | None = None) -> Outcome:
        """Run all steps; ``on_load`` is called when all tables exist."""
        for topic in self.topics:
            self._kafka.create_topic(topic)
            self.send(topic)
        self.delivery.flush()
        try:
            begin = time.monotonic()
            with _step(f"{self._sink.name}: creating {len(self.topics)} tables"):
                self._sink.start(self.topics)
                wait_until(lambda: self.is_written(self.topics), "the first commit of each table", START_SECONDS, 1.0)
            created = time.monotonic() - begin
            broken = self.topics[:3] if breakage else []
            if breakage:
                breakage.break_tables(*broken)
            if on_load:
                on_load()
            start, used = time.time(), self._sink.cpu()
            with _step(f"sending {self._load.rate} changes a second for {self._load.seconds} s"):
                self._send_steadily(set(broken))
            healthy = [topic for topic in self.topics if topic not in broken]
            with _step("waiting for the last change"):
                wait_until(lambda: self.is_written(healthy), "all changes", DRAIN_SECONDS, 1.0)
            freshness = self._freshness(healthy, start)
            outcome = Outcome(freshness, self._sink.cpu().since(used), time.time() - start, created)
            self._print(healthy, outcome)
            if breakage:
                breakage.repair(*broken)
            return outcome
        except (TimeoutError, AssertionError):
            print(self._sink.report())
            raise
        finally:
            self.delivery.close()
            self._sink.stop()

    # -- the load -----------------------------------------------------------------------------------------------------

    def send(self, topic: str, **cells: Any) -> None:
        """Let one row of a table change at the source, now."""
        self._lsn += 1
        now = time.time()
        row = {
            "id": self._lsn // len(self.topics) % self._load.keys,
            "name": f"name {self._lsn}",
            "amount": self._lsn,
            **cells,
        }
        before = self.rows[topic].get(row["id"])
        envelope = _envelope(before, row, topic.rpartition(".")[2], self._lsn, int(now * 1000))
        types = tuple((name, type(cell)) for name, cell in row.items())
        key = _document(_head((("id", int),), is_key=True), {"id": row["id"]})
        self.delivery.put(topic, key, _document(_head(types), envelope))
        self.rows[topic][row["id"]] = row
        self.sent[topic].append(now)

    def _send_steadily(self, without: set[str]) -> None:
        topics, begin = [topic for topic in self.topics if topic not in without], time.monotonic()
        for number in range(self._load.rate * self._load.seconds):
            ahead = begin + number / self._load.rate - time.monotonic()
            if ahead > _TICK_SECONDS:
                time.sleep(ahead)
            self.send(topics[number % len(topics)])
            self.delivery.poll()
        self.delivery.flush()

    # -- what the tables have -----------------------------------------------------------------------------------------

    def folder(self, topic: str) -> Path:
        """Return the folder of a table."""
        return self._sink.warehouse / CONNECTOR / topic.replace(".", "_")

    def _commits(self, topic: str) -> list[tuple[float, int]]:
        """Time and next offset of each commit of a table, in order."""
        files = sorted(self.folder(topic).glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:-14]))
        snapshots = json.loads(files[-1].read_text()).get("snapshots", []) if files else []
        return sorted((each["timestamp-ms"] / 1000, self._sink.events(each["summary"], topic)) for each in snapshots)

    def is_written(self, topics: Sequence[str]) -> bool:
        """Return whether the tables contain all changes that were sent."""
        return all((self._commits(topic) or [(0.0, 0)])[-1][1] >= len(self.sent[topic]) for topic in topics)

    def _freshness(self, topics: Sequence[str], begin: float) -> Freshness:
        ages, commits = [], 0
        for topic in topics:
            made = self._commits(topic)
            times, ends = np.array([time for time, _ in made]), np.array([end for _, end in made])
            sent = np.array(self.sent[topic])
            first = np.searchsorted(ends, np.arange(len(sent)) + 1)
            ages.append((times[first] - sent)[sent >= begin])
            commits += int((times >= begin).sum())
        return Freshness(np.concatenate(ages), commits)

    def _print(self, topics: Sequence[str], outcome: Outcome) -> None:
        ages, cpu = outcome.freshness.ages, outcome.cpu
        p50, p95 = outcome.freshness.percentiles
        kinds, size = Counter[str](), 0
        for file in self._sink.warehouse.rglob("*"):
            with suppress(FileNotFoundError):  # upkeep goes on
                if file.is_file():
                    size += file.stat().st_size
                    kinds[file.suffix] += 1
        peaks = [f"{name} {memory} MiB" for pid in self._sink.pids() for name, memory in peaks_of(pid)]
        print(
            f"{len(topics)} tables, {len(ages)} changes, {outcome.freshness.commits} commits: freshness "
            f"p50 {p50:.1f} s, p95 {p95:.1f} s, most {ages.max():.1f} s\n"
            f"CPU: {cpu.total / outcome.seconds:.2f} cores, {outcome.seconds:.0f} s (Python {cpu.python:.0f} s, "
            f"JVM {cpu.jvm:.0f} s)\n"
            f"largest memory: {', '.join(peaks)}\n"
            f"warehouse: {size >> 20} MiB in {kinds.total()} files "
            f"({', '.join(f'{number} {kind}' for kind, number in kinds.most_common())})"
        )


class _Breakage:
    """Breaks three tables of Headrace, and repairs them."""

    def __init__(self, kafka: Kafka, sink: HeadraceSink, run: Run) -> None:
        self._kafka = kafka
        self._worker = sink.worker
        self._run = run

    def break_tables(self, typed: str, read_only: str, bad: str) -> None:
        """Send a column of another type, protect a folder, and send a record that is no JSON."""
        self._run.send(typed, amount="much")
        subprocess.run(["chattr", "-R", "+i", str(self._run.folder(read_only))], check=True)
        self._run.send(read_only)
        self._run.delivery.put(bad, b"{", b"{broken")
        self._run.sent[bad].append(time.time())
        self._run.delivery.flush()

    def repair(self, typed: str, read_only: str, bad: str) -> None:
        """Print the status of the three tables, remove the causes, restart the tables and wait for them."""
        for each in self._worker.tables(CONNECTOR):
            print(f"{each['table']}: {each['state']}: {each['trace'].splitlines()[0]}")
        states = {
            dict(labels)["table"]: dict(labels)["state"]
            for (name, labels), value in self._worker.metrics().items()
            if name == "headrace_table_state" and value and dict(labels)["state"] != "RUNNING"
        }
        print(f"headrace_table_state: {states}")
        subprocess.run(["chattr", "-R", "-i", str(self._run.folder(read_only))], check=True)
        admin = self._kafka.admin()
        for topic in (typed, bad):
            removed = admin.delete_records([TopicPartition(topic, 0, len(self._run.sent[topic]))])
            for each in removed.values():
                each.result(timeout=30)
            self._run.send(topic)
        self._run.delivery.flush()
        for topic in (typed, read_only, bad):
            self._worker.call("POST", f"/connectors/{CONNECTOR}/tables/{topic.replace('.', '_')}/restart")
        with _step("repaired and restarted"):
            wait_until(lambda: self._run.is_written([typed, read_only, bad]), "the repaired tables", DRAIN_SECONDS, 1.0)
        print(f"tables that do not run: {self._worker.tables(CONNECTOR)}")


def _envelope(before: dict[str, Any] | None, row: dict[str, Any], table: str, lsn: int, millis: int) -> dict[str, Any]:
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
    return {"before": before, "after": row, "source": source, "op": "u" if before else "c", "ts_ms": millis}


Types = tuple[tuple[str, type], ...]
"""The columns of a row with the types of their cells."""


@cache
def _head(types: Types, *, is_key: bool = False) -> bytes:
    """Return the begin of a document up to its payload. All documents of a table share it."""
    schema = _struct(types)
    if not is_key:
        fields = [*(schema | {"field": name} for name in ("before", "after")), {"type": "string", "field": "op"}]
        schema = {"type": "struct", "name": f"{CONNECTOR}.Envelope", "fields": fields}
    return b'{"schema":%s,"payload":' % msgspec.json.encode(schema)


def _struct(types: Types) -> dict[str, Any]:
    names = {int: "int64", str: "string"}
    fields = [{"type": names[cell], "optional": name != "id", "field": name} for name, cell in types]
    return {"type": "struct", "optional": True, "name": f"{CONNECTOR}.Value", "fields": fields}


def _document(head: bytes, payload: dict[str, Any]) -> bytes:
    return head + msgspec.json.encode(payload) + b"}"


@contextmanager
def _step(text: str) -> Iterator[None]:
    print(f"{text} ...", end=" ", flush=True)
    began = time.monotonic()
    yield
    print(f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
