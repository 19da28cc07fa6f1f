"""A worker whose tables executors in pods write, on S3 with a REST catalog, under load: compared, killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.example_values import example_values
from kubernetes.pod_lane import START_SECONDS, PodLane, catalog_for_pods

from headrace_dev.kubernetes import Cluster, Release
from headrace_dev.pod_network import Gateway, PodStack, open_api
from headrace_dev.server import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.long, pytest.mark.timeout(900)]

EXECUTORS = 2
TRANSACTIONS_PER_SECOND = 4


class ExecutorLane(PodLane):
    """One worker with executors, from the example of executors."""

    def start_worker(self, failpoints: Any = None) -> None:
        """Install the example, with little CPU for each executor, because one machine runs everything."""
        config = self.values["worker"]["config"]
        del config["spark.master"]
        # The node's etcd is too old for the watches of Spark's client, which then looks from time to time.
        polled = {
            "spark.kubernetes.executor.enableApiWatcher": "false",
            "spark.kubernetes.executor.apiPollingInterval": "2s",
        }
        config |= {"spark.kubernetes.executor.request.cores": "100m", **polled}
        self.values |= {
            "replicaCount": 1,
            "executors": {
                **example_values("executors")["executors"],
                "cores": 1,
                "memory": "700m",
                "existingSecret": "store",
            },
        }
        super().start_worker(failpoints)

    def executors(self) -> list[str]:
        """The names of the executors' pods that run."""
        selector = "--selector=app.kubernetes.io/component=executor"
        found = self.release.get("pods", selector, "--field-selector=status.phase=Running")["items"]
        return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]


@pytest.fixture(scope="module")
def lane(
    cluster: Cluster,
    image: Callable[[str], str],
    gateway: Gateway,
    pod_stack: PodStack,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ExecutorLane]:
    """A shop under load, and a worker with executors."""
    folder = tmp_path_factory.mktemp("executors")
    with catalog_for_pods(pod_stack, gateway, folder) as (nessie, bucket):
        open_api(cluster, gateway)
        release = Release(cluster, "executors", image("aws"))
        with ExecutorLane(pod_stack, "executors", folder, release, gateway, nessie, bucket) as lane:
            lane.begin_load(TRANSACTIONS_PER_SECOND)
            yield lane
            print(release.logs()[-4000:])


def test_executors_in_pods_write_the_tables(lane: ExecutorLane) -> None:
    """Two executors run as the worker's user with a read-only root; the tables are those of the database."""
    wait_until(lambda: len(lane.executors()) == EXECUTORS, "executors", START_SECONDS, 1)
    wait_until(lambda: len(lane.rows("orders")) > 0, "first rows", START_SECONDS, 1)
    for pod in lane.executors():
        found = lane.release.get("pod", pod)
        [owner] = found["metadata"]["ownerReferences"]
        assert owner["name"] in lane.release.ready()
        [executor] = found["spec"]["containers"]
        assert executor["securityContext"]["readOnlyRootFilesystem"] is True
        assert lane.release.kubectl("exec", pod, "--", "id", "-u").strip() == "10001"
        assert "SECRET" not in lane.release.kubectl("exec", pod, "--", "cat", "/proc/1/cmdline")
    assert lane.prove() > 0


def test_a_killed_executor_is_replaced(lane: ExecutorLane) -> None:
    """Spark repeats its tasks on the other one, and creates another pod; no task of the connector fails."""
    lane.begin_load(TRANSACTIONS_PER_SECOND)
    for _ in range(2):
        wait_until(lambda: len(lane.executors()) == EXECUTORS, "executors", START_SECONDS, 1)
        killed = lane.executors()[0]
        lane.release.kill_pod(killed)
        wait_until(
            lambda gone=killed: gone not in lane.executors() and len(lane.executors()) == EXECUTORS,  # type: ignore[misc]
            "another executor",
            START_SECONDS,
            1,
        )
    assert lane.states() == {"RUNNING"}
    assert lane.prove() > 0


def test_a_killed_worker_takes_its_executors_along(lane: ExecutorLane) -> None:
    """The next worker has executors of its own, and nothing of the first remains."""
    lane.begin_load(TRANSACTIONS_PER_SECOND)
    wait_until(lambda: len(lane.executors()) == EXECUTORS, "executors", START_SECONDS, 1)
    before = set(lane.executors())
    [worker] = lane.release.ready()
    lane.release.kill_pod(worker)
    wait_until(lambda: not before & set(lane.executors()), "the end of the old executors", START_SECONDS, 1)
    wait_until(lambda: len(lane.executors()) == EXECUTORS, "new executors", START_SECONDS, 1)
    assert lane.prove() > 0
