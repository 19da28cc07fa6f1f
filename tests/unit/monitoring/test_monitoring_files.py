"""Tests of the files that are made from the declarations of metrics: alert rules, dashboards, the page of metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from headrace.monitoring.__main__ import made_files
from headrace.monitoring.alerts import ALERTS
from headrace.monitoring.files import METRICS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", made_files())
def test_generated_files_are_up_to_date(name: str) -> None:
    """Run 'python -m headrace.monitoring' when this fails."""
    assert (ROOT / name).read_text(encoding="utf-8") == made_files()[name]


def test_the_page_has_every_metric() -> None:
    """Each metric is a row with its labels, its type and its meaning."""
    page = made_files()["docs/metrics.md"]
    for metric in METRICS:
        labels = f"{{{', '.join(metric.labels)}}}" if metric.labels else ""
        assert f"| `{metric.name}{labels}` | {metric.kind} | {metric.unit} | {metric.help}." in page


def test_both_rule_files_have_the_same_rules() -> None:
    """A rule in YAML is the alert of the code, in the chart's file and in the rule file."""
    rules = yaml.safe_load(made_files()["helm/headrace/files/alerts.yaml"])
    [group] = yaml.safe_load(made_files()["config/monitoring/rules.yaml"])["groups"]
    assert group["rules"] == rules
    for alert, rule in zip(ALERTS, rules, strict=True):
        assert (rule["alert"], rule["expr"], rule["for"]) == (alert.name, alert.expression, alert.wait)
        assert rule["labels"] == {"severity": alert.severity}
        texts = {"summary": alert.summary, "description": alert.description, "runbook_url": alert.runbook}
        assert rule["annotations"] == texts


def test_each_alert_has_a_runbook() -> None:
    """``runbook_url`` names a page and a heading of it, and no runbook is that of an alert which does not exist."""
    page = (ROOT / "docs" / "operations.md").read_text()
    headings = re.findall(r"^### (Headrace\w+)$", page, re.MULTILINE)
    assert headings == [alert.name for alert in ALERTS]
    assert [alert.runbook for alert in ALERTS] == [f"docs/operations.md#{each.lower()}" for each in headings]


def test_panels_do_not_overlap() -> None:
    """Each panel has a place of its own within the width of the dashboard, and an id of its own."""
    for name in ("helm/headrace/files/dashboard.json", "config/monitoring/dashboard.json"):
        panels = json.loads(made_files()[name])["panels"]
        cells = [
            (x, y)
            for place in (panel["gridPos"] for panel in panels)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24
        assert len({panel["id"] for panel in panels}) == len(panels)
