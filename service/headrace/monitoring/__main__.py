"""``python -m headrace.monitoring [ROOT]``: write alerts, dashboards and the page of metrics into a source tree."""

from __future__ import annotations

from headrace.config.made_files import write
from headrace.monitoring import dashboard, files


def made_files() -> dict[str, str]:
    """Every made file by its path in the source tree."""
    return {
        "docs/metrics.md": files.reference(),
        "helm/headrace/files/alerts.yaml": files.chart_alerts(),
        "helm/headrace/files/dashboard.json": dashboard.text(dashboard.OF_NAMESPACE),
        "config/monitoring/rules.yaml": files.rule_file(),
        "config/monitoring/dashboard.json": dashboard.text(dashboard.OF_JOB),
    }


if __name__ == "__main__":
    write("headrace.monitoring", made_files())
