"""Damaged files under a real worker: the state of the table, and the runbook "A file of a table is damaged".

The table of the other connector continues. After each way of docs/runbooks.md the damaged table equals its source.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from integration.two_table_shop import OTHER, SECONDS, Shop

from headrace_dev.kafka import Kafka
from headrace_dev.server import http, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.long]

FORMATS = ("iceberg", pytest.param("delta", marks=pytest.mark.long))
DATA = {"iceberg": "metadata/*-m*.avro", "delta": "_delta_log/*.json"}
"""A file that every merge reads, also one that inserts rows only."""


class DamagedShop(Shop):
    """The steps of the runbook for the table that is damaged."""

    def newest(self, pattern: str, folder: Path) -> Path:
        """The newest of the files that a name describes."""
        return max(folder.glob(pattern), key=lambda file: (file.stat().st_mtime_ns, file.name))

    def failed(self, file: Path) -> None:
        """The table fails with the next row, and its message names the file; the other table continues."""
        before = self.offset(self.lost)
        self.send(*self.sent)
        connector = self.connector(self.lost)
        wait_until(lambda: self.table_states() & {"RETRYING", "FAILED"}, "an attempt", SECONDS)
        wait_until(lambda: "FAILED" in self.table_states(), "the failure", SECONDS)
        trace = self.worker.traces(connector)
        for word in ("TableDamaged", str(file), "docs/runbooks.md"):
            assert word in trace, trace
        assert self.offset(self.lost) == before
        self.wait(OTHER)

    def table_states(self) -> set[str]:
        """The state of the damaged table; nothing while it is RUNNING."""
        return {each["state"] for each in self.worker.tables(self.connector(self.lost))}

    def configure(self, **changes: str) -> None:
        """PUT the configuration of the damaged table's connector."""
        config = self.config(self.lost) | {name.replace("__", "."): value for name, value in changes.items()}
        name = self.connector(self.lost)
        http.put(f"{self.worker.url}/connectors/{name}/config", json=config, timeout=SECONDS).raise_for_status()

    def restart(self) -> None:
        """Restart what has failed, and wait for all rows."""
        self.worker.call("POST", f"/connectors/{self.connector(self.lost)}/restart?includeTasks=true&onlyFailed=true")
        self.wait(self.lost)


@pytest.fixture
def shop(
    stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str], request: pytest.FixtureRequest
) -> Iterator[DamagedShop]:
    """A shop with three rows in each table."""
    shop = DamagedShop(stack_kafka, tmp_path, unique("damaged"), request.param)
    try:
        shop.worker.start()
        shop.create()
        for _ in range(3):
            shop.send(*shop.sent)
            shop.wait(*shop.sent)
        yield shop
    finally:
        shop.worker.kill()


def damage(file: Path) -> bytes:
    """Cut a file as a disk that was full leaves it, with its checksum. Return what it contained."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 16])
    return content


@pytest.mark.parametrize("shop", FORMATS, indirect=True)
def test_a_damaged_table_is_restored_or_rolled_back(shop: DamagedShop) -> None:
    """The worker is started again for each damage, because a running one has the log of a Delta table in memory."""
    table, ledger = shop.folders(shop.lost)

    # restore the file
    shop.worker.kill()
    file = shop.newest(DATA[shop.lost], table)
    content = damage(file)
    shop.worker.start()
    shop.failed(file)
    file.write_bytes(content)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    shop.restart()

    # roll the table back: the newest metadata is damaged
    shop.send(*shop.sent)
    shop.wait(*shop.sent)
    shop.worker.kill()
    file = shop.newest("metadata/v*.metadata.json" if shop.lost == "iceberg" else "_delta_log/*.json", table)
    damage(file)
    shop.worker.start()
    shop.failed(file)
    shop.stop(shop.lost)
    away = shop.warehouse.parent / "away"
    away.mkdir()
    if shop.lost == "iceberg":
        file.rename(away / file.name)
        version = int(file.name.removeprefix("v").partition(".")[0])
        (table / "metadata" / "version-hint.text").write_text(f"{version - 1}\n")
        (table / "metadata" / ".version-hint.text.crc").unlink(missing_ok=True)
    else:
        for each in table.glob(f"_delta_log/*{file.stem}*"):
            each.rename(away / each.name)
    shop.resume(shop.lost)
    trace = wait_until(lambda: "older copy" in shop.trace(shop.lost) and shop.trace(shop.lost), "the offsets", SECONDS)
    held = len(shop.rows(shop.lost))
    assert f"-0@{held}" in trace
    shop.rewind(held, shop.lost)

    # the ledger: a new one, and the offsets set back
    shop.worker.kill()
    file = shop.newest("metadata/v*.metadata.json" if shop.lost == "iceberg" else "_delta_log/*.json", ledger)
    damage(file)
    shop.worker.start()
    shop.failed(file)
    shop.stop(shop.lost)
    shutil.move(ledger, away / ledger.name)
    shop.configure(table__missing="recreate")
    shop.rewind(0, shop.lost)
    shop.configure()
    shop.send(*shop.sent)
    shop.wait(*shop.sent)
