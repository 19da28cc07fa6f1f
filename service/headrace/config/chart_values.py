"""The schema of the chart's values: ``helm/headrace/values.schema.json``.

An object whose keys the chart defines is closed, so that Helm refuses a misspelt value. Objects with keys of Kubernetes
or of the operator are open. Options are open as well: the worker refuses an unknown one and suggests the right one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.config import connector, worker_options
from headrace.config.framework import FRAMEWORK_OPTIONS
from headrace.core.connect.config_def import ConfigDef, Type

Schema = dict[str, Any]

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
_ID: Schema = {"type": ["integer", "null"]}  # null leaves it to the platform
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_OPEN: Schema = {"type": ["object", "null"]}  # keys of Kubernetes or of the operator
_LIST: Schema = {"type": "array"}  # of objects of Kubernetes


def values_schema() -> Schema:
    """Of every value. ``worker.config`` and ``connectors`` have the options of worker and connectors."""
    config = _options(worker_options.WORKER_OPTIONS) | {"description": "Keys of worker.properties."}
    worker = {"config": config, "logLevel": _one_of("DEBUG", "INFO", "WARNING", "ERROR")}
    values = _WORKLOAD | _POD | {"kafka": _KAFKA, "worker": _closed(worker), "connectors": _connectors()}
    return {"$schema": "https://json-schema.org/draft-07/schema#"} | _closed(values)


def _closed(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


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
    }
)

_WORKLOAD: dict[str, Schema] = {
    "global": _OPEN,  # Helm hands it to every chart that is part of another one
    "mode": _one_of("distributed", "standalone"),
    "replicaCount": _COUNT,
    "image": _closed(
        {
            "repository": _TEXT,
            "tag": {"type": ["string", "number"]},
            "pullPolicy": _one_of("Always", "IfNotPresent", "Never"),
        }
    ),
    "imagePullSecrets": _LIST,
    "nameOverride": _TEXT,
    "fullnameOverride": _TEXT,
    "commonLabels": _OPEN,
    "commonAnnotations": _OPEN,
    "podAnnotations": _OPEN,
    "podLabels": _OPEN,
    "serviceAccount": _closed(
        {"create": _SWITCH, "name": _TEXT, "annotations": _OPEN, "automountServiceAccountToken": _SWITCH}
    ),
    "existingConfigMap": _TEXT,
    "existingSecret": _TEXT,
    "existingConnectorsSecret": _TEXT,
    "existingConnectorsKeys": _TEXTS,
    "service": _closed(
        {"type": _one_of("ClusterIP", "NodePort", "LoadBalancer"), "port": _COUNT, "annotations": _OPEN}
    ),
    "podDisruptionBudget": _closed({"enabled": _SWITCH, "maxUnavailable": {"type": ["integer", "string"]}}),
    "serviceMonitor": _closed({"enabled": _SWITCH, "interval": _TEXT, "labels": _OPEN}),
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
            "annotations": _OPEN,
            "mountPath": _TEXT,
        }
    ),
    "scratch": _closed({"medium": _one_of("", "Memory"), "sizeLimit": _TEXT}),
    "tmp": _closed({"medium": _one_of("", "Memory"), "sizeLimit": _TEXT}),
    "env": _LIST,
    "envFrom": _LIST,
    "extraVolumes": _LIST,
    "extraVolumeMounts": _LIST,
    "initContainers": _LIST,
    "sidecars": _LIST,
    "resources": _OPEN,
    "nodeSelector": _OPEN,
    "tolerations": _LIST,
    "affinity": _OPEN,
    "topologySpreadConstraints": _LIST,
    "priorityClassName": _TEXT,
    "podSecurityContext": _OPEN | {"properties": {"runAsUser": _ID, "runAsGroup": _ID, "fsGroup": _ID}},
    "containerSecurityContext": _OPEN,
    "startupProbe": _OPEN,
    "livenessProbe": _OPEN,
    "readinessProbe": _OPEN,
    "terminationGracePeriodSeconds": _COUNT,
    "updateStrategy": _OPEN,
}
