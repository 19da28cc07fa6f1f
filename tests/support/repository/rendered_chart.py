"""The chart as Helm renders it, for the tests of its manifests."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace_dev.jars import cache_folder
from headrace_dev.versions import HELM, KUBERNETES

ROOT = Path(__file__).parents[3]
CHART = ROOT / "helm" / "headrace"
CASES = sorted(CHART.glob("ci/*-values.yaml"))
MINIMAL = CHART / "ci" / "minimal-values.yaml"

Manifest = dict[str, Any]

in_every_case = pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)


@cache
def helm() -> str:
    """The pinned Helm; skips if it is not installed."""
    pinned = cache_folder() / "bin" / f"helm-{HELM}" / "helm"
    if not pinned.exists():
        pytest.skip(f"no Helm {HELM} in {pinned.parent}: 'make system' builds it where there is Go")
    return str(pinned)


@cache
def run_helm(command: str, values: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The result of Helm; ``command`` is lint or template."""
    name = ["hr"] if command == "template" else []
    options = ["--kube-version", f"{KUBERNETES}.0", "--namespace", "data", "--values", str(values), *arguments]
    return subprocess.run([helm(), command, *name, str(CHART), *options], capture_output=True, text=True, check=False)


@cache
def rendered(values: Path, *arguments: str) -> tuple[Manifest, ...]:
    """Every manifest that the chart renders with ``values``."""
    answer = run_helm("template", values, *arguments)
    assert answer.returncode == 0, answer.stderr
    return tuple(manifest for manifest in yaml.safe_load_all(answer.stdout) if manifest)


def manifest(kind: str, values: Path, *arguments: str) -> Manifest:
    """The only manifest of ``kind``."""
    (found,) = (manifest for manifest in rendered(values, *arguments) if manifest["kind"] == kind)
    return found


def workload(values: Path, *arguments: str) -> Manifest:
    """The Deployment or StatefulSet of the workers."""
    (found,) = (each for each in rendered(values, *arguments) if each["kind"] in ("Deployment", "StatefulSet"))
    return found


def pod(values: Path, *arguments: str) -> Manifest:
    """The worker's pod template."""
    template: Manifest = workload(values, *arguments)["spec"]["template"]
    return template


def container(values: Path, *arguments: str) -> Manifest:
    """The worker's container."""
    first: Manifest = pod(values, *arguments)["spec"]["containers"][0]
    return first


def properties(values: Path, *arguments: str) -> str:
    """The mounted worker.properties."""
    configs = (each.get("data", {}) for each in rendered(values, *arguments) if each["kind"] == "ConfigMap")
    (text,) = (data["worker.properties"] for data in configs if "worker.properties" in data)
    return str(text)


def default_values() -> Manifest:
    """The chart's values.yaml."""
    values: Manifest = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


def refused(values: Path, *arguments: str) -> str:
    """The message with which Helm refuses the values."""
    answer = run_helm("template", values, *arguments)
    assert answer.returncode != 0
    return answer.stderr
