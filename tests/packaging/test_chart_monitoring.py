"""Alerts and dashboard of the chart: every metric in them exists, and the alerts fire."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.fix_asyncio import eventually
from support.repository.rendered_chart import CHART, MINIMAL, Manifest, manifest, refused, rendered
from support.rest.worker_api import SHOP, Api

from headrace.ports import EngineState, EngineStatus
from headrace_dev.jars import cache_folder

VALUES = CHART / "ci" / "autoscaled-values.yaml"
ALERTS: list[Manifest] = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
DASHBOARD: Manifest = json.loads((CHART / "files" / "dashboard.json").read_text())
OF_PROMETHEUS = {"up"}
WORDS = {"and", "or", "unless", "sum", "max"}
CALL_OR_LABEL = re.compile(r"\b(?:by|without|on|ignoring|group_left) *\([^)]*\)|\{[^}]*\}|\[[^]]*\]|\b[a-z_]+ *\(")
TARGET = 'namespace="data",pod="hr-headrace-0"'


@cache
def promtool() -> str:
    """Debian's promtool; skips if it is not there."""
    path = cache_folder() / "bin" / "promtool"
    if not path.exists():
        pytest.skip(f"no promtool in {path.parent}: 'make system' unpacks it where there is apt-get")
    return str(path)


def expressions() -> dict[str, str]:
    """Every expression of alerts and dashboard by its place."""
    panels = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
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


async def exported_names(folder: Path) -> set[str]:
    """The names of all samples and families that a worker exposes."""
    (folder / "shop.json").write_text(json.dumps({"name": "shop", "config": SHOP}))
    api = Api(**{"connectors.directory": str(folder)})
    api.metrics.watch_engine(lambda: EngineStatus(EngineState.RUNNING, 0.0))
    await api.worker.start()
    await eventually(lambda: api.worker.cluster.leads)
    await api.directory.reconcile()
    await api.until("RUNNING", "RUNNING")
    families = list(text_string_to_metric_families(api.metrics.exposition()[0].decode()))
    await api.worker.stop()
    of_type: dict[str, Callable[[str], set[str]]] = {
        "counter": lambda name: {f"{name}_total"},
        "histogram": lambda name: {f"{name}_{part}" for part in ("bucket", "sum", "count")},
    }
    names = {sample.name for family in families for sample in family.samples}
    return names.union(*(of_type.get(family.type, lambda name: {name})(family.name) for family in families))


@pytest.mark.anyio
async def test_every_metric_is_exported(tmp_path: Path) -> None:
    """An alert on a metric that nobody exports would never fire."""
    names = {place: metric_names(expression) for place, expression in expressions().items()}
    assert all(names.values())
    exported = await exported_names(tmp_path) | OF_PROMETHEUS
    assert {place: found - exported for place, found in names.items() if found - exported} == {}


def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    """promtool finds no error, neither in the chart's file nor in the rendered rules."""
    spec = manifest("PrometheusRule", VALUES)["spec"]
    for name, content in (("file", {"groups": [{"name": "headrace", "rules": ALERTS}]}), ("chart", spec)):
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        answer = subprocess.run([promtool(), "check", "rules", str(path)], capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert "SUCCESS" in answer.stdout


FIRING = {
    "HeadraceTaskFailed": ('kafka_connect_connector_task_status{%s,connector="shop",task="0",status="failed"}', "1x30"),
    "HeadraceConnectorFailed": ('kafka_connect_connector_status{%s,connector="shop",status="failed"}', "1x30"),
    "HeadraceTableFailed": ('headrace_table_state{%s,connector="shop",table="a",state="FAILED"}', "1x30"),
    "HeadraceTableRetrying": ('headrace_table_state{%s,connector="shop",table="a",state="RETRYING"}', "1x30"),
    "HeadraceWriterSlow": ('headrace_oldest_unwritten_seconds{%s,connector="shop",table="a"}', "0+60x30"),
    "HeadraceTableStale": ('headrace_freshness_last_seconds{%s,connector="shop",table="a"}', "1000+60x30"),
    "HeadraceLagGrows": ('headrace_lag_records{%s,connector="shop",topic="a",partition="0"}', "200000+900x90"),
    "HeadraceRecordsFail": ('kafka_connect_task_error_total_record_failures{%s,connector="shop"}', "0+1x30"),
    "HeadraceSourceIncomplete": ('reselect_contradictions_total{%s,connector="shop",table="a",kind="k"}', "0+1x30"),
    "HeadraceSourceNotQueried": ('reselect_connections{%s,connector="shop",state="left_alone"}', "1x30"),
    "HeadraceSparkDown": ("headrace_spark_up{%s}", "0x30"),
    "HeadraceSparkRestarts": ("headrace_spark_restarts{%s}", "0+1x30"),
    "HeadraceDirectoryNotApplied": ('headrace_directory_connectors{%s,state="CONFLICT"}', "1x30"),
    "HeadraceWorkerDown": ("up{%s}", "0x30"),
}
"""For each alert a series that fires it after half an hour, or after 90 minutes."""


def test_every_alert_fires(tmp_path: Path) -> None:
    """Each alert fires for its series and names what fails; no alert fires for series of another release."""
    assert [each["alert"] for each in ALERTS] == list(FIRING)
    [group] = manifest("PrometheusRule", MINIMAL, "--set", "prometheusRule.enabled=true")["spec"]["groups"]
    rules = [{key: value for key, value in rule.items() if key != "annotations"} for rule in group["rules"]]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [group | {"rules": rules}]}))
    cases = [
        _case(alert, series % target, values, fires=target == TARGET)
        for alert, (series, values) in zip(ALERTS, FIRING.values(), strict=True)
        for target in (TARGET, TARGET.replace("data", "other"))
    ]
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": cases}))
    answer = subprocess.run([promtool(), "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def _case(alert: Manifest, series: str, values: str, *, fires: bool) -> Manifest:
    """A test of promtool: the alert has the labels of its series."""
    labels = _labels(series)
    if alert["alert"] == "HeadraceLagGrows":  # the sum over topics and workers
        labels = {key: labels[key] for key in ("namespace", "connector")}
    fired = [{"exp_labels": {**labels, **alert["labels"]}}] if fires else []
    test = {"eval_time": "80m" if "x90" in values else "25m", "alertname": alert["alert"], "exp_alerts": fired}
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": values if "+" in values else values.replace("x", "+0x")}],
        "alert_rule_test": [test],
    }


def _labels(series: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', series))


def test_alerts_name_what_fails() -> None:
    """Each label in the text of an alert is a label of its series; a missing one would be shown as nothing."""
    for alert in ALERTS:
        series, _ = FIRING[alert["alert"]]
        used = set(re.findall(r"\$labels\.(\w+)", json.dumps(alert["annotations"])))
        assert used <= _labels(series % TARGET).keys(), alert["alert"]
        assert alert["annotations"].keys() == {"summary", "description"}


def test_rules_belong_to_the_release() -> None:
    """Disabled alerts are left out, others added; an unknown name is refused."""
    [group] = manifest("PrometheusRule", VALUES)["spec"]["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert "HeadraceLagGrows" not in names
    assert names[-1] == "ShopStale"
    assert len(names) == len(ALERTS)
    unknown = ("--set", "prometheusRule.disabled[0]=HeadraceLag")
    assert "no alert is called HeadraceLag" in refused(MINIMAL, *unknown)


def test_grafana_finds_the_dashboard() -> None:
    """The ConfigMap has the sidecar's label, and the file as it is."""
    [found] = [each for each in rendered(VALUES) if each["metadata"]["name"] == "hr-headrace-dashboard"]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"grafana_folder": "Kafka Connect"}
    assert json.loads(found["data"]["headrace.json"]) == DASHBOARD
