"""Alerts and dashboard of the chart: every metric in them exists, and Prometheus accepts them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from support.fix_asyncio import eventually
from support.repository.prometheus import promtool
from support.repository.rendered_chart import CHART, MINIMAL, Manifest, manifest, refused, rendered
from support.rest.worker_api import SHOP, Api

from headrace.monitoring.files import METRICS
from headrace.ports import EngineState, EngineStatus

VALUES = CHART / "ci" / "autoscaled-values.yaml"
ALERTS: list[Manifest] = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
DASHBOARD: Manifest = json.loads((CHART / "files" / "dashboard.json").read_text())
OF_PROMETHEUS = {"up"}
WORDS = {"and", "or", "unless", "sum", "max", "min", "count"}
CALL_OR_LABEL = re.compile(r"\b(?:by|without|on|ignoring|group_left) *\([^)]*\)|\{[^}]*\}|\[[^]]*\]|\b[a-z_]+ *\(")


def expressions() -> dict[str, str]:
    """Every expression of alerts and dashboard by its place."""
    panels = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    }
    variables = {
        each["name"]: f"{each['query'].removeprefix('label_values(').partition(',')[0]}"
        for each in DASHBOARD["templating"]["list"]
        if each["type"] == "query"
    }
    return {each["alert"]: each["expr"] for each in ALERTS} | panels | variables


def metric_names(expression: str) -> set[str]:
    """The metrics of an expression."""
    return set(re.findall(r"\b[a-z][a-z_]+\b", CALL_OR_LABEL.sub(" ", expression))) - WORDS


async def exported(folder: Path) -> list[Metric]:
    """The families that a worker exposes."""
    (folder / "shop.json").write_text(json.dumps({"name": "shop", "config": SHOP}))
    api = Api(**{"connectors.directory": str(folder)})
    api.metrics.watch_engine(lambda: EngineStatus(EngineState.RUNNING, 0.0))
    api.metrics.watch_memory(lambda: 0, 1.0)
    await api.worker.start()
    await eventually(lambda: api.worker.cluster.leads)
    await api.directory.reconcile()
    await api.until("RUNNING", "RUNNING")
    families = list(text_string_to_metric_families(api.metrics.exposition()[0].decode()))
    await api.worker.stop()
    return families


@pytest.mark.anyio
async def test_a_worker_exports_what_is_declared(tmp_path: Path) -> None:
    """Names, types, help texts and labels of all metrics are those of the declarations, and none is missing."""
    of_files = {metric.name: (metric.kind, metric.help, set(metric.labels)) for metric in METRICS}
    families = await exported(tmp_path)
    found = {f"{each.name}_total" if each.type == "counter" else each.name: each for each in families}
    assert found.keys() == of_files.keys()
    for name, family in found.items():
        kind, text, labels = of_files[name]
        assert (family.type, family.documentation) == (kind, text)
        assert all(sample.labels.keys() - {"le"} == labels for sample in family.samples), name


def test_every_metric_of_a_query_is_declared() -> None:
    """An alert on a metric that nobody exports would never fire."""
    names = {place: metric_names(expression) for place, expression in expressions().items()}
    assert all(names.values())
    declared = OF_PROMETHEUS.union(*(metric.samples for metric in METRICS))
    assert {place: found - declared for place, found in names.items() if found - declared} == {}


def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    """promtool finds no error, neither in the chart's file nor in the rendered rules."""
    spec = manifest("PrometheusRule", VALUES)["spec"]
    for name, content in (("file", {"groups": [{"name": "headrace", "rules": ALERTS}]}), ("chart", spec)):
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        answer = subprocess.run([promtool(), "check", "rules", str(path)], capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert "SUCCESS" in answer.stdout


def test_rules_belong_to_the_release() -> None:
    """Disabled alerts are left out, others added; an unknown name is refused."""
    [group] = manifest("PrometheusRule", VALUES)["spec"]["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert "HeadraceLagGrows" not in names
    assert names[-1] == "ShopStale"
    assert len(names) == len(ALERTS)
    urls = [rule["annotations"]["runbook_url"] for rule in group["rules"] if rule["alert"] != "ShopStale"]
    assert all(url.startswith("https://wiki.example.com/headrace/operations.md#headrace") for url in urls)
    unknown = ("--set", "prometheusRule.disabled[0]=HeadraceLag")
    assert "no alert is called HeadraceLag" in refused(MINIMAL, *unknown)


def test_grafana_finds_the_dashboard() -> None:
    """The ConfigMap has the sidecar's label, and the file as it is."""
    [found] = [each for each in rendered(VALUES) if each["metadata"]["name"] == "hr-headrace-dashboard"]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"grafana_folder": "Kafka Connect"}
    assert json.loads(found["data"]["headrace.json"]) == DASHBOARD
