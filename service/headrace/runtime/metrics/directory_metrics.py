"""Metrics of ``connectors.directory``. Only the leader has samples, because only the leader reads the folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.runtime.worker.connector_directory import ConnectorDirectory, EntryState


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
