"""Metrics of states: connectors and tasks (``connect.md`` section 15), ``connectors.directory``, and certificates.

The first have the names of Strimzi's dashboards. Only the leader reads the folder, and has samples of it.

Tests: ``tests/unit/runtime/metrics/test_connect_metrics.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headrace.config.tls import certificate_ends
from headrace.core.connect.lifecycle import State
from headrace.core.connect.status import Status
from headrace.runtime.metrics import connect_declarations as declared
from headrace.runtime.metrics import declarations
from headrace.runtime.metrics.connect_metrics import StartupCounts
from headrace.runtime.metrics.declaration import Declaration
from headrace.runtime.metrics.exposition import family
from headrace.runtime.worker.connector_directory import ConnectorDirectory, EntryState
from headrace.runtime.worker.sink_connector import LakehouseSinkConnector
from headrace.runtime.worker.stores import ConfigStore, StatusStore, task_statuses
from headrace.runtime.worker.timeline import Timeline


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
        yield family(declared.CONNECTOR_COUNT, [((), len(here))])
        yield family(declared.TASK_COUNT, [((), len(tasks))])
        yield from self._startups.collect()
        states = [(name, seen.state.lower()) for name in here if (seen := self._connector(name)) is not None]
        yield family(declared.CONNECTOR_STATUS, [(labels, 1) for labels in states])
        yield from self._connector_infos(here)
        yield family(declared.TASK_STATUS, [((name, str(number), state.lower()), 1) for name, number, state in tasks])
        yield from _task_counts(list(dict.fromkeys([*here, *(name for name, _, _ in tasks)])), tasks)

    def _connector(self, name: str) -> Status | None:
        seen = self._statuses.connector(name)
        return seen if seen is not None and seen.worker_id == self._worker_id else None

    def _connector_infos(self, names: list[str]) -> Iterator[Metric]:
        """Return class, type and version, each as a label of a gauge that is 1."""
        versions = {name: seen.version for name in names if (seen := self._connector(name)) is not None}
        yield _info(declared.CONNECTOR_CLASS, {name: self._class_of(name) for name in names})
        yield _info(declared.CONNECTOR_TYPE, dict.fromkeys(names, "sink"))
        yield _info(declared.CONNECTOR_VERSION, versions)

    def _class_of(self, name: str) -> str | None:
        """Return the full class name, also if the configuration contains an alias."""
        config = self._configs.state.connector_config(name) or {}
        return self._connector_class.class_name if self._connector_class.runs(config) else config.get("connector.class")


def _task_counts(names: list[str], tasks: list[tuple[str, int, State]]) -> Iterator[Metric]:
    counts = Counter((name, state) for name, _, state in tasks)
    for state, gauge in declared.TASKS_IN_STATE.items():
        yield family(gauge, [((name,), counts[name, state]) for name in names])
    totals = [((name,), sum(counts[name, state] for state in declared.TASKS_IN_STATE)) for name in names]
    yield family(declared.TASKS_TOTAL, totals)


def _info(gauge: Declaration, values: Mapping[str, str | None]) -> Metric:
    return family(gauge, [((name, value), 1) for name, value in values.items() if value is not None])


class DirectoryCollector(Collector):
    """The result of the last round."""

    def __init__(self, directory: ConnectorDirectory) -> None:
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        """Return the connectors by state, the files with errors, and the time of the last round that read them."""
        report = self._directory.current()
        if report is None:
            return
        states = Counter(entry.state for entry in report.entries)
        yield family(declarations.DIRECTORY_CONNECTORS, [((state,), states[state]) for state in EntryState])
        yield family(declarations.DIRECTORY_INVALID, [((), len(report.files.problems))])
        yield family(declarations.DIRECTORY_READABLE, [((), not report.problem)])
        yield family(declarations.DIRECTORY_CORRECTIONS, [((), self._directory.corrections)])


class TimelineCollector(Collector):
    """Events that are missing in the timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def collect(self) -> Iterator[Metric]:
        """Return how many events this worker has dropped."""
        yield family(declarations.TIMELINE_DROPPED, [((), self._timeline.dropped)])


class CertificateCollector(Collector):
    """When the certificates end with which this process proves itself."""

    def collect(self) -> Iterator[Metric]:
        """Return the ends of now. Key stores whose files have changed are read again."""
        yield family(declarations.CERTIFICATE_END, [((name,), end) for name, end in certificate_ends().items()])
