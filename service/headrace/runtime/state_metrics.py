"""States of connectors and tasks as metrics, in the names of Strimzi's dashboards (``connect.md`` section 15)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.core.lifecycle import State
from headrace.runtime.stores import ConfigStore, StatusStore

_COUNTED = (State.RUNNING, State.PAUSED, State.FAILED, State.UNASSIGNED, State.DESTROYED, State.RESTARTING)
_PREFIX = "kafka_connect_"


class StateCollector(Collector):
    """Reads the stores when it is scraped, so that no state can be forgotten or left behind."""

    def __init__(self, configs: ConfigStore, statuses: StatusStore) -> None:
        self._configs = configs
        self._statuses = statuses

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One sample per connector, per task, and the counts of both."""
        names = self._configs.state.connectors()
        tasks = [(name, number, seen.state) for name in names for number, seen in self._statuses.tasks(name)]
        yield _gauge("worker_connector_count", "Connectors", len(names))
        yield _gauge("worker_task_count", "Tasks", len(tasks))
        yield self._connector_states(names)
        yield _task_states(tasks)
        yield from _task_counts(names, tasks)

    def _connector_states(self, names: list[str]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            f"{_PREFIX}connector_status", "State of each connector", labels=("connector", "status")
        )
        for name in names:
            seen = self._statuses.connector(name)
            if seen is not None:
                family.add_metric((name, seen.state.lower()), 1)
        return family


def _task_states(tasks: list[tuple[str, int, State]]) -> GaugeMetricFamily:
    labels = ("connector", "task", "status")
    family = GaugeMetricFamily(f"{_PREFIX}connector_task_status", "State of each task", labels=labels)
    for name, number, state in tasks:
        family.add_metric((name, str(number), state.lower()), 1)
    return family


def _task_counts(names: list[str], tasks: list[tuple[str, int, State]]) -> Iterator[GaugeMetricFamily]:
    counts = Counter((name, state) for name, _, state in tasks)
    for state in _COUNTED:
        title = f"{_PREFIX}worker_connector_{state.lower()}_task_count"
        family = GaugeMetricFamily(title, f"Tasks that are {state.lower()}", labels=("connector",))
        for name in names:
            family.add_metric((name,), counts[name, state])
        yield family
    family = GaugeMetricFamily(f"{_PREFIX}worker_connector_total_task_count", "Tasks", labels=("connector",))
    for name in names:
        family.add_metric((name,), sum(counts[name, state] for state in _COUNTED))
    yield family


def _gauge(name: str, doc: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, doc, value)
