"""Each example values file, installed in a real Kubernetes with what it refers to.

Not covered: sidecars and init containers of other images (the node pulls none), volumes of a storage class, what
controllers make of ServiceMonitors, PrometheusRules, ScaledObjects and Ingresses, and NetworkPolicies, which the node's
network does not enforce. ``test_pods_under_load.py`` installs the S3 example with its three workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.example_objects import create_cluster_objects, namespaced, volume
from kubernetes.example_values import EXAMPLES, ONE_BROKER, Values, example_values, merged

from headrace_dev.kubernetes import Cluster, Release
from headrace_dev.pod_network import HOST, Gateway, PodKafka, open_api
from headrace_dev.server import wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.long, pytest.mark.timeout(600)]

UNDER_LOAD = "s3"
"""The example of ``test_pods_under_load.py``."""
BROKER_WITH_SASL = {"https", "persistent"}
"""Examples whose broker is not here: their workers start and wait for it, because nothing listens where they look."""
NOTHING_LISTENS = f"{HOST}:9"
NOT_HERE: dict[str, Any] = {"initContainers": [], "sidecars": [], "imagePullSecrets": []}
SMALL = {"requests": {"cpu": "50m", "memory": "512Mi"}, "limits": {"memory": "4Gi"}}


@pytest.fixture(scope="module")
def prepared(cluster: Cluster, gateway: Gateway) -> Cluster:
    """The cluster with definitions of the operators' resources, and an API that pods can call."""
    create_cluster_objects(cluster)
    open_api(cluster, gateway)
    return cluster


@pytest.fixture(params=sorted(EXAMPLES.keys() - {UNDER_LOAD}))
def example(
    request: pytest.FixtureRequest,
    prepared: Cluster,
    image: Callable[[str], str],
    broker: PodKafka,
    tmp_path: Path,
) -> Iterator[tuple[Release, Values, str]]:
    """A release in a namespace with what the example refers to, the example's values, and its name."""
    name = request.param
    values = example_values(name)
    release = Release(prepared, name, image("aws"))
    release.create_namespace(*namespaced())
    warehouse = tmp_path / "volume"
    warehouse.mkdir()
    warehouse.chmod(0o777)
    claimed = values.get("persistence", {})
    if claimed.get("enabled"):
        prepared.apply(volume(name, str(warehouse), claimed.get("storageClass", "")))
    servers = NOTHING_LISTENS if name in BROKER_WITH_SASL else broker.pod_servers
    here: Values = {**NOT_HERE, "resources": SMALL, "kafka": {"bootstrapServers": servers}}
    here["worker"] = {"config": ONE_BROKER}
    try:
        yield release, merged(values, here), name
    finally:
        print(release.logs()[-4000:])
        release.kill()
        prepared.kubectl("delete", "persistentvolume", name, "--ignore-not-found")


def test_an_example_can_be_installed(example: tuple[Release, Values, str]) -> None:
    """The API server accepts every object, and the workers become ready, or wait for a broker that is not here."""
    release, values, name = example
    if name in BROKER_WITH_SASL:
        release.install(values, wait=False)
        [pod, *_] = wait_until(release.started, "a started worker", 120, 0.5)
        wait_until(lambda: "still connecting to Kafka" in release.kubectl("logs", pod), "a worker that retries", 120, 1)
        return
    release.install(values, 300)
    expected = values.get("replicaCount", 1) or 1
    assert len(release.ready()) >= expected
