"""The panels of the Grafana dashboard, in rows. Their queries refer to declared metrics.

The first row shows what is wrong; then come connectors, tables, reselect and workers.

Tests: ``tests/packaging/test_chart_monitoring.py``, ``tests/integration/test_monitoring.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.runtime.metrics import connect_declarations as connect
from headrace.runtime.metrics import declarations as declared
from headrace.runtime.metrics.declaration import Declaration

_TABLE = "{{connector}} {{table}}"
_WORKER = "{{pod}} {{instance}}"
_WINDOW = "5m"


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel. ``queries`` are pairs of expression and legend.

    ``alarm`` makes a panel of a single number, which is red from that value on. ``lower`` makes it red below instead.
    """

    title: str
    description: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    alarm: float | None = None
    lower: bool = False


class _Queries:
    """Selectors and aggregations for the workers and connectors that are chosen at the top of the dashboard."""

    def __init__(self, label: str) -> None:
        self._workers = f'{label}="${label}"'
        self._connectors = f'{self._workers},connector=~"$connector"'

    def of(self, metric: Declaration, part: str = "", **labels: str) -> str:
        """Return the selector of a metric."""
        scope = self._connectors if "connector" in metric.labels else self._workers
        return metric.query(scope, part, **labels)

    def rate(self, metric: Declaration, by: str, part: str = "", **labels: str) -> str:
        """Return the sum of the rates, by labels."""
        return f"sum by ({by}) (rate({self.of(metric, part, **labels)}[{_WINDOW}]))"

    def number(self, metric: Declaration, **labels: str) -> str:
        """Return the sum of a metric, 0 without series."""
        return f"sum({self.of(metric, **labels)}) or vector(0)"


def rows(label: str) -> Mapping[str, list[Panel]]:
    """Return the panels of each row by its title. ``label`` selects the workers."""
    q = _Queries(label)
    return {
        "What is wrong": _what_is_wrong(q),
        "Connectors": _connectors(q),
        "Tables": _tables(q),
        "Reselect": _reselect(q),
        "Workers": _workers(q),
    }


def _what_is_wrong(q: _Queries) -> list[Panel]:
    late = f"{q.of(declared.FRESHNESS)} > {q.of(declared.FRESHNESS_TARGET)}"
    return [
        Panel(
            "Failed tasks",
            "Tasks that need an operator",
            ((q.number(connect.TASK_STATUS, status="failed"), ""),),
            alarm=1,
        ),
        Panel(
            "Failed tables",
            "Tables that need an operator",
            ((q.number(declared.TABLE_STATE, state="FAILED"), ""),),
            alarm=1,
        ),
        Panel(
            "Retried tables",
            "Tables whose write is repeated",
            ((q.number(declared.TABLE_STATE, state="RETRYING"), ""),),
            alarm=1,
        ),
        Panel(
            "Late tables",
            "Tables that are further behind than their freshness target",
            ((f"count({late}) or vector(0)", ""),),
            alarm=1,
        ),
        Panel(
            "Oldest unwritten event",
            "Time for which it has waited in a worker",
            ((f"max({q.of(declared.OLDEST_UNWRITTEN)}) or vector(0)", ""),),
            "s",
            alarm=300,
        ),
        Panel(
            "Records that cannot be used",
            "In the last hour",
            ((f"sum(increase({q.of(connect.RECORD_FAILURES)}[1h])) or vector(0)", ""),),
            alarm=1,
        ),
        Panel(
            "Rows that differ",
            "By the last verification of each table",
            ((q.number(declared.VERIFY_DIFFERENCES), ""),),
            alarm=1,
        ),
        Panel(
            "Stale proofs",
            "Tables whose last proof is older than three times verify.interval.ms",
            (
                (
                    f"count({q.of(declared.VERIFY_AGE)} > on (connector) group_left () "
                    f"3 * max by (connector) ({q.of(declared.VERIFY_INTERVAL)})) or vector(0)",
                    "",
                ),
            ),
            alarm=1,
        ),
        Panel(
            "Workers without Spark",
            "They write no tables",
            ((f"count({q.of(declared.SPARK_UP)} == 0) or vector(0)", ""),),
            alarm=1,
        ),
        Panel(
            "Certificates that end",
            "Within 14 days",
            ((f"count({q.of(declared.CERTIFICATE_END)} - time() < 14 * 86400) or vector(0)", ""),),
            alarm=1,
        ),
        Panel("Workers", "Workers that answer", ((f"count({q.of(declared.INFO)})", ""),), alarm=1, lower=True),
    ]


def _connectors(q: _Queries) -> list[Panel]:
    return [
        Panel(
            "Lag",
            "Records that the group has not committed",
            ((f"sum by (connector, topic) ({q.of(declared.LAG)})", "{{connector}} {{topic}}"),),
        ),
        Panel(
            "Records",
            "Read from Kafka and written to tables, per second",
            (
                (q.rate(connect.RECORDS_READ, "connector"), "{{connector}} read"),
                (q.rate(connect.RECORDS_SENT, "connector"), "{{connector}} written"),
            ),
            "ops",
        ),
        Panel(
            "Tasks",
            "Tasks by state",
            ((f"sum by (connector, status) ({q.of(connect.TASK_STATUS)})", "{{connector}} {{status}}"),),
        ),
        Panel(
            "Utilization of stages",
            "Threads that each stage occupies: the seconds that it takes per second",
            ((q.rate(declared.STAGE_SECONDS, "connector, stage"), "{{connector}} {{stage}}"),),
        ),
        Panel(
            "Records that cannot be used",
            "Failures per second, and letters in the dead letter queue",
            (
                (q.rate(connect.RECORD_FAILURES, "connector"), "{{connector}} failed"),
                (q.rate(connect.DEAD_LETTERS, "connector"), "{{connector}} dead letters"),
            ),
            "ops",
        ),
        Panel(
            "Offset commits",
            "Successful commits per second",
            ((q.rate(connect.COMMITS, "connector"), "{{connector}}"),),
            "ops",
        ),
    ]


def _tables(q: _Queries) -> list[Panel]:
    by_table = "connector, table"
    return [
        Panel(
            "Freshness",
            "Time from source commit to visible row, beside its target",
            (
                (f"max by ({by_table}) ({q.of(declared.FRESHNESS)})", _TABLE),
                (f"min by ({by_table}) ({q.of(declared.FRESHNESS_TARGET)})", f"{_TABLE} target"),
            ),
            "s",
        ),
        Panel(
            "Events later than their freshness target",
            "Events that became visible after freshness.target.ms, per second",
            ((q.rate(declared.LATE_EVENTS, by_table), _TABLE),),
            "ops",
        ),
        Panel(
            "Commits",
            "Commits per hour",
            ((f"3600 * {q.rate(declared.BATCHES, by_table)}", _TABLE),),
        ),
        Panel(
            "Events written",
            "Change events per second",
            ((q.rate(declared.EVENTS, by_table), _TABLE),),
            "ops",
        ),
        Panel(
            "Time of a write",
            "95th percentile, from the close of a batch to its durable rows",
            (
                (
                    f"histogram_quantile(0.95, {q.rate(declared.WRITE_SECONDS, f'{by_table}, le', 'bucket')})",
                    _TABLE,
                ),
            ),
            "s",
        ),
        Panel(
            "States",
            "Tables by state",
            ((f"sum by (connector, state) ({q.of(declared.TABLE_STATE)})", "{{connector}} {{state}}"),),
        ),
        Panel(
            "Files",
            "Data files and delete files",
            ((f"max by ({by_table}) ({q.of(declared.TABLE_FILES)})", _TABLE),),
        ),
        Panel(
            "Bytes written",
            "By merges and by upkeep, per second",
            ((q.rate(declared.WRITTEN_BYTES, "connector, by"), "{{connector}} {{by}}"),),
            "Bps",
        ),
    ]


def _reselect(q: _Queries) -> list[Panel]:
    return [
        Panel(
            "Open cells",
            "Cells without a value per second, by the step that resolved them",
            ((q.rate(declared.RESELECT_RESOLVED, "connector, step"), "{{connector}} {{step}}"),),
            "ops",
        ),
        Panel(
            "Cache hits",
            "Share of the lookups in the column cache",
            (
                (
                    f"{q.rate(declared.CACHE_REQUESTS, 'connector', result='hit')} / "
                    f"{q.rate(declared.CACHE_REQUESTS, 'connector')} "
                    f"or 0 * {q.rate(declared.CACHE_REQUESTS, 'connector')}",
                    "{{connector}}",
                ),
            ),
            "percentunit",
        ),
        Panel(
            "SELECTs",
            "Per second, by result",
            ((q.rate(declared.RESELECT_QUERIES, "connector, result"), "{{connector}} {{result}}"),),
            "ops",
        ),
        Panel(
            "Memory of the cache",
            "Of each task",
            ((q.of(declared.CACHE_BYTES), "{{connector}} {{task}}"),),
            "bytes",
        ),
    ]


def _workers(q: _Queries) -> list[Panel]:
    return [
        Panel(
            "Memory of changes",
            "Changes that wait to be written, beside their limit",
            (
                (q.of(declared.CHANGES_BYTES), _WORKER),
                (q.of(declared.CHANGES_LIMIT), f"{_WORKER} limit"),
            ),
            "bytes",
        ),
        Panel(
            "Spark",
            "Spark of each worker",
            (
                (q.of(declared.SPARK_UP), f"{_WORKER} runs"),
                (f"increase({q.of(declared.SPARK_RESTARTS)}[1h])", f"{_WORKER} restarts in an hour"),
            ),
        ),
        Panel(
            "Connectors and tasks of each worker",
            "Balance of the group",
            (
                (q.of(connect.CONNECTOR_COUNT), f"{_WORKER} connectors"),
                (q.of(connect.TASK_COUNT), f"{_WORKER} tasks"),
            ),
        ),
        Panel(
            "CPU time by stage",
            "Cores that the worker's threads use, without Spark",
            ((q.rate(declared.STAGE_CPU_SECONDS, "stage"), "{{stage}}"),),
        ),
    ]
