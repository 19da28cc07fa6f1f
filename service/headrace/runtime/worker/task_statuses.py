"""The statuses of tasks as operators see them, in the REST API and in the metrics (``errors.isolation.status``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.config.sink_options import IsolationSettings
from headrace.core.connect.status import Status
from headrace.core.connect.typed_options import parsed
from headrace.core.model.errors import ConfigError
from headrace.runtime.worker.stores import ConfigStore, StatusStore


def task_statuses(configs: ConfigStore, statuses: StatusStore, name: str) -> Sequence[tuple[int, Status]]:
    """Return the statuses of the connector's tasks, by number.

    The stored state of a task stays RUNNING while a table of it has failed: a restart, a pause and the supervision of
    the task depend on what the task does.
    """
    seen = statuses.tasks(name)
    if not any(each.has_failed_tables for _, each in seen):
        return seen
    if not _shows_failed(configs.state.connector_config(name) or {}):
        return seen
    return [(task_number, each.with_failed_tables()) for task_number, each in seen]


def _shows_failed(config: Mapping[str, str]) -> bool:
    """Return the option's value, and its default for a configuration whose value is invalid or not resolved here."""
    try:
        return parsed(IsolationSettings, config).shows_failed
    except ConfigError:
        return IsolationSettings().shows_failed
