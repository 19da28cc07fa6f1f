"""The worker's pods: the image, what operators add to them, and when Kubernetes replaces them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from support.repository.rendered_chart import (
    CHART,
    MINIMAL,
    Manifest,
    container,
    helm,
    manifest,
    pod,
    properties,
    refused,
    rendered,
)

from headrace.core.connect.properties import parse_properties
from headrace_dev.versions import KUBERNETES

DIGEST = "sha256:" + "0a" * 32
EVERYTHING = {
    "kafka": {"bootstrapServers": "kafka:9092"},
    "podAnnotations": {"release": "{{ .Release.Name }}"},
    "podLabels": {"azure.workload.identity/use": "true"},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/{{ .Release.Name }}"}},
    "extraEnv": [{"name": "WHERE", "value": "{{ .Release.Namespace }}"}],
    "extraEnvFrom": [{"secretRef": {"name": "{{ .Release.Name }}-aws"}}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "{{ .Release.Name }}-ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca/{{ .Release.Name }}"}],
    "sidecars": [{"name": "logs", "image": "fluent-bit:{{ .Chart.AppVersion }}"}],
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-ca"}},
        "apiVersion: v1\nkind: ResourceQuota\nmetadata:\n  name: {{ .Release.Name }}\n",
    ],
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Values that add something wherever operators may."""
    path = tmp_path_factory.mktemp("values") / "values.yaml"
    path.write_text(yaml.safe_dump(EVERYTHING))
    return path


def test_the_image_may_be_a_digest() -> None:
    """The digest replaces the tag, for the worker and for the test's pod."""
    arguments = ("--set", f"image.digest={DIGEST},image.tag=dev")
    assert container(MINIMAL, *arguments)["image"] == f"headrace@{DIGEST}"
    assert manifest("Pod", MINIMAL, *arguments)["spec"]["containers"][0]["image"] == f"headrace@{DIGEST}"
    assert container(MINIMAL, "--set", "image.tag=dev")["image"] == "headrace:dev"


def test_what_operators_add_may_have_templates(everything: Path) -> None:
    """Names of other objects of the release do not have to be written out."""
    assert {"name": "WHERE", "value": "data"} in container(everything)["env"]
    assert container(everything)["envFrom"] == [{"secretRef": {"name": "hr-aws"}}]
    assert {"name": "ca", "configMap": {"name": "hr-ca"}} in pod(everything)["spec"]["volumes"]
    assert "/ca/hr" in {mount["mountPath"] for mount in container(everything)["volumeMounts"]}
    assert pod(everything)["metadata"]["annotations"]["release"] == "hr"
    assert pod(everything)["metadata"]["labels"]["azure.workload.identity/use"] == "true"
    assert "{{" not in pod(everything)["spec"]["containers"][1]["image"]


def test_more_manifests_belong_to_the_release(everything: Path) -> None:
    """They are objects or texts, both with templates."""
    extra = [
        (found["kind"], found["metadata"]["name"])
        for found in rendered(everything)
        if found["metadata"]["name"] in ("hr", "hr-ca")
    ]
    assert sorted(extra) == [("ConfigMap", "hr-ca"), ("ResourceQuota", "hr")]


def test_a_cloud_identity_needs_no_token_of_kubernetes(everything: Path) -> None:
    """The annotation is on the service account, and the pod gets no token for the Kubernetes API."""
    account = manifest("ServiceAccount", everything)
    assert account["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/hr"}
    assert account["automountServiceAccountToken"] is False
    assert pod(everything)["spec"]["automountServiceAccountToken"] is False


def test_workers_are_spread_over_nodes_and_zones() -> None:
    """The constraints select the workers of this release; they never keep a pod from starting."""
    labels = manifest("Deployment", MINIMAL)["spec"]["selector"]
    constraints = pod(MINIMAL)["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in constraints] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for each in constraints:
        assert each["labelSelector"] == labels
        assert each["whenUnsatisfiable"] == "ScheduleAnyway"
    given = pod(CHART / "ci" / "catalog-values.yaml")["spec"]["topologySpreadConstraints"]
    assert [each["labelSelector"] for each in given] == [{"matchLabels": {"app.kubernetes.io/name": "headrace"}}]
    assert "topologySpreadConstraints" not in pod(MINIMAL, "--set-json", "topologySpreadConstraints=[]")["spec"]


def test_brokers_with_tls_need_only_a_secret() -> None:
    """The stores are where the Secret is mounted; with a client certificate, the folder is the key store."""
    trust = ("--set", "kafka.securityProtocol=SSL,kafka.tls.existingSecret=kafka-ca")
    read = parse_properties(properties(MINIMAL, *trust))
    assert read["ssl.truststore.location"] == "/etc/headrace/kafka-tls/ca.crt"
    assert "ssl.keystore.location" not in read
    mutual = (*trust, "--set", "kafka.tls.clientCertificate=true")
    assert parse_properties(properties(MINIMAL, *mutual))["ssl.keystore.location"] == "/etc/headrace/kafka-tls"
    assert {"name": "kafka-tls", "secret": {"secretName": "kafka-ca"}} in pod(MINIMAL, *mutual)["spec"]["volumes"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container(MINIMAL, *mutual)["volumeMounts"]}
    assert mounts["kafka-tls"] == "/etc/headrace/kafka-tls"
    assert "needs kafka.tls.existingSecret" in refused(MINIMAL, "--set", "kafka.tls.clientCertificate=true")


def test_a_warehouse_with_an_authority_of_its_own_needs_only_a_secret() -> None:
    """The option names the file where the Secret is mounted. A ConfigMap of the operator would not contain it."""
    trust = ("--set", "warehouse.tls.existingSecret=lake-ca")
    read = parse_properties(properties(MINIMAL, *trust))
    assert read["jvm.ssl.truststore.location"] == "/etc/headrace/warehouse-tls/ca.crt"
    assert {"name": "warehouse-tls", "secret": {"secretName": "lake-ca"}} in pod(MINIMAL, *trust)["spec"]["volumes"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container(MINIMAL, *trust)["volumeMounts"]}
    assert mounts["warehouse-tls"] == "/etc/headrace/warehouse-tls"
    assert "jvm.ssl.truststore.location" not in parse_properties(properties(MINIMAL))
    assert "set jvm.ssl.truststore.location in" in refused(MINIMAL, *trust, "--set", "existingConfigMap=own")


@pytest.mark.parametrize(("graceful", "seconds"), [("", 120), ("90000", 150), ("500", 61)])
def test_the_pod_may_finish_the_write_in_hand(graceful: str, seconds: int) -> None:
    """The grace period covers the worker's own deadline and the half minute after which it exits."""
    option = rf"worker.config.task\.shutdown\.graceful\.timeout\.ms={graceful}"
    arguments = ("--set", option) if graceful else ()
    assert pod(MINIMAL, *arguments)["spec"]["terminationGracePeriodSeconds"] == seconds
    short = "terminationGracePeriodSeconds=30"
    assert "a worker may need" in refused(MINIMAL, *arguments, "--set", short)


@contextmanager
def kubernetes_api(objects: dict[str, Manifest]) -> Iterator[str]:
    """The part of the Kubernetes API that Helm's lookup uses, with ``objects`` by their paths; yields its address."""
    kinds = [{"name": f"{kind.lower()}s", "kind": kind, "namespaced": True} for kind in ("Secret", "ConfigMap")]
    verbs = [kind | {"singularName": "", "verbs": ["get"]} for kind in kinds]
    answers: dict[str, Manifest] = {
        "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": verbs},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found = answers.get(path) or objects.get(path)
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(found or missing).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def upgraded(address: str, *arguments: str) -> Manifest:
    """The annotations of the pods as Helm renders them with a connection to Kubernetes."""
    command = [helm(), "template", "hr", str(CHART), "--dry-run=server", "--namespace", "data"]
    command += ["--kube-apiserver", address, "--kube-version", f"{KUBERNETES}.0", "--values", str(MINIMAL), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    [found] = [each for each in yaml.safe_load_all(answer.stdout) if each and each["kind"] == "Deployment"]
    annotations: Manifest = found["spec"]["template"]["metadata"]["annotations"]
    return annotations


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("existingSecret=own", "secrets/own"),
        ("kafka.existingSecret=own", "secrets/own"),
        ("warehouse.tls.existingSecret=own", "secrets/own"),
        ("extraEnvFrom[0].secretRef.name=own", "secrets/own"),
        ("extraEnv[0].name=A,extraEnv[0].valueFrom.secretKeyRef.name=own", "secrets/own"),
        ("mode=standalone,existingConnectorsSecret=own,existingConnectorsKeys[0]=a.json", "secrets/own"),
        ("existingConfigMap=own", "configmaps/own"),
    ],
)
def test_a_changed_secret_replaces_the_pods(value: str, path: str) -> None:
    """An upgrade after a change of what the worker reads once makes new pods; an upgrade without a change does not."""
    kind = "Secret" if path.startswith("secrets") else "ConfigMap"
    existing = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "own"}, "data": {"password": "b2xk"}}
    objects = {f"/api/v1/namespaces/data/{path}": existing}
    with kubernetes_api(objects) as address:
        before = upgraded(address, "--set", value)
        assert upgraded(address, "--set", value) == before
        existing["data"] = {"password": "bmV3"}
        assert upgraded(address, "--set", value)["checksum/existing"] != before["checksum/existing"]
        assert "checksum/existing" not in upgraded(address, "--set", f"{value},rollOnSecretChange=false")
    assert "checksum/existing" not in pod(MINIMAL, "--set", value)["metadata"]["annotations"]
