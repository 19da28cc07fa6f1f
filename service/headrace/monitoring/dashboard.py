"""The Grafana dashboard: variables at its top, and the panels in their places.

Tests: ``tests/packaging/test_chart_monitoring.py``, ``tests/integration/test_monitoring.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.monitoring.panels import Panel, rows
from headrace.runtime.metrics import connect_declarations as connect
from headrace.runtime.metrics import declarations as declared

OF_NAMESPACE, OF_JOB = "namespace", "job"
"""The label by which a dashboard selects workers: with the chart, or for a scrape job of one's own."""
_COLUMNS = 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def text(label: str) -> str:
    """Return the dashboard in Grafana's JSON. ``label`` selects the workers."""
    return json.dumps(_dashboard(label), indent=1) + "\n"


def _dashboard(label: str) -> Mapping[str, Any]:
    connectors = connect.CONNECTOR_STATUS.query(f'{label}="${label}"')
    return {
        "uid": "headrace",
        "title": "Headrace",
        "tags": ["headrace", "kafka-connect"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                _variable(label, f"label_values({declared.INFO.name}, {label})"),
                _variable("connector", f"label_values({connectors}, connector)", multi=True)
                | {"current": {"text": ["All"], "value": ["$__all"]}},
            ]
        },
        "panels": list(_rows_and_panels(rows(label))),
    }


def _variable(name: str, query: str, *, multi: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,
        "sort": 1,
        "multi": multi,
        "includeAll": multi,
    }


def _rows_and_panels(titled: Mapping[str, list[Panel]]) -> Iterator[Mapping[str, Any]]:
    """Return the rows and their panels: six single numbers or two graphs in a line."""
    number, y = 1, 0
    for title, panels in titled.items():
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": _place(0, y, _COLUMNS, 1)}
        number, y, x, height = number + 1, y + 1, 0, 0
        for panel in panels:
            width, height = (_COLUMNS // 6, 4) if panel.alarm is not None else (_COLUMNS // 2, 8)
            if x + width > _COLUMNS:
                x, y = 0, y + height
            yield _panel(number, panel, _place(x, y, width, height))
            number, x = number + 1, x + width
        y += height


def _place(x: int, y: int, width: int, height: int) -> Mapping[str, int]:
    return {"h": height, "w": width, "x": x, "y": y}


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> Mapping[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    options: dict[str, Any] = {}
    if panel.alarm is not None:
        colors = ("red", "green") if panel.lower else ("green", "red")
        steps = [{"color": colors[0], "value": None}, {"color": colors[1], "value": panel.alarm}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        shown = {"colorMode": "background", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}}
        options = {"options": shown}
    return {
        "id": number,
        "type": "timeseries" if panel.alarm is None else "stat",
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        **options,
        "targets": [
            {"refId": "ABCD"[index], "expr": expression, "legendFormat": legend, "datasource": _SOURCE}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }
