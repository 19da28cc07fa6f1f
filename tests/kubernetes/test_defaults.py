"""The chart with its defaults in a real Kubernetes: the image starts, is restricted, and writes what a broker has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from kubernetes.example_values import ONE_BROKER, Values
from kubernetes.pod_tables import pod_rows
from recordings.records import RecordedRecord, publish
from support.records.envelopes import key, whole_change

from headrace_dev.kafka import Kafka
from headrace_dev.kubernetes import Cluster, KubernetesError, Release
from headrace_dev.pod_network import PodKafka
from headrace_dev.server import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]

ROWS = 1000
IMAGE_UID = 10001
ASSIGNED_UID = 1000680000  # as OpenShift assigns it: without an entry in /etc/passwd, with the group root

CODE = """
import hashlib, importlib.util, pathlib
digest = hashlib.sha256()
for package in ("headrace", "headrace_connectors"):
    [root] = importlib.util.find_spec(package).submodule_search_locations
    for path in sorted(pathlib.Path(root).rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
print(digest.hexdigest())
"""
"""A program that prints a digest of the installed code, by which an old image is recognized."""


def required(broker: PodKafka) -> Values:
    """The values without which the chart does not start on a cluster with one broker."""
    return {"kafka": {"bootstrapServers": broker.pod_servers}, "worker": {"config": dict(ONE_BROKER)}}


@pytest.fixture(params=["defaults", "assigned"])
def release(
    request: pytest.FixtureRequest, cluster: Cluster, image: Callable[[str], str], broker: PodKafka
) -> Iterator[Release]:
    """The chart with what is required, and then with a uid and groups that a platform assigns."""
    values = required(broker)
    if request.param == "assigned":
        values["podSecurityContext"] = {"runAsUser": ASSIGNED_UID, "runAsGroup": 0, "fsGroup": ASSIGNED_UID}
    release = Release(cluster, request.param, image("core"))
    release.create_namespace()
    try:
        release.install(values)
        yield release
        print(release.logs())
    finally:
        release.kill()


def test_rows_go_from_a_broker_to_a_table(release: Release, broker: Kafka, cluster: Cluster) -> None:
    """The pod becomes ready, is restricted, runs this code, passes ``helm test``, and the table has every row once."""
    [pod] = release.ready()
    here = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout
    assert release.execute(pod, "python", "-c", CODE) == here, "the image has other code: build it again"
    uid = ASSIGNED_UID if release.name == "assigned" else IMAGE_UID
    assert release.execute(pod, "id", "-u").strip() == str(uid)
    assert "CapEff:\t0000000000000000" in release.execute(pod, "cat", "/proc/1/status")
    with pytest.raises(KubernetesError, match="Read-only file system"):
        release.execute(pod, "touch", "/opt/venv/file")
    cluster.helm("test", release.name, f"--namespace={release.name}")

    topic = f"{release.name}.items"
    rows = [{"id": number, "name": f"item {number}"} for number in range(ROWS)]
    broker.create_topic(topic)
    publish(
        broker.bootstrap_servers,
        [
            RecordedRecord(topic, 0, at, 1_700_000_000_000, key({"id": at}), whole_change("c", None, row, at))
            for at, row in enumerate(rows)
        ],
    )
    release.put_connector("items", {"connector.class": "LakehouseSink", "topics": topic})
    table = topic.replace(".", "_")
    wait_until(lambda: len(pod_rows(release, table)) == ROWS, "the rows in the table", 180)
    assert sorted(pod_rows(release, table), key=lambda row: row["id"]) == rows
