"""The schema of the chart's values: ``helm/headrace/values.schema.json``.

Every object is closed, so that Helm refuses a misspelt value: with the chart's keys, or with those of Kubernetes,
which itself ignores a misspelt key with a warning that Helm does not show. Open are maps of the operator (labels,
annotations), and options: the worker refuses an unknown one and suggests the right one.

Tests: ``tests/packaging/test_chart_values.py`` compares the keys with Kubernetes' own definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.config import connector, worker_options
from headrace.config.framework import FRAMEWORK_OPTIONS
from headrace.core.connect.config_def import ConfigDef, Type

Schema = dict[str, Any]

KEYS: Mapping[str, str] = {
    "core.v1.LocalObjectReference": "name",
    "core.v1.EnvVar": "name value valueFrom",
    "core.v1.EnvFromSource": "configMapRef prefix secretRef",
    "core.v1.Volume": (
        "awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI emptyDir ephemeral fc "
        "flexVolume flocker gcePersistentDisk gitRepo glusterfs hostPath image iscsi name nfs persistentVolumeClaim "
        "photonPersistentDisk portworxVolume projected quobyte rbd scaleIO secret storageos vsphereVolume"
    ),
    "core.v1.VolumeMount": "mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr",
    "core.v1.Container": (
        "args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe "
        "resizePolicy resources restartPolicy restartPolicyRules securityContext startupProbe stdin stdinOnce "
        "terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
    ),
    "core.v1.ResourceRequirements": "claims limits requests",
    "core.v1.Toleration": "effect key operator tolerationSeconds value",
    "core.v1.Affinity": "nodeAffinity podAffinity podAntiAffinity",
    "core.v1.TopologySpreadConstraint": (
        "labelSelector matchLabelKeys maxSkew minDomains nodeAffinityPolicy nodeTaintsPolicy topologyKey "
        "whenUnsatisfiable"
    ),
    "core.v1.Probe": (
        "exec failureThreshold grpc httpGet initialDelaySeconds periodSeconds successThreshold tcpSocket "
        "terminationGracePeriodSeconds timeoutSeconds"
    ),
    "core.v1.PodSecurityContext": (
        "appArmorProfile fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser seLinuxChangePolicy "
        "seLinuxOptions seccompProfile supplementalGroups supplementalGroupsPolicy sysctls windowsOptions"
    ),
    "core.v1.SecurityContext": (
        "allowPrivilegeEscalation appArmorProfile capabilities privileged procMount readOnlyRootFilesystem runAsGroup "
        "runAsNonRoot runAsUser seLinuxOptions seccompProfile windowsOptions"
    ),
    "networking.v1.NetworkPolicyPeer": "ipBlock namespaceSelector podSelector",
    "networking.v1.NetworkPolicyEgressRule": "ports to",
    "autoscaling.v2.MetricSpec": "containerResource external object pods resource type",
    "autoscaling.v2.HorizontalPodAutoscalerBehavior": "scaleDown scaleUp",
    "apps.v1.DeploymentStrategy": "rollingUpdate type",
}
"""The keys of each object by its name in Kubernetes' definitions."""


def object_of(name: str) -> Schema:
    """Return the schema of a Kubernetes object: its keys and no others. null removes a value of ``values.yaml``."""
    keys: dict[str, Schema] = {key: {} for key in KEYS[name].split()}
    return {"type": ["object", "null"], "properties": keys, "additionalProperties": False}


def list_of(name: str) -> Schema:
    return {"type": "array", "items": object_of(name)}


_JSON_TYPES = {
    Type.BOOLEAN: ["boolean", "string"],
    Type.INT: ["integer", "string"],
    Type.SHORT: ["integer", "string"],
    Type.LONG: ["integer", "string"],
    Type.DOUBLE: ["number", "string"],
}
_TEXT: Schema = {"type": "string"}
_SWITCH: Schema = {"type": "boolean"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_TEXT_BY_NAME: Schema = {"type": ["object", "null"], "additionalProperties": {"type": ["string", "null"]}}
_GLOBAL: Schema = {"type": ["object", "null"]}  # Helm hands it to every chart that is part of another one
_MANIFESTS: Schema = {"type": "array", "items": {"type": ["object", "string"]}}


def values_schema() -> Schema:
    """Of every value. ``worker.config`` and ``connectors`` have the options of worker and connectors."""
    config = _options(worker_options.WORKER_OPTIONS) | {"description": "Keys of worker.properties."}
    worker = {"config": config, "logLevel": _one_of("DEBUG", "INFO", "WARNING", "ERROR")}
    values = (
        _WORKLOAD
        | _POD
        | {"executors": _EXECUTORS, "kafka": _KAFKA, "warehouse": _closed({"tls": _SECRET})}
        | {"worker": _closed(worker), "connectors": _connectors()}
    )
    return {"$schema": "https://json-schema.org/draft-07/schema#"} | _closed(values)


def _closed(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def _keys(properties: Mapping[str, Schema]) -> Schema:
    """Return the schema of an object of which any keys may be set, or none."""
    return _closed(properties) | {"type": ["object", "null"]}


def _one_of(*choices: str) -> Schema:
    return {"enum": list(choices)}


def _options(options: ConfigDef) -> Schema:
    properties = {
        key.name: {"type": _JSON_TYPES.get(key.type, "string"), "description": key.doc} for key in options.keys
    }
    return {"type": "object", "properties": properties, "additionalProperties": True}


def _connectors() -> Schema:
    properties = {
        "name": _TEXT,
        "initial_state": _one_of("RUNNING", "PAUSED", "STOPPED"),
        "config": _options(FRAMEWORK_OPTIONS + connector.SINK_OPTIONS),
    }
    return {
        "type": "object",
        "description": "Connectors by name, as in POST /connectors.",
        "additionalProperties": _closed(properties) | {"required": ["config"]},
    }


_KAFKA = _closed(
    {
        "bootstrapServers": _TEXT,
        "securityProtocol": _one_of("", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "saslMechanism": _TEXT,
        "existingSecret": _TEXT,
        "tls": _closed({"existingSecret": _TEXT, "clientCertificate": _SWITCH}),
    }
)

_ROLES = ("read", "operate", "admin")
_SECRET = _closed({"existingSecret": _TEXT})
_REST = _closed(
    {
        "tls": _closed({"existingSecret": _TEXT, "clientAuth": _one_of("none", "requested", "required")}),
        "basicAuth": _closed(
            {
                "existingSecret": _TEXT,
                "roles": {"type": ["object", "null"], "additionalProperties": _one_of(*_ROLES)},
            }
        ),
        "oauth": _closed(
            {
                "issuer": _TEXT,
                "audience": _TEXTS,
                "roleClaim": _TEXT,
                "roles": _keys(dict.fromkeys(_ROLES, _TEXTS)),
                "tls": _SECRET,
            }
        ),
        "admin": _closed({"enabled": _SWITCH, "port": _COUNT}),
        "anonymousMetrics": _SWITCH,
    }
)

_EXECUTORS = _closed(
    {
        "enabled": _SWITCH,
        "instances": {"type": "integer", "minimum": 1},
        "cores": {"type": "integer", "minimum": 1},
        "memory": {"type": "string", "pattern": "^[0-9]+[kmgtKMGT]$"},
        "existingSecret": _TEXT,
        "extraEnv": list_of("core.v1.EnvVar"),
        "podLabels": _TEXT_BY_NAME,
        "podAnnotations": _TEXT_BY_NAME,
        "nodeSelector": _TEXT_BY_NAME,
        "tolerations": list_of("core.v1.Toleration"),
        "affinity": object_of("core.v1.Affinity"),
    }
)

_KEY_OF_SECRET = _keys({"name": _TEXT, "key": _TEXT, "optional": _SWITCH})
_RULE = ("alert", "record", "expr", "for", "keep_firing_for", "labels", "annotations")
_RULES: Schema = {"type": "array", "items": _closed({key: {} for key in _RULE})}
_OF_TLS_CONFIG = ("ca", "cert", "keySecret", "serverName", "insecureSkipVerify", "minVersion", "maxVersion")
_MONITOR = _closed(
    {
        "enabled": _SWITCH,
        "interval": _TEXT,
        "labels": _TEXT_BY_NAME,
        "basicAuth": _keys({"username": _KEY_OF_SECRET, "password": _KEY_OF_SECRET}),
        "authorization": _keys({"type": _TEXT, "credentials": _KEY_OF_SECRET}),
        "tlsConfig": _keys({key: {} for key in _OF_TLS_CONFIG}),
    }
)

_WORKLOAD: dict[str, Schema] = {
    "global": _GLOBAL,
    "mode": _one_of("distributed", "standalone"),
    "replicaCount": {"type": ["integer", "null"], "minimum": 0},
    "workload": _one_of("Deployment", "StatefulSet"),
    "image": _closed(
        {
            "repository": _TEXT,
            "tag": {"type": ["string", "number"]},
            "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            "pullPolicy": _one_of("Always", "IfNotPresent", "Never"),
        }
    ),
    "imagePullSecrets": list_of("core.v1.LocalObjectReference"),
    "nameOverride": _TEXT,
    "fullnameOverride": _TEXT,
    "commonLabels": _TEXT_BY_NAME,
    "commonAnnotations": _TEXT_BY_NAME,
    "podAnnotations": _TEXT_BY_NAME,
    "podLabels": _TEXT_BY_NAME,
    "serviceAccount": _closed(
        {"create": _SWITCH, "name": _TEXT, "annotations": _TEXT_BY_NAME, "automountServiceAccountToken": _SWITCH}
    ),
    "existingConfigMap": _TEXT,
    "existingSecret": _TEXT,
    "existingConnectorsSecret": _TEXT,
    "existingConnectorsKeys": _TEXTS,
    "rollOnSecretChange": _SWITCH,
    "service": _closed(
        {"type": _one_of("ClusterIP", "NodePort", "LoadBalancer"), "port": _COUNT, "annotations": _TEXT_BY_NAME}
    ),
    "podDisruptionBudget": _closed({"enabled": _SWITCH, "maxUnavailable": {"type": ["integer", "string"]}}),
    "networkPolicy": _closed(
        {
            "enabled": _SWITCH,
            "clients": list_of("networking.v1.NetworkPolicyPeer"),
            "scrapers": list_of("networking.v1.NetworkPolicyPeer"),
            "egress": list_of("networking.v1.NetworkPolicyEgressRule"),
        }
    ),
    "ingress": _closed(
        {
            "enabled": _SWITCH,
            "className": _TEXT,
            "annotations": _TEXT_BY_NAME,
            "hosts": _TEXTS,
            "path": _TEXT,
            "tlsSecret": _TEXT,
        }
    ),
    "autoscaling": _closed(
        {
            "enabled": _SWITCH,
            "minReplicas": _COUNT,
            "maxReplicas": _COUNT,
            "metrics": list_of("autoscaling.v2.MetricSpec"),
            "behavior": object_of("autoscaling.v2.HorizontalPodAutoscalerBehavior"),
        }
    ),
    "prometheusRule": _closed(
        {
            "enabled": _SWITCH,
            "labels": _TEXT_BY_NAME,
            "disabled": _TEXTS,
            "runbooks": _TEXT,
            "additionalRules": _RULES,
        }
    ),
    "dashboard": _closed(
        {"enabled": _SWITCH, "namespace": _TEXT, "labels": _TEXT_BY_NAME, "annotations": _TEXT_BY_NAME}
    ),
    "serviceMonitor": _MONITOR,
    "podMonitor": _MONITOR,
    "rest": _REST,
    "tests": _closed({"enabled": _SWITCH}),
}

_POD: dict[str, Schema] = {
    "persistence": _closed(
        {
            "enabled": _SWITCH,
            "existingClaim": _TEXT,
            "storageClass": _TEXT,
            "accessModes": _TEXTS,
            "size": _TEXT,
            "annotations": _TEXT_BY_NAME,
            "mountPath": _TEXT,
        }
    ),
    "scratch": _closed({"medium": _one_of("", "Memory"), "sizeLimit": _TEXT}),
    "tmp": _closed({"medium": _one_of("", "Memory"), "sizeLimit": _TEXT}),
    "extraEnv": list_of("core.v1.EnvVar"),
    "extraEnvFrom": list_of("core.v1.EnvFromSource"),
    "extraVolumes": list_of("core.v1.Volume"),
    "extraVolumeMounts": list_of("core.v1.VolumeMount"),
    "initContainers": list_of("core.v1.Container"),
    "extraObjects": _MANIFESTS,
    "sidecars": list_of("core.v1.Container"),
    "resources": object_of("core.v1.ResourceRequirements"),
    "nodeSelector": _TEXT_BY_NAME,
    "tolerations": list_of("core.v1.Toleration"),
    "affinity": object_of("core.v1.Affinity"),
    "topologySpreadConstraints": list_of("core.v1.TopologySpreadConstraint"),
    "priorityClassName": _TEXT,
    "podSecurityContext": object_of("core.v1.PodSecurityContext"),
    "containerSecurityContext": object_of("core.v1.SecurityContext"),
    "startupProbe": object_of("core.v1.Probe"),
    "livenessProbe": object_of("core.v1.Probe"),
    "readinessProbe": object_of("core.v1.Probe"),
    "minReadySeconds": _COUNT,
    "terminationGracePeriodSeconds": {"type": ["integer", "null"], "minimum": 0},
    "updateStrategy": object_of("apps.v1.DeploymentStrategy"),
}
