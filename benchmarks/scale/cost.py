"""What a million changes cost, by the measured figures and your prices.

    commits  = 1,000,000 / changes a commit
    CPU      = commits x CPU s a commit / 3600 x price of a core for an hour
    requests = commits x objects a commit / 1000 x price of 1,000 PUT requests

The figures are those of ``make scale``: lane ``tables`` (the complete worker, or Flink, at a low rate), and lane
``commit`` (the commit alone, with its upkeep). The prices are yours; none is assumed. Reading, storage and network are
not included.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "docs" / "performance" / "scale.json"
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """What one million changes use: CPU seconds and PUT requests, at ``changes`` a commit."""

    name: str
    changes: float
    cpu_seconds: float
    requests: float

    def cost(self, core_hour: float, thousand_requests: float) -> tuple[float, float]:
        """Return the cost of CPU and of requests."""
        return self.cpu_seconds / 3600 * core_hour, self.requests / 1000 * thousand_requests


def usages(results: Mapping[str, Any]) -> Iterator[Usage]:
    """Yield the usage of each measured case."""
    for found in results.get("tables", {}).get("results", ()):
        changes = found["changes"] / found["commits"]
        yield _usage(
            f"{found['name']}: {found['tables']} tables, {found['rate']} changes/s",
            changes,
            found["cpu_ms_per_commit"],
            found["objects_per_commit"],
        )
    for found in results.get("commit", {}).get("commits", ()):
        path = "direct commit" if found["path"] == "direct" else "MERGE"
        cpu_ms = found["cpu_ms"] + found["upkeep_cpu_ms"]
        name = f"{path} of {found['batch']:,} rows into {found['rows']:,} of {found['columns']} columns, with upkeep"
        yield _usage(name, found["batch"], cpu_ms, found["objects"])


def _usage(name: str, changes: float, cpu_ms: float, objects: float) -> Usage:
    commits = _MILLION / changes
    return Usage(name, changes, commits * cpu_ms / 1000, commits * objects)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the costs. Return 1 without figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale.cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--core-hour", type=float, required=True, metavar="PRICE", help="of a core for an hour")
    parser.add_argument("--thousand-puts", type=float, required=True, metavar="PRICE", help="of 1,000 PUT requests")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help="the results of make scale")
    chosen = parser.parse_args(arguments)
    if not chosen.json.exists():
        print(f"{chosen.json} does not exist: run make scale, or name a result with --json", file=sys.stderr)
        return 1
    print(f"{'a million changes':<78}{'changes a commit':>17}{'CPU s':>9}{'PUTs':>9}{'CPU':>10}{'PUTs':>10}{'sum':>10}")
    for usage in usages(json.loads(chosen.json.read_text())):
        cpu, requests = usage.cost(chosen.core_hour, chosen.thousand_puts)
        print(
            f"{usage.name:<78}{usage.changes:>17,.0f}{usage.cpu_seconds:>9,.0f}{usage.requests:>9,.0f}"
            f"{cpu:>10.4f}{requests:>10.4f}{cpu + requests:>10.4f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
