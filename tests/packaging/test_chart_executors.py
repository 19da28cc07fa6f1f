"""Spark's executors in pods: the options of the driver, the pod of an executor, and the rights of the worker."""

from __future__ import annotations

import kubernetes_validate
import pytest
import yaml
from support.repository.rendered_chart import (
    CHART,
    MINIMAL,
    Manifest,
    container,
    manifest,
    pod,
    properties,
    refused,
    rendered,
)

from headrace.core.connect.properties import parse_properties
from headrace_connectors.lakehouse.spark_settings import settings
from headrace_dev.versions import KUBERNETES

EXECUTORS = CHART / "ci" / "executors-values.yaml"


def executor_pod(*arguments: str) -> Manifest:
    """The pod that Spark completes for each executor."""
    configs = (each.get("data", {}) for each in rendered(EXECUTORS, *arguments) if each["kind"] == "ConfigMap")
    [text] = (data["pod.yaml"] for data in configs if "pod.yaml" in data)
    found: Manifest = yaml.safe_load(text)
    return found


def test_the_worker_starts_executors_of_its_own_image() -> None:
    """Driver and executors have the same Spark; the driver listens on ports that a policy can name."""
    options = parse_properties(properties(EXECUTORS, "--set", "image.tag=dev"))
    assert options["spark.master"] == "k8s://https://kubernetes.default.svc"
    assert options["spark.kubernetes.container.image"] == "headrace:dev"
    assert options["spark.kubernetes.namespace"] == "data"
    ports = {each["name"]: str(each["containerPort"]) for each in container(EXECUTORS)["ports"]}
    assert ports["spark-driver"] == options["spark.driver.port"]
    assert ports["spark-blocks"] == options["spark.driver.blockManager.port"]
    mounts = {each["name"]: each["mountPath"] for each in container(EXECUTORS)["volumeMounts"]}
    assert options["spark.kubernetes.executor.podTemplateFile"] == f"{mounts['executors']}/pod.yaml"
    spark = {key: value for key, value in options.items() if key.startswith("spark.")}
    assert settings(options["warehouse"], spark, [])["spark.executor.instances"] == "2"


def test_executors_find_their_driver_and_end_with_it() -> None:
    """By the address of the worker's pod, and by its name, which makes it their owner."""
    found = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in fields(container(EXECUTORS))}
    assert found["CONNECT_SPARK_DRIVER_HOST"] == "status.podIP"
    assert found["CONNECT_SPARK_KUBERNETES_DRIVER_POD_NAME"] == "metadata.name"
    assert "CONNECT_SPARK_DRIVER_HOST" not in {each["name"] for each in fields(container(MINIMAL))}


def fields(worker: Manifest) -> list[Manifest]:
    """The variables that have the value of a field of the pod."""
    return [each for each in worker["env"] if "fieldRef" in each.get("valueFrom", {})]


def test_an_executor_has_the_identity_and_no_rights() -> None:
    """The same service account (a cloud identity), without a token for the Kubernetes API; restricted as the worker."""
    found = executor_pod()
    kubernetes_validate.validate(found, KUBERNETES, strict=True)
    assert found["spec"]["serviceAccountName"] == pod(EXECUTORS)["spec"]["serviceAccountName"]
    assert found["spec"]["automountServiceAccountToken"] is False
    assert found["spec"]["securityContext"] == pod(EXECUTORS)["spec"]["securityContext"]
    [executor] = found["spec"]["containers"]
    assert executor["securityContext"] == container(EXECUTORS)["securityContext"]
    assert "envFrom" not in executor


def test_what_operators_add_to_executors() -> None:
    """Credentials of the storage and where the pods run; nothing of it applies to the worker."""
    added = executor_pod(
        "--set",
        "executors.existingSecret=store,executors.nodeSelector.disk=fast,executors.podLabels.team=lake",
        "--set-json",
        'executors.extraEnv=[{"name": "WHERE", "value": "{{ .Release.Name }}"}]',
    )
    [executor] = added["spec"]["containers"]
    assert executor["envFrom"] == [{"secretRef": {"name": "store"}}]
    assert executor["env"] == [{"name": "WHERE", "value": "hr"}]
    assert added["spec"]["nodeSelector"] == {"disk": "fast"}
    assert added["metadata"]["labels"]["team"] == "lake"


def test_the_worker_may_only_manage_pods_of_its_namespace() -> None:
    """It gets a token for that, and for nothing without executors."""
    role, binding = manifest("Role", EXECUTORS), manifest("RoleBinding", EXECUTORS)
    assert [rule["resources"] for rule in role["rules"]] == [["pods"]]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [pod(EXECUTORS)["spec"]["serviceAccountName"]]
    assert pod(EXECUTORS)["spec"]["automountServiceAccountToken"] is True
    assert pod(MINIMAL)["spec"]["automountServiceAccountToken"] is False
    assert "Role" not in {each["kind"] for each in rendered(MINIMAL)}


def test_policies_admit_executors_and_nobody_else_to_spark() -> None:
    """The policy of the workers does not select executors, which have one of their own."""
    workers, executors = (each for each in rendered(EXECUTORS) if each["kind"] == "NetworkPolicy")
    labels = executor_pod()["metadata"]["labels"].items()
    assert not workers["spec"]["podSelector"]["matchLabels"].items() <= labels
    assert executors["spec"]["podSelector"]["matchLabels"].items() <= labels
    [spark] = (
        rule for rule in workers["spec"]["ingress"] if {"port": "spark-driver", "protocol": "TCP"} in rule["ports"]
    )
    assert [each["podSelector"]["matchLabels"].items() <= labels for each in spark["from"]] == [True]


def test_a_changed_executor_replaces_the_worker() -> None:
    """Spark reads the template of its pods when it starts."""
    annotations = [
        pod(EXECUTORS, *arguments)["metadata"]["annotations"]["checksum/config"]
        for arguments in ((), ("--set", "executors.nodeSelector.disk=fast"), ("--set", "executors.cores=3"))
    ]
    assert len(set(annotations)) == 3


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("existingConfigMap=mine",), "executors.enabled and existingConfigMap cannot be combined"),
        (
            ("worker.config.warehouse=/var/lib/headrace/warehouse",),
            "executors.enabled needs a warehouse that executors reach",
        ),
        (("worker.config.spark\\.master=local[2]",), "has no executors in pods: remove one of the two"),
        (("executors.instances=0",), "executors.instances"),
        (("executors.memory=4Gi",), "executors.memory"),
    ],
)
def test_values_that_contradict_each_other_are_refused(arguments: tuple[str, ...], reason: str) -> None:
    """Before anything is installed, with the way out."""
    assert reason in refused(EXECUTORS, "--set", *arguments).replace("/", ".")
