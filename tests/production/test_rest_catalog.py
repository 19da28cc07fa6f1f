"""A worker whose tables are in a REST catalog on an object store, with tokens and credentials that end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.lane import Lane
from production.rest_lake import RestLake

from headrace_dev.nessie import Nessie
from headrace_dev.object_store import ObjectStore
from headrace_dev.server import wait_until
from headrace_dev.stack import Stack
from headrace_dev.vending_catalog import VendingCatalog

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.production, pytest.mark.long]

LIFETIMES = 3


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """A running object store, which accepts temporary credentials."""
    store = ObjectStore(tmp_path, sessions=True)
    store.start()
    yield store
    store.stop()


@pytest.fixture
def catalog(store: ObjectStore, nessie: Nessie, request: pytest.FixtureRequest) -> Iterator[VendingCatalog]:
    """A catalog with tokens that issues credentials, ``renewable`` as the test wants them."""
    catalog = VendingCatalog(nessie.url, store, renewable=request.param)
    catalog.start()
    yield catalog
    catalog.stop()


@pytest.mark.parametrize("catalog", [True], ids=["nessie"], indirect=True)
def test_a_rest_catalog_that_hides_older_snapshots(
    stack: Stack, store: ObjectStore, nessie: Nessie, catalog: VendingCatalog, tmp_path: Path
) -> None:
    """A restarted worker continues behind its last commit, and upkeep removes no file that the catalog keeps."""
    lake = RestLake("s3-nessie", store, nessie, catalog)
    with Lane(stack, "restcatalog", tmp_path, lake=lake) as lane:
        lane.begin_load()
        wait_until(lambda: len(lane.rows("orders")) > 0, "first rows", 180)
        written = lane.written()
        wait_until(lambda: lane.written() > written + 1000, "more rows", 180)
        lane.kill_in_a_batch(after=0)
        lane.restart_worker()
        written = lane.written()
        wait_until(lambda: lane.written() > written, "rows after the restart", 180)
        assert lane.prove() > 0
        notes = [note["note"] for task in lane.worker.tasks(lane.name) for note in task.get("notes", [])]
        assert [note for note in notes if "version 2 of Iceberg's format, not 3" in note]
        assert [note for note in notes if "shows the newest snapshot only" in note]
        table = lake.table("headrace", f"{lane.name}_public_orders")
        assert table is not None
        assert table.metadata.format_version == 2
        assert len(table.metadata.snapshots) == 1


@pytest.mark.parametrize("catalog", [True], ids=["renewable"], indirect=True)
def test_tokens_and_credentials_are_renewed(
    stack: Stack, store: ObjectStore, nessie: Nessie, catalog: VendingCatalog, tmp_path: Path
) -> None:
    """Tokens of the catalog and credentials of the storage end several times while rows arrive: no table notices."""
    lake = RestLake("s3-rest", store, nessie, catalog)
    with Lane(stack, "vended", tmp_path, lake=lake) as lane:
        lane.begin_load()
        wait_until(lambda: len(lane.rows("orders")) > 0, "first rows", 180)
        until = time.monotonic() + LIFETIMES * catalog.token_seconds
        while time.monotonic() < until:
            written = lane.written()
            wait_until(lambda before=written: lane.written() > before, "more rows", 60)  # type: ignore[misc]
            assert lane.states() == {"RUNNING"}
            assert lane.worker.tables(lane.name) == []
        assert lane.prove() > 0
        print(catalog.count)
        assert catalog.count["tokens"] >= LIFETIMES


@pytest.mark.parametrize("catalog", [False], ids=["not-renewable"], indirect=True)
def test_credentials_that_end_within_a_statement(
    stack: Stack, store: ObjectStore, nessie: Nessie, catalog: VendingCatalog, tmp_path: Path
) -> None:
    """The storage refuses the statement; the batch is written again with new credentials, and nothing is lost."""
    lake = RestLake("s3-rest", store, nessie, catalog)
    with Lane(stack, "ended", tmp_path, lake=lake) as lane:
        lane.begin_load()
        wait_until(lambda: len(lane.rows("orders")) > 0, "first rows", 180)
        catalog.credential_seconds = 0.2
        with store.slow(milliseconds=500, kilobytes_per_second=1000):
            wait_until(lambda: "does not accept the credentials" in lane.log(), "credentials that have ended", 120)
            assert lane.states() == {"RUNNING"}
        catalog.credential_seconds = 20.0
        written = lane.written()
        wait_until(lambda: lane.written() > written, "rows with new credentials", 60)
        assert lane.prove() > 0
        assert lane.worker.tables(lane.name) == []
