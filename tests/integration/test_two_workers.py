"""Two worker processes of one cluster under load: each answers for both, and one takes the tasks of a dead one.

``tests/chaos/test_workers.py`` has the long forms, with a database and Debezium.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from chaos.cluster import Twins, cluster_properties, cluster_rows
from confluent_kafka.admin import AdminClient
from support.kafka.kafka_harness import producer
from support.records.envelopes import change, key

from headrace_dev.kafka import Kafka
from headrace_dev.postgres import Postgres
from headrace_dev.server import wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.chaos]
TABLES = ("customers", "orders")
SESSION_SECONDS = 6
SLACK_SECONDS = 14
"""Until the group has another assignment and the tasks have started, on a busy machine."""
CHANGES_PER_SECOND = 200
ROWS = 100
Row = dict[str, Any]


class Load:
    """Changes rows of all tables concurrently, and records their last values."""

    def __init__(self, kafka: Kafka, topics: Sequence[str]) -> None:
        self.rows: Mapping[str, dict[int, Row]] = {topic: {} for topic in topics}
        self.written = dict.fromkeys(topics, 0)
        self._kafka = kafka
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        """Insert, update and delete in a random order; the log positions contain the order."""
        chance = random.Random(1)
        with producer(self._kafka) as out:
            for number in itertools.count(1):
                topic, row = chance.choice(list(self.rows)), {"id": chance.randrange(ROWS), "number": number}
                known = self.rows[topic].pop(row["id"], None)
                gone = known is not None and chance.random() < 0.2
                if not gone:
                    self.rows[topic][row["id"]] = row
                op = "d" if gone else "c" if known is None else "u"
                event = change(op, None if gone else row, number, columns=row, table=topic.rpartition(".")[2])
                out.produce(topic, event, key({"id": row["id"]}))
                self.written[topic] += 1
                if self._ended.wait(1 / CHANGES_PER_SECOND):
                    return


class Pair:
    """Two workers, and a load on the topics of their connector ``name``."""

    def __init__(self, kafka: Kafka, postgres: Postgres, folder: Path, name: str) -> None:
        self.name = name
        self.topics = [f"{name}.public.{table}" for table in TABLES]
        self.load = Load(kafka, self.topics)
        self._kafka, self._postgres = kafka, postgres
        properties = cluster_properties(postgres, name, SESSION_SECONDS) | SHORT_LIVED
        self.workers = [
            Worker(folder, kafka, folder / "warehouse", name=f"worker-{number}", properties=properties)
            for number in range(2)
        ]

    def start(self) -> None:
        """Make topics and catalog, and start both workers concurrently."""
        for topic in self.topics:
            self._kafka.create_topic(topic)
        self._postgres.create_database(f"{self.name}_catalog")
        with ThreadPoolExecutor(2) as starting:
            list(starting.map(Worker.start, self.workers))

    def admin(self) -> AdminClient:
        """A client of the broker."""
        return self._kafka.admin()

    def rows(self, table: str) -> list[Row]:
        """The rows in the lake, sorted."""
        return sorted(cluster_rows(self._postgres, self.name, table), key=lambda row: row["id"])

    def owners(self, worker: Worker) -> set[str]:
        """The workers of the tasks, as one worker reports them."""
        return {task["worker_id"] for task in worker.tasks(self.name)}

    def all_are(self, state: str) -> bool:
        """Whether both workers report connector and tasks in one state."""
        return all(set(worker.states(self.name)) == {state} for worker in self.workers)


@pytest.fixture
def pair(stack_kafka: Kafka, stack_postgres: Postgres, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Pair]:
    """Two running workers."""
    pair = Pair(stack_kafka, stack_postgres, tmp_path, unique("pair"))
    pair.start()
    yield pair
    for worker in pair.workers:
        worker.kill()


def test_one_of_two_workers_is_killed(pair: Pair) -> None:
    """Each worker runs a task and accepts requests for both.

    The tasks of a killed worker move, no task runs twice, and the tables equal the load's.
    """
    first, second = pair.workers
    both = {address(worker) for worker in pair.workers}
    config = {"connector.class": "LakehouseSink", "topics": ",".join(pair.topics), "tasks.max": "2"}
    session = {"consumer.override.session.timeout.ms": str(1000 * SESSION_SECONDS), "batch.linger.ms": "200"}
    second.put_connector(pair.name, config | session)
    wait_until(lambda: pair.owners(first) == pair.owners(second) == both, "a task on each", 30)
    assert [counted(worker) for worker in pair.workers] == [1, 1]
    for worker, verb, state in ((first, "pause", "PAUSED"), (second, "resume", "RUNNING")):
        worker.call("PUT", f"/connectors/{pair.name}/{verb}")
        wait_until(partial(pair.all_are, state), state, 60)
    with pair.load, Twins(pair) as twins:
        wait_until(lambda: all(map(pair.rows, TABLES)), "rows in every table", 120)
        began = time.monotonic()
        first.kill()
        wait_until(lambda: pair.owners(second) == {address(second)}, "all tasks on the other", SESSION_SECONDS + 20)
        moved = time.monotonic() - began
        wait_until(lambda: set(second.states(pair.name)) == {"RUNNING"}, "running", 60)
    print(f"tasks moved after {moved:.1f} s; one stood twice in its group for {twins.longest:.1f} s at most")
    assert moved < SESSION_SECONDS + SLACK_SECONDS
    assert twins.longest < SESSION_SECONDS + SLACK_SECONDS
    assert counted(second) == 2
    ends = {(topic, 0): count for topic, count in pair.load.written.items()}
    wait_until(lambda: second.committed(pair.name) == ends, "end of the lag", 120)
    for table, topic in zip(TABLES, pair.topics, strict=True):
        assert pair.rows(table) == [row for _, row in sorted(pair.load.rows[topic].items())]


def address(worker: Worker) -> str:
    """Its ``worker_id``."""
    return worker.url.removeprefix("http://")


def counted(worker: Worker) -> float:
    """The number of tasks that a worker runs, from its metrics."""
    return worker.metrics()["kafka_connect_worker_task_count", frozenset()]
