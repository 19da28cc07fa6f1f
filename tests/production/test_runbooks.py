"""The runbooks of docs/runbooks.md, carried out step by step on a shop under load. Each ends with equal tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from chaos.lane import Lane
from confluent_kafka import OFFSET_END, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from support.repository.headrace_command import headrace

from headrace_dev.connect import Connect, debezium_postgres
from headrace_dev.postgres import Postgres
from headrace_dev.server import http, wait_until
from headrace_dev.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.production, pytest.mark.long]

SECONDS = 180
PAIR = ("customers", "orders")


@pytest.fixture
def lane(stack: Stack, tmp_path: Path, request: pytest.FixtureRequest) -> Lane:
    """A shop of two tables; the test enters it."""
    return Lane(stack, request.node.name.replace("test_", "").replace("_", "")[:20], tmp_path, PAIR)


def under_load(lane: Lane) -> None:
    """Let the shop change until both tables have rows and more came."""
    lane.begin_load()
    wait_until(lambda: all(map(lane.rows, PAIR)) and lane.written() > 500, "rows in every table", SECONDS)


def worker_file(lane: Lane) -> Path:
    """The file of the newest worker."""
    return max(lane.warehouse.parent.glob("worker-*/worker.properties"), key=lambda file: file.stat().st_mtime)


def write_connector(lane: Lane, folder: Path, **changes: str) -> Path:
    """Write the connector's file as the repository of a team has it."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{lane.name}.json"
    file.write_text(json.dumps({"name": lane.name, "config": lane.sink_config(**changes)}))
    return file


def repair(lane: Lane, folder: Path, connector: Path) -> list[str]:
    """``headrace verify --repair``; afterwards nothing differs."""
    status, lines = headrace(folder, "verify", worker_file(lane), connector, "--repair")
    assert status == 0, lines
    return lines


def test_a_lost_warehouse_whose_topics_are_trimmed(lane: Lane, stack: Stack, tmp_path: Path) -> None:
    """Tables begin anew, and ``verify --repair`` brings from the source what the topics do not have any more."""
    with lane:
        under_load(lane)
        lane.worker.kill()
        shutil.rmtree(lane.warehouse)
        lane.warehouse.mkdir()
        admin = lane.admin()
        for deleted in admin.delete_records([TopicPartition(topic, 0, OFFSET_END) for topic in lane.topics]).values():
            deleted.result(timeout=30)
        lane.start_worker()
        wait_until(lambda: "does not exist" in lane.worker.traces(lane.name), "the failure of a table", SECONDS)

        lane.reconfigure(table__missing="recreate")
        wait_until(lambda: all(map(lane.rows, PAIR)), "rows of new tables", SECONDS)
        connector = write_connector(lane, tmp_path / "connectors", table__missing="recreate")
        assert any(line.endswith("repaired") for line in repair(lane, tmp_path, connector))
        lane.reconfigure()
        assert lane.prove() > 0


def test_a_lost_consumer_group(lane: Lane) -> None:
    """The connector reads from the beginning again, which changes nothing in the tables."""
    with lane:
        under_load(lane)
        lane.order("stop", "STOPPED")
        admin = lane.admin()
        wait_until(lambda: _delete_group(admin, f"connect-{lane.name}"), "deleted group", SECONDS)
        assert lane.worker.committed(lane.name) == {}
        lane.order("resume", "RUNNING")
        assert lane.prove() > 0


def test_a_lost_config_topic(lane: Lane, tmp_path: Path) -> None:
    """The connectors come back from their files, under the same names, and continue at their groups' offsets."""
    with lane:
        under_load(lane)
        wait_until(lambda: lane.worker.committed(lane.name), "committed offsets", SECONDS)
        before = lane.worker.committed(lane.name)
        lane.worker.kill()
        admin = lane.admin()
        for deleted in admin.delete_topics([f"{lane.name}-configs", f"{lane.name}-status"]).values():
            deleted.result(timeout=30)
        lane.start_worker()
        assert lane.worker.call("GET", "/connectors") == []

        file = write_connector(lane, tmp_path / "connectors")
        status, lines = headrace(tmp_path, "apply", "-f", file.parent, "--url", lane.worker.url)
        assert status == 0, lines
        wait_until(lambda: lane.states() == {"RUNNING"}, "running tasks", SECONDS)
        assert all(offset >= before[place] for place, offset in lane.worker.committed(lane.name).items())
        assert lane.prove() > 0


def test_a_restored_database(lane: Lane, stack: Stack, tmp_path: Path) -> None:
    """A dump is restored on a new server: its positions start again, and rows since the dump do not exist there."""
    with lane:
        under_load(lane)
        dump = tmp_path / "shop.dump"
        stack.postgres.dump(lane.name, dump)
        written = lane.written()
        wait_until(lambda: lane.written() > written + 500, "rows after the dump", SECONDS)
        lane.end_load()
        restored = Postgres(stack.root, f"{lane.name}-restored")
        try:
            restored.start()
            restored.restore(lane.name, dump)
            assert _position(restored) < _position(stack.postgres)
            with restored.connect(lane.name) as connection:
                connection.execute(f"DROP PUBLICATION IF EXISTS {lane.name}".encode())

            # 1. the source connector stops; the tables have everything that it sent
            url = f"{stack.connect.url}/connectors/{lane.name}"
            http.put(f"{url}/stop", timeout=30).raise_for_status()
            wait_until(lambda: lane.applied_by(lane.worker, lane.name), "end of the lag", SECONDS)
            # 2. what the sink reads from now on is newer than anything before
            lane.continue_on(restored)
            lane.reconfigure(source__position__epoch="1")
            # 3. the source connector takes a new snapshot
            wait_until(lambda: _stopped(stack.connect, lane.name), "stopped source connector", SECONDS)
            http.delete(f"{url}/offsets", timeout=30).raise_for_status()
            source = debezium_postgres(restored, lane.name, lane.name, heartbeat__interval__ms="1000")
            http.put(f"{url}/config", json=source, timeout=30).raise_for_status()
            http.put(f"{url}/resume", timeout=30).raise_for_status()
            lane.begin_load()
            # 4. rows that the restored database does not have are removed
            connector = write_connector(lane, tmp_path / "connectors", source__position__epoch="1")
            lines = repair(lane, tmp_path, connector)
            assert any("only in the lake" in line for line in lines)
            assert lane.prove() > 0
        finally:
            lane.end_load()
            restored.stop()


def _delete_group(admin: AdminClient, group: str) -> bool:
    """Whether the group could be deleted: not before its members have left it."""
    try:
        admin.delete_consumer_groups([group])[group].result(30)
    except KafkaException as error:
        print(error)
        return False
    return True


def _stopped(connect: Connect, name: str) -> bool:
    return bool(connect.status(name)["connector"]["state"] == "STOPPED")


def _position(postgres: Postgres) -> int:
    """The position of the newest change: its WAL position."""
    with postgres.connect() as connection:
        row = connection.execute("SELECT (pg_current_wal_lsn() - '0/0')::bigint").fetchone()
    assert row is not None
    return int(row[0])
