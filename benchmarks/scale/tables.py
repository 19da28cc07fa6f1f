"""Lane ``tables``: many tables with few changes each, beside Flink for the smallest number (``many_tables.py``).

One connector, or one job with a statement for each table, keeps all tables fresh at a total rate. The age of a change
is the time from its sending to the commit that contains it. In the end each row of each table is compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cpu import Cpu
from benchmarks.lake import FLINK, HEADRACE, SPARK, session
from benchmarks.many_tables import CONNECTOR, HeadraceSink, Load, Run, Sink
from benchmarks.scale.flink import NAME, Flink, catalog, source
from benchmarks.scale.objects import Files, files_of, written_by_commits
from headrace_connectors.lakehouse import SparkLakehouse
from headrace_dev.jars import resolve
from headrace_dev.stack import Stack

FLINK_CHECKPOINT = 10_000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """Loads of Headrace, and whether Flink gets the first of them as well."""

    contestants: Sequence[str] = (HEADRACE, FLINK)
    tables: Sequence[int] = (50, 200)
    rate: int = 400
    seconds: int = 45
    keys: int = 100


FULL = Plan()
QUICK = Plan(tables=(4,), rate=40, seconds=10)


def run(plan: Plan, root: Path, properties: Mapping[str, str], say: Say, logs: Path) -> dict[str, Any]:
    """Measure all numbers of tables, each with a broker of its own. ``wrong_rows`` of the result must be 0."""
    results, wrong_rows = [], 0
    for count in plan.tables:
        for contestant in plan.contestants:
            if contestant == FLINK and count != plan.tables[0]:
                continue
            folder = root / f"{contestant}-{count}"
            folder.mkdir()
            with Stack("kafka", logs=logs, sustained=True) as stack:
                sink: Sink = (
                    HeadraceSink(stack.kafka, folder, properties)
                    if contestant == HEADRACE
                    else FlinkSink(stack.kafka.bootstrap_servers, folder)
                )
                result = _measure(Run(stack.kafka, sink, Load(count, plan.rate, plan.seconds, plan.keys)), sink)
            result = {
                "contestant": contestant,
                "name": sink.name,
                "tables": count,
                "rate": plan.rate,
                "keys": plan.keys,
                **result,
            }
            results.append(result)
            wrong_rows += result["wrong_rows"]
            say(
                f"{sink.name}: {count} tables, {plan.rate} changes/s: freshness p50 {result['p50_s']} s, p95 "
                f"{result['p95_s']} s, {result['cores']} cores, {result['cpu_ms_per_commit']} CPU ms, "
                f"{result['objects_per_commit']} objects and {result['bytes_per_commit']:,} bytes a commit, "
                f"{result['wrong_rows']} wrong rows"
            )
    return {"seconds_of_load": plan.seconds, "results": results, "wrong_rows": wrong_rows}


def _measure(run: Run, sink: Sink) -> dict[str, Any]:
    before: list[Files] = []
    outcome = run.run(on_load=lambda: before.append(files_of(sink.warehouse)))
    found = written_by_commits(before[0], files_of(sink.warehouse))
    p50, p95 = outcome.freshness.percentiles
    commits = outcome.freshness.commits
    return {
        "changes": len(outcome.freshness.ages),
        "commits": commits,
        "p50_s": round(p50, 2),
        "p95_s": round(p95, 2),
        "max_s": round(float(outcome.freshness.ages.max()), 2),
        "created_s": round(outcome.created, 1),
        "cores": round(outcome.cpu.total / outcome.seconds, 3),
        "cpu_ms_per_commit": round(1000 * outcome.cpu.total / commits),
        "objects_per_commit": round(found.objects / commits, 2),
        "bytes_per_commit": round(found.bytes / commits),
        "objects_by_kind": found.count,
        "wrong_rows": _wrong_rows(sink.warehouse, run.rows),
    }


class FlinkSink:
    """One job with a source, a table and an INSERT for each topic, as a user writes them by hand."""

    name = f"{NAME}, commits every {FLINK_CHECKPOINT // 1000} s"

    def __init__(self, bootstrap_servers: str, root: Path) -> None:
        self.warehouse = root / "warehouse"
        self._bootstrap_servers = bootstrap_servers
        self._flink = Flink(root, FLINK_CHECKPOINT)

    def start(self, topics: Sequence[str]) -> None:
        """Start the cluster and the job."""
        self._flink.start()
        statements = [catalog(self.warehouse), f"CREATE DATABASE IF NOT EXISTS lake.{CONNECTOR}"]
        inserts = []
        for topic in topics:
            table = topic.replace(".", "_")
            columns = "id BIGINT, name STRING, amount BIGINT, PRIMARY KEY (id) NOT ENFORCED"
            options = "'format-version'='2', 'write.upsert.enabled'='true'"
            statements.append(f"CREATE TABLE lake.{CONNECTOR}.{table} ({columns}) WITH ({options})")
            options = source(self._bootstrap_servers, topic)
            statements.append(f"CREATE TEMPORARY TABLE source_{table} ({columns}) WITH ({options})")
            inserts.append(f"INSERT INTO lake.{CONNECTOR}.{table} SELECT id, name, amount FROM source_{table};")
        self._flink.run([*statements, f"EXECUTE STATEMENT SET BEGIN {' '.join(inserts)} END"])

    def events(self, summary: Mapping[str, str], topic: str) -> int:
        """Return the deletes of the table: the sink writes one for each event."""
        return int(summary.get("total-equality-deletes", 0)) + int(summary.get("total-position-deletes", 0))

    def cpu(self) -> Cpu:
        return self._flink.cpu()

    def pids(self) -> Sequence[int]:
        return self._flink.pids

    def report(self) -> str:
        return self._flink.log_end()

    def stop(self) -> None:
        self._flink.stop()


def _wrong_rows(warehouse: Path, expected: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> int:
    """How many rows of all tables are missing, additional or different, as Spark reads them in a process of its own."""
    result = warehouse.parent / "rows.json"
    names = {topic.replace(".", "_"): rows for topic, rows in expected.items()}
    command = [sys.executable, "-m", "benchmarks.scale.tables", str(warehouse), str(result), *names]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the tables cannot be read:\n{done.stderr[-4000:]}")
    stored = json.loads(result.read_text())
    wrong = 0
    for name, rows in names.items():
        got = sorted(tuple(row) for row in stored[name])
        wanted = sorted((row["id"], row["name"], row["amount"]) for row in rows.values())
        wrong += len(set(wanted) ^ set(got)) + len(got) - len(set(got))
    return wrong


def main() -> None:
    """Write the rows of the named tables into a file."""
    warehouse, result, *names = sys.argv[1:]
    lakehouse = SparkLakehouse(warehouse, SPARK, resolve("lakehouse"))
    try:
        lakehouse.start()
        tables = {name: session().table(f"lake.{CONNECTOR}.{name}").select("id", "name", "amount") for name in names}
        rows = {name: [list(row) for row in table.collect()] for name, table in tables.items()}
    finally:
        lakehouse.close()
    Path(result).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
