"""``python -m headrace.monitoring [ROOT]``: write alerts, dashboards and the page of metrics into a source tree."""

from __future__ import annotations

import sys
from pathlib import Path

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


def main() -> None:
    """Write all of them below the folder that the command line names, or below the current one."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for name, text in made_files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
