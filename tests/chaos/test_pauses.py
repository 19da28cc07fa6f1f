"""Pause, stop, restart, a second task and transforms under load: no change is lost and memory stays constant."""

from __future__ import annotations

import time

import pytest
from chaos.lane import Lane

from headrace_dev.demo.compare import lake_rows
from headrace_dev.server import wait_until

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.chaos]


@pytest.mark.parametrize("seconds", [6, pytest.param(60, marks=pytest.mark.long)])
def test_pause_under_load(lane: Lane, seconds: int) -> None:
    """During a pause no row changes and memory does not grow; after resume, all changes are applied."""
    lane.begin_load()
    wait_until(lambda: lane.transactions > 100, "load")
    wait_until(lambda: lane.written() > 0, "first rows, for which Spark has started", 180)
    lane.order("pause", "PAUSED")
    rows, (before, jvm), done = lane.rows("customers"), lane.resident_megabytes(), lane.transactions
    time.sleep(seconds)  # the pause itself
    after, jvm_after = lane.resident_megabytes()
    print(f"pause of {seconds} s under load: worker {before} -> {after} MB, its JVM {jvm} -> {jvm_after} MB")
    assert lane.transactions > done
    assert sorted(map(str, lane.rows("customers"))) == sorted(map(str, rows))
    assert after - before < 30
    lane.order("resume", "RUNNING")
    assert lane.prove() > 0


def test_stop_and_resume_under_load(lane: Lane) -> None:
    """A stopped connector has no tasks; after resume, it continues at its committed offsets."""
    lane.begin_load()
    wait_until(lambda: lane.transactions > 100, "load")
    lane.worker.call("PUT", f"/connectors/{lane.name}/stop")
    wait_until(lambda: lane.worker.states(lane.name) == ["STOPPED"], "no tasks", 60)
    lane.worker.call("PUT", f"/connectors/{lane.name}/resume")
    wait_until(lambda: lane.worker.states(lane.name) == ["RUNNING", "RUNNING"], "running", 60)
    assert lane.prove() > 0


@pytest.mark.long
def test_a_worker_that_was_killed_while_paused_comes_back_paused(lane: Lane) -> None:
    """The target state is stored in Kafka; no record is read before resume.

    ``test_worker_process.py::test_what_was_paused_is_paused_after_a_kill`` is the short form.
    """
    lane.begin_load()
    wait_until(lambda: lane.transactions > 100, "load")
    lane.order("pause", "PAUSED")
    lane.worker.kill()
    rows = lane.rows("orders")
    lane.start_worker()
    wait_until(lambda: lane.states() == {"PAUSED"}, "paused", 60)
    time.sleep(2)  # time for effects that must not occur
    assert lane.rows("orders") == rows
    lane.order("resume", "RUNNING")
    assert lane.prove() > 0


def test_two_tasks_share_the_topics(lane: Lane) -> None:
    """A second task gets complete topics under load, and releases them when it ends."""
    lane.begin_load()
    lane.worker.put_connector(lane.name, lane.sink_config(tasks__max="2"))
    wait_until(lambda: lane.worker.states(lane.name) == ["RUNNING"] * 3, "two tasks", 60)
    shares = wait_until(lambda: even_shares(lane), "an even share", 60)
    assert set.union(*shares) == set(lane.topics)
    wait_until(lambda: lane.transactions > 200, "load")
    assert lane.prove() > 0
    lane.worker.put_connector(lane.name, lane.sink_config())
    wait_until(lambda: lane.worker.states(lane.name) == ["RUNNING"] * 2, "one task", 60)


def even_shares(lane: Lane) -> list[set[str]]:
    """The topics of each of two members; nothing while they do not share them evenly."""
    shares = list(owned(lane).values())
    return shares if sorted(map(len, shares)) == [2, 3] else []


def owned(lane: Lane) -> dict[str, set[str]]:
    """The topics of each member of the connector's group."""
    group = f"connect-{lane.name}"
    admin = lane.admin()  # close cancels its pending futures
    described = admin.describe_consumer_groups([group])[group].result(timeout=10)
    return {
        member.member_id: {partition.topic for partition in member.assignment.topic_partitions}
        for member in described.members
    }


def test_transforms_on_the_way(lane: Lane) -> None:
    """A second connector drops heartbeats by a predicate, flattens and routes: equal tables, all offsets committed."""
    name, heartbeats, tables = f"{lane.name}-flat", f"__debezium-heartbeat.{lane.name}", ("customers", "orders")
    chain = {
        "topics": ",".join([heartbeats, *(f"{lane.name}.public.{table}" for table in tables)]),
        "transforms": "quiet,unwrap,route",
        "transforms.quiet.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.quiet.predicate": "heartbeat",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.replace.null.with.default": "false",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": r"([^.]+)\.public\.([^.]+)",
        "transforms.route.replacement": "$1_flat_$2",
        "predicates": "heartbeat",
        "predicates.heartbeat.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.heartbeat.pattern": r"__debezium-heartbeat\..*",
    }
    lane.begin_load()
    lane.worker.put_connector(name, lane.sink_config(**chain))
    assert lane.prove() > 0
    ends = {place: end for place, end in lane.worker.committed(lane.name).items() if place[0].endswith(tables)}
    wait_until(lambda: lane.worker.committed(name).items() >= ends.items(), "everything flattened", 60)
    wait_until(lambda: (heartbeats, 0) in lane.worker.committed(name), "heartbeats committed", 10)
    folder = lane.warehouse / "headrace"
    assert all(lane.compare_rows(table, lake_rows(folder / f"{lane.name}_flat_{table}")) for table in tables)
    assert not [path for path in folder.iterdir() if "heartbeat" in path.name]
    lane.worker.call("DELETE", f"/connectors/{name}")
