"""The schema of the chart's values: it has every value, and refuses each key that does not exist."""

from __future__ import annotations

import json
from functools import cache

import pytest
from importlib_resources import files
from support.repository.rendered_chart import CHART, MINIMAL, Manifest, default_values, refused

from headrace.config.chart_values import KEYS
from headrace_dev.versions import KUBERNETES

OPTIONAL_VALUES = {"global", "medium"}  # accepted, but not in values.yaml
OPEN_VALUES = {".worker.config", ".connectors"}  # the worker refuses an unknown option


def test_the_schema_has_every_value_and_no_other() -> None:
    """An object of the chart is closed, and has the same keys in values.yaml and in the schema."""

    def compare(schema: Manifest, values: Manifest, path: str) -> None:
        if schema.get("type") != "object" or path in OPEN_VALUES:
            return
        assert schema["additionalProperties"] is False, f"{path} is open"
        assert schema["properties"].keys() - values.keys() <= OPTIONAL_VALUES, path
        assert values.keys() <= schema["properties"].keys(), path
        for name in values:
            compare(schema["properties"][name], values[name], f"{path}.{name}")

    compare(json.loads((CHART / "values.schema.json").read_text()), default_values(), "")


@cache
def definitions() -> Manifest:
    """Kubernetes' own definitions of its objects."""
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{KUBERNETES}.0-local"
    found: Manifest = json.loads((folder / "_definitions.json").read_text())["$defs"]
    return found


@pytest.mark.parametrize("name", KEYS)
def test_objects_of_kubernetes_have_its_keys(name: str) -> None:
    """Neither is a key missing, nor does the schema accept one that Kubernetes ignores."""
    assert set(KEYS[name].split()) == definitions()[f"io.k8s.api.{name}"]["properties"].keys()


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("image.digests=x", "digests"),
        ("resources.limit.memory=8Gi", "limit"),
        ("livenessProbe.periodSecond=5", "periodSecond"),
        ("podSecurityContext.runAsUserId=5", "runAsUserId"),
        ("containerSecurityContext.runAsNonroot=true", "runAsNonroot"),
        ("affinity.podAntiAffinities.a=b", "podAntiAffinities"),
        ("updateStrategy.kind=Recreate", "kind"),
        ("kafka.tls.secret=x", "secret"),
        ("extraEnv[0].nam=A", "nam"),
        ("extraEnvFrom[0].secretref.name=A", "secretref"),
        ("extraVolumes[0].configmap.name=x", "configmap"),
        ("extraVolumeMounts[0].path=/x", "path"),
        ("tolerations[0].keys=x", "keys"),
        ("topologySpreadConstraints[0].skew=1", "skew"),
        ("imagePullSecrets[0].secret=x", "secret"),
        ("sidecars[0].images=x", "images"),
    ],
)
def test_an_unknown_key_is_refused_at_every_level(value: str, key: str) -> None:
    """Kubernetes would ignore most of them, and the operator would not notice."""
    assert f"additional properties '{key}' not allowed" in refused(MINIMAL, "--set", value)


@pytest.mark.parametrize("value", ["podLabels.a.b=c", "image.digest=latest", "extraObjects[0]=5"])
def test_values_have_types(value: str) -> None:
    """A label is a text, a digest is complete, and an object is one."""
    assert "values don't meet the specifications" in refused(MINIMAL, "--set", value)
