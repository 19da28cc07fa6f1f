"""How Kubernetes replaces, evicts and names the workers."""

from __future__ import annotations

import pytest
from support.repository.rendered_chart import (
    CHART,
    MINIMAL,
    container,
    manifest,
    pod,
    refused,
    rendered,
    run_helm,
    workload,
)

SEVERAL = ("--set", "replicaCount=3,worker.config.warehouse=s3://lake/warehouse")
SCALED = ("--set-json", "replicaCount=null", "--set", "worker.config.warehouse=s3://lake/warehouse")
NAMED = (*SEVERAL, "--set", "workload=StatefulSet")


def test_one_worker_ends_before_the_next_one_starts() -> None:
    """The default warehouse has one writer, and a ReadWriteOnce volume is on one node."""
    assert workload(MINIMAL)["spec"]["strategy"] == {"type": "Recreate"}
    assert "minReadySeconds" not in workload(MINIMAL)["spec"]


@pytest.mark.parametrize("arguments", [SEVERAL, SCALED])
def test_several_workers_are_replaced_one_after_the_other(arguments: tuple[str, ...]) -> None:
    """A new worker is ready, and the group has moved its tasks, before an old one stops."""
    spec = workload(MINIMAL, *arguments)["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    assert spec["minReadySeconds"] == 10
    assert spec.get("replicas") == (3 if arguments is SEVERAL else None)
    own = ("--set", "updateStrategy.type=RollingUpdate,updateStrategy.rollingUpdate.maxSurge=0")
    assert workload(MINIMAL, *arguments, *own)["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0}


def test_a_stateful_set_gives_workers_names() -> None:
    """Each worker advertises the name of its pod below the headless Service, which also has pods that are not ready."""
    spec = workload(MINIMAL, *NAMED)["spec"]
    environment = container(MINIMAL, *NAMED)["env"]
    names = [entry["name"] for entry in environment]
    host = next(entry for entry in environment if entry["name"] == "CONNECT_REST_ADVERTISED_HOST_NAME")
    assert host["value"] == "$(POD_NAME).hr-headrace-workers.data.svc"
    assert names.index("POD_NAME") < names.index("CONNECT_REST_ADVERTISED_HOST_NAME")
    [headless] = [each for each in rendered(MINIMAL, *NAMED) if each["metadata"]["name"] == spec["serviceName"]]
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True
    assert headless["spec"]["selector"].items() <= pod(MINIMAL, *NAMED)["metadata"]["labels"].items()
    assert spec["updateStrategy"] == {"type": "RollingUpdate"}
    assert spec["podManagementPolicy"] == "Parallel"
    recreate = ("--set", "updateStrategy.type=Recreate")
    assert "a StatefulSet has RollingUpdate and OnDelete" in refused(MINIMAL, *NAMED, *recreate)


def test_pods_are_the_same_in_both_workloads() -> None:
    """The address that a worker advertises is the only difference."""

    def without_address(*arguments: str) -> object:
        template = pod(MINIMAL, *arguments)
        [first, *_] = template["spec"]["containers"]
        address = ("POD_NAME", "CONNECT_REST_ADVERTISED_HOST_NAME")
        others = [entry for entry in first["env"] if entry["name"] not in address]
        return template["metadata"], template["spec"] | {"containers": [first | {"env": others}]}

    assert without_address(*NAMED) == without_address(*SEVERAL)


def test_a_drain_stops_one_worker_at_a_time() -> None:
    """A worker that is not ready keeps no node from being drained, where Kubernetes knows that field."""
    budget = manifest("PodDisruptionBudget", MINIMAL)["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["selector"] == workload(MINIMAL)["spec"]["selector"]
    older = run_helm("template", MINIMAL, "--kube-version", "1.26.0")
    assert "PodDisruptionBudget" in older.stdout
    assert "unhealthyPodEvictionPolicy" not in older.stdout
    none = ("--set", "podDisruptionBudget.enabled=false")
    assert "PodDisruptionBudget" not in {found["kind"] for found in rendered(MINIMAL, *none)}


def test_a_random_uid_may_write_all_volumes() -> None:
    """OpenShift's values set no uid anywhere, in the workers and in the test's pod."""
    values = CHART / "ci" / "openshift-values.yaml"
    for spec in (pod(values)["spec"], manifest("Pod", values)["spec"]):
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & spec["securityContext"].keys()
        assert "runAsUser" not in spec["containers"][0]["securityContext"]
