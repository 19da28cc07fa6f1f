"""A real Kubernetes of one node on this machine, and a release of the chart in it.

Its programs and its state are in ``$HEADRACE_KUBE_HOME`` (by default the folder ``kubernetes`` of the cache):
``bin/`` with kube-apiserver, kubelet, kubectl and Helm, ``images/<variant>.tar`` with the images. The script that
starts and stops it is ``cluster.sh`` of ``$HEADRACE_KUBE_SCRIPTS``. Both need root. ``missing`` says what is not here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace_dev.jars import cache_folder
from headrace_dev.worker import WorkerApi

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "headrace"
_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "helm")
_PACKAGES = ("etcd", "containerd", "ctr", "runc", "jq", "iptables", "podman")
_START_SECONDS, _COMMAND_SECONDS = 240, 300


class KubernetesError(RuntimeError):
    """A command of the cluster failed; the message contains the command and its output."""


def kube_home() -> Path:
    """Return the folder of the cluster's programs, images and state."""
    return Path(os.environ.get("HEADRACE_KUBE_HOME") or cache_folder() / "kubernetes")


def missing(*variants: str) -> str:
    """Return what a test with these variants of the image needs and this machine lacks; "" if nothing."""
    scripts, home = _scripts(), kube_home()
    if os.geteuid() != 0:
        return "a Kubernetes node needs root"
    if not (scripts / "cluster.sh").exists():
        return f"no cluster.sh in {scripts}; HEADRACE_KUBE_SCRIPTS names another folder"
    if lacking := [name for name in _PACKAGES if shutil.which(name) is None]:
        return f"no {', '.join(lacking)}: see the packages in {scripts / 'README.md'}"
    if lacking := [name for name in _PROGRAMS if not (home / "bin" / name).exists()]:
        return f"no {', '.join(lacking)} in {home / 'bin'}: {scripts / 'build.sh'} builds them"
    if lacking := [variant for variant in variants if not archive(variant).exists()]:
        return f"no {', '.join(str(archive(each)) for each in lacking)}: 'make image', then save the image there"
    return ""


def archive(variant: str) -> Path:
    """Return the archive (docker-archive) of a variant of the image."""
    return kube_home() / "images" / f"{variant}.tar"


class Cluster:
    """The node. ``start`` and ``stop`` are those of ``cluster.sh``; a stopped cluster keeps its images only."""

    def __init__(self) -> None:
        self.home = kube_home()

    def start(self) -> None:
        """Start the control plane and the node; end those of an interrupted run first. Raises KubernetesError."""
        if any((self.home / "run").glob("*.pid")):
            self.stop()
        self._script("up")

    def stop(self) -> None:
        """End every pod and process of the cluster. The status of the script says nothing."""
        with suppress(KubernetesError):
            self._script("down")

    def load(self, variant: str) -> str:
        """Import the image of a variant and return its name, such as ``localhost/headrace:dev``."""
        output = self._script("load", str(archive(variant)))
        return next(word for word in output.split() if word.startswith("localhost/headrace")).removesuffix(",")

    def kubectl(self, *arguments: str, document: object = None, seconds: float = _COMMAND_SECONDS) -> str:
        """Run kubectl and return its output; ``document`` is its standard input, as JSON. Raises KubernetesError."""
        text = None if document is None else json.dumps(document)
        return self._run([str(self.home / "bin" / "kubectl"), *arguments], text, seconds)

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return the object, or the list of objects, that ``kubectl get`` finds."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output=json"))
        return found

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "--filename=-", document={"apiVersion": "v1", "kind": "List", "items": list(objects)})

    def helm(self, *arguments: str, values: object = None, seconds: float = _COMMAND_SECONDS) -> str:
        """Run Helm and return its output; ``values`` are given as a values file. Raises KubernetesError."""
        given = [] if values is None else ["--values=-"]
        text = None if values is None else json.dumps(values)  # JSON is YAML
        return self._run([str(self.home / "bin" / "helm"), *arguments, *given], text, seconds)

    def _script(self, *arguments: str) -> str:
        return self._run([str(_scripts() / "cluster.sh"), *arguments], None, _START_SECONDS)

    def _run(self, command: Sequence[str], text: str | None, seconds: float) -> str:
        environment = {**os.environ, "KUBE_HOME": str(self.home), "KUBECONFIG": str(self.home / "kubeconfig")}
        answer = subprocess.run(
            command, input=text, capture_output=True, text=True, env=environment, timeout=seconds, check=False
        )
        if answer.returncode:
            raise KubernetesError(f"{' '.join(command)}: status {answer.returncode}\n{answer.stdout}{answer.stderr}")
        return answer.stdout


class Release(WorkerApi):
    """The chart, installed in a namespace of its own; ``url`` is that of its service, which any worker answers."""

    def __init__(self, cluster: Cluster, name: str, image: str) -> None:
        self.name = name
        self._cluster = cluster
        repository, _, tag = image.rpartition(":")
        self._image = {"repository": repository, "tag": tag, "pullPolicy": "Never"}

    def create_namespace(self, *objects: Mapping[str, Any]) -> None:
        """Create the namespace and objects in it, such as Secrets that the values name."""
        self._cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}})
        placed = [{**each, "metadata": {**each["metadata"], "namespace": self.name}} for each in objects]
        if placed:
            self._cluster.apply(*placed)

    def install(self, values: Mapping[str, Any], seconds: int = 240, *, wait: bool = True) -> None:
        """Install the release, or upgrade it, and wait until its pods are ready. Raises KubernetesError."""
        options = ["--install", f"--timeout={seconds}s", f"--namespace={self.name}", *(["--wait"] if wait else [])]
        merged = {**values, "image": self._image}
        self._cluster.helm("upgrade", self.name, str(CHART), *options, values=merged, seconds=seconds + 60)
        [service] = (each["spec"] for each in self.get("services")["items"] if each["spec"]["clusterIP"] != "None")
        self.url = f"http://{service['clusterIP']}:{service['ports'][0]['port']}"

    def kill(self) -> None:
        """Kill the pods, and remove the namespace with everything in it. Idempotent."""
        # A namespace that is being removed admits no new pods.
        self._cluster.kubectl("delete", "namespace", self.name, "--ignore-not-found", "--wait=false")
        self.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")

    def kubectl(self, *arguments: str, document: object = None) -> str:
        """Run kubectl in the namespace."""
        return self._cluster.kubectl(f"--namespace={self.name}", *arguments, document=document)

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return objects of the namespace."""
        return self._cluster.get(f"--namespace={self.name}", *arguments)

    def pods(self) -> list[dict[str, Any]]:
        """Return the workers' pods that are not being deleted."""
        found = self.get("pods", "--selector=app.kubernetes.io/component=worker")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def ready(self) -> list[str]:
        """Return the names of the workers' pods that are ready."""
        return [pod["metadata"]["name"] for pod in self.pods() if _is_ready(pod)]

    def started(self) -> list[str]:
        """Return the names of the workers' pods whose container runs, ready or not."""
        return [pod["metadata"]["name"] for pod in self.pods() if _runs(pod)]

    def execute(self, pod: str, *command: str) -> str:
        """Run a command in a worker's container and return its output."""
        return self.kubectl("exec", pod, "--container=headrace", "--", *command)

    def volume(self, pod: Mapping[str, Any], name: str) -> Path:
        """Return the folder on this machine that is an emptyDir of a pod."""
        pods = self._cluster.home / "kubelet" / "pods"
        return pods / str(pod["metadata"]["uid"]) / "volumes" / "kubernetes.io~empty-dir" / name

    def logs(self) -> str:
        """Return the logs of all workers that run now, each after the name of its pod; without probes and polls."""
        logs = {name: self.kubectl("logs", name, "--container=headrace") for name in self.started()}
        lines = [line for name, log in logs.items() for line in (f"== {name}", *log.splitlines())]
        return "\n".join(line for line in lines if '"GET /' not in line)

    def kill_pod(self, pod: str) -> None:
        """Kill a worker's pod without notice; the workload replaces it."""
        self.kubectl("delete", "pod", pod, "--force", "--grace-period=0")

    def evict(self, pod: str) -> None:
        """Evict a worker's pod, as a drain of its node does. Raises KubernetesError if the API server refuses."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": self.name}}
        path = f"/api/v1/namespaces/{self.name}/pods/{pod}/eviction"
        self.kubectl("create", f"--raw={path}", "--filename=-", document=eviction)


def _runs(pod: Mapping[str, Any]) -> bool:
    return any("running" in each["state"] for each in pod["status"].get("containerStatuses", []))


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _scripts() -> Path:
    given = os.environ.get("HEADRACE_KUBE_SCRIPTS")
    return Path(given) if given else ROOT.parent / "shared" / "tools" / "kubernetes"
