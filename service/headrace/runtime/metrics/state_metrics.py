"""Metrics of the states of connectors and tasks (``connect.md`` section 15), and of ``connectors.directory``.

The first have the names of Strimzi's dashboards. Only the leader reads the folder, and has samples of it.

Tests: ``tests/unit/runtime/metrics/test_connect_metrics.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.core.connect.lifecycle import State
from headrace.core.connect.status import Status
from headrace.runtime.metrics.connect_metrics import StartupCounts
from headrace.runtime.worker.connector_directory import ConnectorDirectory, EntryState
from headrace.runtime.worker.sink_connector import LakehouseSinkConnector
from headrace.runtime.worker.stores import ConfigStore, StatusStore, task_statuses

_COUNTED = (State.RUNNING, State.PAUSED, State.FAILED, State.UNASSIGNED, State.DESTROYED, State.RESTARTING)
_PREFIX = "kafka_connect_"


class StateCollector(Collector):
    """Reads the states from the stores at each scrape, in any thread.

    Each worker exposes only the connectors and tasks that it runs, so sums over all workers count each of them once.
    """

    def __init__(
        self,
        configs: ConfigStore,
        statuses: StatusStore,
        worker_id: str,
        connector_class: LakehouseSinkConnector,
        startups: StartupCounts | None = None,
    ) -> None:
        self._configs = configs
        self._statuses = statuses
        self._worker_id = worker_id
        self._connector_class = connector_class
        self._startups = startups or StartupCounts()

    def collect(self) -> Iterator[Metric]:
        """Return one sample per connector and per task, and the counts of both."""
        names = self._configs.state.connectors()
        tasks = [
            (name, task_number, seen.state)
            for name in names
            for task_number, seen in task_statuses(self._configs, self._statuses, name)
            if seen.worker_id == self._worker_id
        ]
        here = [name for name in names if self._connector(name) is not None]
        yield _gauge("worker_connector_count", "Connectors of this worker", len(here))
        yield _gauge("worker_task_count", "Tasks of this worker", len(tasks))
        yield from self._startups.collect()
        yield self._connector_states(here)
        yield from self._connector_infos(here)
        yield _task_states(tasks)
        yield from _task_counts(list(dict.fromkeys([*here, *(name for name, _, _ in tasks)])), tasks)

    def _connector(self, name: str) -> Status | None:
        seen = self._statuses.connector(name)
        return seen if seen is not None and seen.worker_id == self._worker_id else None

    def _connector_infos(self, names: list[str]) -> Iterator[GaugeMetricFamily]:
        """Return class, type and version, each as a label of a gauge that is 1."""
        versions = {name: seen.version for name in names if (seen := self._connector(name)) is not None}
        yield _info("class", {name: self._class_of(name) for name in names})
        yield _info("type", dict.fromkeys(names, "sink"))
        yield _info("version", versions)

    def _class_of(self, name: str) -> str | None:
        """Return the full class name, also if the configuration contains an alias."""
        config = self._configs.state.connector_config(name) or {}
        return self._connector_class.class_name if self._connector_class.runs(config) else config.get("connector.class")

    def _connector_states(self, names: list[str]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            f"{_PREFIX}connector_status", "State of each connector", labels=("connector", "status")
        )
        for name in names:
            seen = self._connector(name)
            if seen is not None:
                family.add_metric((name, seen.state.lower()), 1)
        return family


def _task_states(tasks: list[tuple[str, int, State]]) -> GaugeMetricFamily:
    labels = ("connector", "task", "status")
    family = GaugeMetricFamily(f"{_PREFIX}connector_task_status", "State of each task", labels=labels)
    for name, task_number, state in tasks:
        family.add_metric((name, str(task_number), state.lower()), 1)
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


def _info(what: str, values: Mapping[str, str | None]) -> GaugeMetricFamily:
    label = f"connector_{what}"
    family = GaugeMetricFamily(f"{_PREFIX}connector_{label}", f"The connector's {what}", labels=("connector", label))
    for name, value in values.items():
        if value is not None:
            family.add_metric((name, value), 1)
    return family


def _gauge(name: str, doc: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, doc, value)


class DirectoryCollector(Collector):
    """The result of the last round."""

    def __init__(self, directory: ConnectorDirectory) -> None:
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        """Return the connectors by state, the files with errors, and the time of the last round that read them."""
        report = self._directory.current()
        if report is None:
            return
        connectors = GaugeMetricFamily(
            "headrace_directory_connectors", "Connectors of connectors.directory by state", labels=("state",)
        )
        states = Counter(entry.state for entry in report.entries)
        for state in EntryState:
            connectors.add_metric((state,), states[state])
        yield connectors
        yield GaugeMetricFamily(
            "headrace_directory_invalid_files",
            "Files of connectors.directory that define no connector because of an error",
            len(report.files.problems),
        )
        yield GaugeMetricFamily(
            "headrace_directory_readable", "1 if the last round could read connectors.directory", not report.problem
        )
        yield CounterMetricFamily(
            "headrace_directory_corrections",
            "Configurations that were changed over REST and replaced by those of their files",
            self._directory.corrections,
        )
