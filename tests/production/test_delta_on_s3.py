"""Delta tables on S3 with two writers: entries of the log are created conditionally, and none is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.lane import Lane
from production.delta_lake import DeltaLake, OtherWriter
from production.store_log import values

from headrace_dev.object_store import ObjectStore
from headrace_dev.server import wait_until
from headrace_dev.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.production, pytest.mark.long]

COMMITS = 60
RACES = 3


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """A running object store."""
    store = ObjectStore(tmp_path, names_headers=True)
    store.start()
    yield store
    store.stop()


def test_two_writers_of_a_table_lose_no_commit(stack: Stack, store: ObjectStore, tmp_path: Path) -> None:
    """A worker and another process commit to one table under load. The store answers the worker late, so it loses."""
    (tmp_path / "iceberg").mkdir()
    lake = DeltaLake(store, tmp_path / "iceberg")
    with Lane(stack, "deltas3", tmp_path, ["orders"], lake=lake, table__format="delta") as lane:
        table = ("headrace", f"{lane.name}_public_orders")
        lane.begin_load()
        wait_until(lambda: len(lane.rows("orders")) > 0, "first rows", 180)
        other = OtherWriter(lake, *table)
        with store.slow(milliseconds=20, kilobytes_per_second=20_000):
            other.start()
            try:
                wait_until(lambda: len(other.written) >= COMMITS, "commits of the other writer", 240)
                wait_until(lambda: lake.races_lost(*table) >= RACES, "races that the worker loses", 240)
            finally:
                other.stop()
        assert lane.prove() > 0
        assert lane.worker.tables(lane.name) == []
        log = "".join(store.read(entry) for entry in lake.log(*table))
        assert [mark for mark in other.written if mark not in log] == []
        own = len(lake.log(*table)) - len(other.written)
        assert values(store, "If-None-Match").count("*") >= len(other.written) + other.lost + own
        lost = lake.races_lost(*table)
        print(f"{len(other.written)} commits of the other writer stayed; it lost {other.lost} races, the worker {lost}")
