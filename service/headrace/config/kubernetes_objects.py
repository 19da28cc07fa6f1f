"""Objects of Kubernetes in the chart's values: the keys that each may have, for ``values.schema.json``.

Kubernetes itself ignores a misspelt key with a warning that Helm does not show.
``tests/packaging/test_chart_values.py`` compares the keys with Kubernetes' own definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    """Return the schema of a list of such objects."""
    return {"type": "array", "items": object_of(name)}
