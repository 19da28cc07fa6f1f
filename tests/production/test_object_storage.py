"""A worker on an object store that ends, hangs and slows down: nothing is lost, and nothing is half visible."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from chaos.lane import Lane
from production.object_lake import ObjectLake
from production.visible_prefix import assert_prefix
from pyiceberg.table import StaticTable

from headrace_dev.object_store import ObjectStore
from headrace_dev.server import http, wait_until
from headrace_dev.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.production, pytest.mark.long]

FLOWS_AGAIN_SECONDS = 60
OUTAGE_SECONDS = 60
STATEMENT_SECONDS = 20


@pytest.fixture
def lake(stack: Stack, store: ObjectStore, request: pytest.FixtureRequest) -> ObjectLake:
    """A warehouse in the store."""
    return ObjectLake(store, stack.postgres, f"{short_name(request)}lake")


@pytest.fixture
def worker() -> Mapping[str, str]:
    """Options of the worker."""
    return {}


@pytest.fixture
def lane(
    stack: Stack, lake: ObjectLake, worker: Mapping[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Lane]:
    """A shop under load, and a worker that writes to the store."""
    with Lane(stack, short_name(request), tmp_path, lake=lake, worker=worker) as lane:
        lane.begin_load()
        wait_until(lambda: len(lane.rows("orders")) > 0, "first rows", 180)
        yield lane


def short_name(request: pytest.FixtureRequest) -> str:
    """The name of the test, for topics and databases."""
    name: str = request.node.name.replace("test_a_store_that_is_", "").replace("_", "")
    return "".join(filter(str.isalnum, name))[:24]


@pytest.mark.parametrize("step", ["data", "metadata"])
def test_a_store_that_is_killed_loses_nothing(lane: Lane, lake: ObjectLake, stack: Stack, step: str) -> None:
    """``kill -9`` of the store during a merge, and during a commit, for a minute; the worker retries until it is back.

    The first new object of a data file, or of a manifest, shows that the step is under way.
    """
    store = lake.store
    objects = f"*/headrace/{lane.name}_public_orders/{step}/**/*.{'parquet' if step == 'data' else 'avro'}"
    with ExitStack() as outage:
        with store.slow(milliseconds=100, kilobytes_per_second=2000):
            before = store.objects(objects)
            wait_until(lambda: store.objects(objects) - before, f"a new object of {step}", 60, 0.01)
            outage.enter_context(store.killed())
        hit = store.objects(objects) - before
        assert not hit & visible(reader(lane, lake)), "the step had ended before the kill"
        print(f"killed while {len(hit)} objects of {step} were in no snapshot")
        seen = prefix(lane, lake, stack)
        wait_until(lambda: lane.worker.tables(lane.name), "a table that is retried", 120)
        assert probes(lane) == (200, 200)
        time.sleep(OUTAGE_SECONDS)  # no condition to wait for: the outage has a length
        assert lane.states() == {"RUNNING"}
        assert probes(lane) == (200, 200)
        assert prefix(lane, lake, stack) >= seen
    flows_again(lane, lake, "the end of an outage")
    assert prefix(lane, lake, stack) > seen
    prove(lane)


@pytest.mark.parametrize("worker", [{"statement.timeout.ms": str(1000 * STATEMENT_SECONDS)}], ids=["soon"])
def test_a_store_that_does_not_answer_is_given_up(lane: Lane, lake: ObjectLake, stack: Stack) -> None:
    """A stopped store accepts connections: the statements are cancelled, and repeated when it answers again."""
    wait_until(lambda: lane.events_in_hand() > 0, "batch in hand", 60)
    with lake.store.silent():
        seen = prefix(lane, lake, stack)
        wait_until(lambda: "(statement.timeout.ms) and is cancelled" in lane.log(), "a statement that is cancelled", 90)
        assert probes(lane)[0] == 200
        wait_until(lambda: lane.worker.tables(lane.name), "a table that is retried", 90)
        time.sleep(STATEMENT_SECONDS)  # no condition to wait for: the next statements hang as well
        assert probes(lane)[0] == 200
        assert lane.states() == {"RUNNING"}
        assert prefix(lane, lake, stack) >= seen
    flows_again(lane, lake, "the end of a silence")
    wait_until(lambda: probes(lane) == (200, 200), "a worker that is ready", 60)
    prove(lane)


def test_a_slow_store_slows_down_only(lane: Lane, lake: ObjectLake, stack: Stack) -> None:
    """Answers that are late and slow for a while; batches become larger, and no table fails."""
    with lake.store.slow(milliseconds=150, kilobytes_per_second=500):
        flows_again(lane, lake, "the begin of a slow time")
        until = time.monotonic() + OUTAGE_SECONDS
        while time.monotonic() < until:
            prefix(lane, lake, stack)
            assert probes(lane) == (200, 200)
            assert lane.worker.tables(lane.name) == []
    flows_again(lane, lake, "a slow time")
    prove(lane)


def flows_again(lane: Lane, lake: ObjectLake, what: str) -> None:
    """Wait until a reader sees new rows, and print how long it took."""
    location, began = reader(lane, lake).metadata_location, time.monotonic()
    wait_until(
        lambda: reader(lane, lake).metadata_location != location, f"commit after {what}", FLOWS_AGAIN_SECONDS, 0.25
    )
    print(f"a commit {time.monotonic() - began:.1f} s after {what}")


def prove(lane: Lane) -> None:
    """Compare all tables with the database; none of them is retried."""
    assert lane.prove() > 0
    assert lane.worker.tables(lane.name) == []
    assert probes(lane) == (200, 200)


def prefix(lane: Lane, lake: ObjectLake, stack: Stack) -> int:
    """Fail unless a reader sees the changes of the orders up to an offset, and return that."""
    topic = f"{lane.name}.public.orders"
    return assert_prefix(reader(lane, lake), stack.kafka.bootstrap_servers, topic, "id")


def reader(lane: Lane, lake: ObjectLake) -> StaticTable:
    """What a reader sees of the orders now."""
    table = lake.table("headrace", f"{lane.name}_public_orders")
    assert table is not None
    return table


def visible(table: StaticTable) -> set[str]:
    """The data files and manifests of the newest snapshot."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = {manifest.manifest_path for manifest in snapshot.manifests(table.io)} | {snapshot.manifest_list}
    return manifests | {task.file.file_path for task in table.scan().plan_files()}


def probes(lane: Lane) -> tuple[int, int]:
    """The statuses of ``/health/live`` and ``/health/ready``."""
    live, ready = (http.get(f"{lane.worker.url}/health/{name}", timeout=10).status_code for name in ("live", "ready"))
    return live, ready
