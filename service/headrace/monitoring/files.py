"""The texts of the files with alert rules, and of the reference page of the metrics.

Tests: ``tests/unit/monitoring/test_monitoring_files.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import fill, indent

from headrace.monitoring.alerts import ALERTS, SCOPE, Alert
from headrace.runtime.metrics import connect_declarations, declarations
from headrace.runtime.metrics.declaration import Declaration, Group

GROUPS: Sequence[Group] = (*declarations.GROUPS, *connect_declarations.GROUPS)
METRICS: Sequence[Declaration] = tuple(metric for group in GROUPS for metric in group)
"""Every metric of a worker."""
_MADE = "Made from the code by `python -m headrace.monitoring`; edit it there."
_WIDTH = 120


def chart_alerts() -> str:
    """Return the chart's file: a list of rules."""
    head = f"# {_MADE}\n# The chart puts namespace and pods of the release in the place of {SCOPE}.\n"
    return head + "".join(map(_rule, ALERTS))


def rule_file() -> str:
    """Return a rule file of Prometheus, for a scrape job with the name headrace."""
    head = f"# {_MADE}\n# Name the scrape job headrace, or put its name in the place of {SCOPE}.\n"
    rules = indent("".join(map(_rule, ALERTS)), "      ")
    return f"{head}groups:\n  - name: headrace\n    rules:\n{rules}"


def reference() -> str:
    """Return the page with all metrics."""
    parts = [
        "# Metrics\n",
        f"<!-- {_MADE} -->\n",
        "`GET /metrics` of a worker has these metrics in Prometheus' text format. Each worker has those of the "
        "connectors and tasks that it runs itself. Labels contain names of connectors, tasks, topics and tables, never "
        "keys or values of rows. A histogram has the samples `_bucket{le}`, `_sum` and `_count`. [Watch "
        "it](operations.md#watch-it) describes alerts and dashboard.\n",
    ]
    for group in GROUPS:
        parts += [f"## {group.title}\n", *([f"{group.text}\n"] if group.text else []), *_table(group), ""]
    return "\n".join(parts).rstrip() + "\n"


def _table(group: Group) -> Iterator[str]:
    yield "| metric | type | unit | meaning |"
    yield "|---|---|---|---|"
    for metric in group:
        labels = f"{{{', '.join(metric.labels)}}}" if metric.labels else ""
        meaning = f"{metric.help}. {metric.note}".rstrip().replace("|", "\\|")
        yield f"| `{metric.name}{labels}` | {metric.kind} | {metric.unit} | {meaning} |"


def _rule(alert: Alert) -> str:
    """Return the rule in YAML."""
    return (
        f"- alert: {alert.name}\n"
        f"  expr: >-\n{_folded_scalar(alert.expression, 4)}\n"
        f"  for: {alert.wait}\n"
        f"  labels: {{severity: {alert.severity}}}\n"
        "  annotations:\n"
        f"    summary: >-\n{_folded_scalar(alert.summary, 6)}\n"
        f"    description: >-\n{_folded_scalar(alert.description, 6)}\n"
        f"    runbook_url: {alert.runbook}\n"
    )


def _folded_scalar(text: str, spaces: int) -> str:
    """Return a text as the lines of a folded scalar of YAML."""
    margin = " " * spaces
    return fill(
        text,
        _WIDTH - 6,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
