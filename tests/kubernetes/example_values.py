"""The example values files of the chart, and how a test changes them."""

from __future__ import annotations

from typing import Any

import yaml

from headrace_dev.kubernetes import CHART

EXAMPLES = {path.name.removesuffix("-values.yaml"): path for path in CHART.glob("ci/*-values.yaml")}
"""The files by the name of their case, such as ``s3``."""
ONE_BROKER = {"config.storage.replication.factor": 1, "status.storage.replication.factor": 1}
"""The options without which a worker does not start on a cluster with one broker."""

Values = dict[str, Any]


def example_values(name: str) -> Values:
    """Return the values of an example."""
    values: Values = yaml.safe_load(EXAMPLES[name].read_text())
    return values


def merged(values: Values, other: Values) -> Values:
    """``values`` with those of ``other``, which take precedence, as Helm merges two files."""
    both = dict(values)
    for name, value in other.items():
        known = both.get(name)
        both[name] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return both
