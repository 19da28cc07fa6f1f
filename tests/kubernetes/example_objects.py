"""What the example values files refer to: Secrets, volumes, and the resources of operators that are not installed."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from support.servers.certificates import Authority

from headrace_dev.kubernetes import Cluster

Manifest = dict[str, Any]

_OPERATORS = {
    "monitoring.coreos.com/v1": ("ServiceMonitor", "PodMonitor", "PrometheusRule"),
    "keda.sh/v1alpha1": ("ScaledObject",),
}


def namespaced() -> list[Manifest]:
    """The Secrets, the ConfigMap and the service account that the examples name."""
    authority = Authority()
    identity = authority.issue("lake")
    ca = authority.identity.certificate_pem().decode()
    key = identity.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    tls = {"tls.key": key, "tls.crt": identity.certificate_pem().decode(), "ca.crt": ca}
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
    secrets = {
        "aws": {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"},
        "company-ca": {"ca.crt": ca},
        "headrace-kafka": {"sasl.jaas.config": jaas},
        "headrace-secrets": {"CONNECT_CONSUMER_FETCH_MAX_WAIT_MS": "100"},
        "headrace-tls": tls,
        "headrace-users": {"users.properties": "grafana=one\noncall=two\n"},
        "kafka-ca": tls,
        "shop": {"password": "not a real one"},
    }
    return [
        *({"apiVersion": "v1", "kind": "Secret", **_named(name), "stringData": data} for name, data in secrets.items()),
        {"apiVersion": "v1", "kind": "ConfigMap", **_named("company-ca"), "data": {"ca.crt": ca}},
        {"apiVersion": "v1", "kind": "ServiceAccount", **_named("lake-writer")},
    ]


def create_cluster_objects(cluster: Cluster) -> None:
    """Create what is not in a namespace: definitions of the operators' resources without a controller, a priority."""
    cluster.apply(
        *(_definition(api, kind) for api, kinds in _OPERATORS.items() for kind in kinds),
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **_named("high"), "value": 1000},
    )
    cluster.kubectl("wait", "--for=condition=established", "--timeout=60s", "customresourcedefinitions", "--all")
    cluster.kubectl("label", "nodes", "--all", "--overwrite", "disk=ssd")


def volume(name: str, folder: str, storage_class: str) -> Manifest:
    """A volume that is a folder of the node; the cluster makes none by itself."""
    spec = {
        "capacity": {"storage": "1Ti"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "hostPath": {"path": folder, "type": "Directory"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", **_named(name), "spec": spec}


def _named(name: str) -> Manifest:
    return {"metadata": {"name": name}}


def _definition(api: str, kind: str) -> Manifest:
    group, _, version = api.partition("/")
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": group,
        "scope": "Namespaced",
        "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
        "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
    }
    named = _named(f"{plural}.{group}")
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **named, "spec": spec}
