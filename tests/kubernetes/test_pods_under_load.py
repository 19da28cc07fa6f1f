"""Three workers in pods on S3 with a REST catalog, under load: killed, upgraded, evicted; the tables stay equal.

``HEADRACE_KUBE_KILLS=15`` is the long form of the kills: five minutes.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from kubernetes.pod_lane import START_SECONDS, WORKERS, PodLane, catalog_for_pods, refused_eviction
from recordings.records import RecordedRecord, publish
from support.records.envelopes import key, whole_change

from headrace_dev.kubernetes import Cluster, Release
from headrace_dev.pod_network import Gateway, PodStack
from headrace_dev.server import http, wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.long, pytest.mark.timeout(900)]

KILLS = int(os.environ.get("HEADRACE_KUBE_KILLS", "4"))
KILL_SECONDS = 20
TRANSACTIONS_PER_SECOND = 8
ASSIGNED_UID = 1000680000
SYNC_SECONDS = 180
"""Until a kubelet has updated a mounted Secret, and the leader has read it."""


@pytest.fixture(scope="module")
def lane(
    cluster: Cluster,
    image: Callable[[str], str],
    gateway: Gateway,
    pod_stack: PodStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PodLane]:
    """A shop, and three workers that write to the store."""
    folder = tmp_path_factory.mktemp("pods")
    with catalog_for_pods(pod_stack, gateway, folder) as (nessie, bucket):
        release = Release(cluster, "pods", image("aws"))
        with PodLane(pod_stack, "pods", folder, release, gateway, nessie, bucket) as lane:
            lane.wait_until_spread()
            yield lane
            print(release.logs())


@pytest.fixture
def loaded(lane: PodLane) -> Iterator[PodLane]:
    """The lane while its shop changes."""
    lane.wait_until_spread()
    lane.begin_load(TRANSACTIONS_PER_SECOND)
    began = lane.transactions
    wait_until(lambda: lane.transactions > began, "transaction", 10)
    yield lane
    lane.end_load()


def test_killed_pods_lose_nothing(loaded: PodLane) -> None:
    """Every 20 seconds one of the pods, ready or not, is killed without notice; the others adopt its tasks."""
    source = random.Random(1)
    with loaded.gaps():
        for _ in range(KILLS):
            time.sleep(KILL_SECONDS)  # no condition to wait for: the time between kills is the test's
            loaded.release.kill_pod(source.choice(loaded.release.pods())["metadata"]["name"])
        loaded.wait_until_spread()
    assert loaded.prove() > 0


def test_an_upgrade_replaces_the_pods_one_by_one(loaded: PodLane) -> None:
    """``helm upgrade`` to a uid that a platform assigned: all pods are new, and one is always ready."""
    before = set(loaded.release.ready())
    with loaded.gaps():
        loaded.upgrade(podSecurityContext={"runAsUser": ASSIGNED_UID, "runAsGroup": 0, "fsGroup": ASSIGNED_UID})
        wait_until(lambda: not before & set(loaded.release.ready()), "the end of the old pods", START_SECONDS, 1)
        loaded.wait_until_spread()
    [uid] = {loaded.release.execute(pod, "id", "-u").strip() for pod in loaded.release.ready()}
    assert uid == str(ASSIGNED_UID)
    assert loaded.prove() > 0


def test_evictions_respect_the_disruption_budget(loaded: PodLane) -> None:
    """A drain evicts one worker at a time: the second eviction is refused until the first pod is replaced."""
    pods = loaded.release.ready()
    with loaded.gaps():
        loaded.release.evict(pods[0])
        assert "disruption budget" in refused_eviction(loaded.release, pods[1])
        for pod in pods[1:]:
            wait_until(lambda pod=pod: not refused_eviction(loaded.release, pod), "the next eviction", START_SECONDS, 2)
        loaded.wait_until_spread()
    assert not set(pods) & set(loaded.release.ready())
    assert loaded.prove() > 0


def test_connectors_follow_the_values(loaded: PodLane, pod_stack: PodStack) -> None:
    """A connector of the values appears, changes and disappears through ``helm upgrade``; no pod is replaced."""
    topic = "values.items"
    rows = [{"id": number, "name": f"item {number}"} for number in range(100)]
    pod_stack.kafka.create_topic(topic)
    publish(
        pod_stack.kafka.bootstrap_servers,
        [
            RecordedRecord(topic, 0, at, 1_700_000_000_000, key({"id": at}), whole_change("c", None, row, at))
            for at, row in enumerate(rows)
        ],
    )
    pods = set(loaded.release.ready())
    release = loaded.release
    config = {"connector.class": "LakehouseSink", "topics": topic}
    with loaded.gaps():
        loaded.upgrade(connectors={"items": {"config": config}})
        wait_until(lambda: set(release.states("items")) == {"RUNNING"}, "the new connector", SYNC_SECONDS, 1)
        wait_until(lambda: len(loaded.nessie.rows("headrace", "values_items")) == len(rows), "its rows", 120, 1)
        loaded.upgrade(connectors={"items": {"config": {**config, "batch.linger.ms": 300}}})
        changed = f"{release.url}/connectors/items/config"
        wait_until(
            lambda: http.get(changed, timeout=30).json().get("batch.linger.ms") == "300", "change", SYNC_SECONDS, 1
        )
        loaded.upgrade(connectors={})
        wait_until(
            lambda: http.get(changed, timeout=30).status_code == httpx.codes.NOT_FOUND, "removal", SYNC_SECONDS, 1
        )
    assert set(release.ready()) == pods
    assert len(pods) == WORKERS
    assert sorted(loaded.nessie.rows("headrace", "values_items"), key=lambda row: row["id"]) == rows
    assert loaded.prove() > 0
