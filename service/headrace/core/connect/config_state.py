"""The state of the config topic: connectors, target states and task configurations (``connect.md`` section 18).

Keys and values are those of Kafka Connect, so that its tools can read the topic: ``connector-<n>``,
``target-state-<n>``, ``task-<n>-<i>``, ``commit-<n>``, and two that are requests to running workers instead of state:
``restart-connector-<n>`` and ``logger-cluster-<l>``. ``headrace-owner-<n>`` is Headrace's own, which Connect's readers
ignore (``ownership.py``). Task configurations are valid after their commit record; without
it they are incomplete and are not returned. Compaction keeps the last record of each key at its own offset, so a commit
may come before its connector: no record may depend on the order of keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.core.connect.lifecycle import State, TargetState
from headrace.core.connect.ownership import Ownership, ownership

Config = dict[str, str]
KeyValue = tuple[str, bytes | None]
"""The key and value of a record of the config topic."""

MAX_TASKS = 100
"""The limit on the tasks of a connector, regardless of ``tasks.max`` and the records of the topic.

Each task is a member of the consumer group, and its record repeats the connector's configuration.
"""
_TASK_NUMBERS = frozenset(map(str, range(MAX_TASKS)))

_CONNECTOR, _TARGET, _TASK, _COMMIT = "connector-", "target-state-", "task-", "commit-"
_LOGGER, _RESTART, _OWNER = "logger-cluster-", "restart-connector-", "headrace-owner-"


@dataclass(frozen=True, slots=True)
class RestartRequest:
    """A request to restart a connector and its tasks (KIP-745)."""

    include_tasks: bool
    only_failed: bool

    def takes(self, state: State) -> bool:
        """Return whether to restart an instance in ``state``."""
        return not self.only_failed or state is State.FAILED

    def takes_task(self, state: State, *, failed_tables: bool = False) -> bool:
        """Return whether to restart a task in ``state``. A task with failed tables counts as failed."""
        return self.include_tasks and (failed_tables or self.takes(state))


class ClusterConfigState:
    """The state after the records of a config log. ``apply`` takes them in order."""

    __slots__ = ("_connectors", "_owners", "_pending", "_targets", "_tasks")

    def __init__(self) -> None:
        self._connectors: dict[str, Config] = {}
        self._owners: dict[str, Ownership] = {}
        self._targets: dict[str, TargetState] = {}
        self._tasks: dict[str, list[Config]] = {}
        self._pending: dict[str, dict[int, Config]] = {}

    def connectors(self) -> list[str]:
        """Return the names of all connectors, oldest first."""
        return list(self._connectors)

    def connector_config(self, name: str) -> Config | None:
        """Return a copy of the connector's configuration, None if the connector does not exist."""
        config = self._connectors.get(name)
        return None if config is None else dict(config)

    def owner(self, name: str) -> Ownership | None:
        """Return the stored owner of the connector; it may be that of a removed connector if ``name`` is unknown."""
        return self._owners.get(name)

    def target_state(self, name: str) -> TargetState:
        """Return the connector's target state; the default is STARTED."""
        return self._targets.get(name, TargetState.STARTED)

    def task_configs(self, name: str) -> list[Config]:
        """Return the committed configurations of the connector's tasks, by task number."""
        return [dict(config) for config in self._tasks.get(name, ())]

    def apply(self, key: str, value: bytes | None) -> str | None:
        """Apply a record. Return the connector that it changes, None if it changes none.

        Raises any exception for a record that is not in Connect's format. Task records beyond ``MAX_TASKS`` are
        ignored: the connector writes its tasks again when it starts.
        """
        document = None if value is None else json.loads(value)
        if key.startswith(_CONNECTOR):
            return self._apply_connector(key.removeprefix(_CONNECTOR), document)
        if key.startswith(_TARGET):
            return self._apply_target(key.removeprefix(_TARGET), document)
        if key.startswith(_TASK):
            name, _, number = key.removeprefix(_TASK).rpartition("-")
            if document is not None and number in _TASK_NUMBERS:
                self._pending.setdefault(name, {})[int(number)] = dict(document["properties"])
        if key.startswith(_COMMIT):
            return self._apply_commit(key.removeprefix(_COMMIT), document)
        if key.startswith(_OWNER):
            self._apply_owner(key.removeprefix(_OWNER), document)
        return None

    def _apply_connector(self, name: str, document: Any) -> str:
        if document is None:
            self._connectors.pop(name, None)
            self._tasks.pop(name, None)
            self._pending.pop(name, None)
        else:
            self._connectors[name] = dict(document["properties"])
        return name

    def _apply_owner(self, name: str, document: Any) -> None:
        if document is None:
            self._owners.pop(name, None)
        else:
            self._owners[name] = ownership(document)

    def _apply_target(self, name: str, document: Any) -> str:
        if document is None:
            self._targets.pop(name, None)
        else:
            # ``state`` is for workers older than KIP-875; ``state.v2`` distinguishes STOPPED from PAUSED.
            self._targets[name] = TargetState(document.get("state.v2") or document["state"])
        return name

    def _apply_commit(self, name: str, document: Any) -> str | None:
        if document is None:
            self._tasks.pop(name, None)
            return None
        pending = self._pending.pop(name, {})
        known = dict(enumerate(self._tasks.get(name, ()))) | pending
        count = min(int(document["tasks"]), MAX_TASKS)
        if any(number not in known for number in range(count)):
            return None  # compaction removed a task's record: the connector writes its tasks again when it starts
        self._tasks[name] = [known[number] for number in range(count)]
        return name


def connector_records(name: str, config: Mapping[str, str], target: TargetState | None = None) -> list[KeyValue]:
    """Return the records that create or change a connector; the target state comes first, as Connect writes it."""
    change = (_CONNECTOR + name, _encode({"properties": dict(config)}))
    return [change] if target is None else [target_state_record(name, target), change]


def owner_record(name: str, owner: Ownership | None) -> KeyValue:
    """Return the record that stores or removes the owner of a connector."""
    return _OWNER + name, None if owner is None else _encode(owner.document())


def removal_records(name: str, tasks: int, *, owned: bool = False) -> list[KeyValue]:
    """Return the records that remove a connector with ``tasks`` tasks and everything that is stored of it."""
    removed_tasks: list[KeyValue] = [(f"{_TASK}{name}-{number}", None) for number in range(tasks)]
    owner = [owner_record(name, None)] if owned else []
    return [(_CONNECTOR + name, None), (_TARGET + name, None), *removed_tasks, (_COMMIT + name, None), *owner]


def target_state_record(name: str, target: TargetState) -> KeyValue:
    """Return the record of a target state, in a form that workers older than KIP-875 also understand."""
    old = TargetState.PAUSED if target is TargetState.STOPPED else target
    return _TARGET + name, _encode({"state": old, "state.v2": target})


def task_records(name: str, configs: Sequence[Mapping[str, str]]) -> list[KeyValue]:
    """Return the records of a connector's tasks: one each, then their commit."""
    tasks: list[KeyValue] = [
        (f"{_TASK}{name}-{number}", _encode({"properties": dict(config)})) for number, config in enumerate(configs)
    ]
    return [*tasks, (_COMMIT + name, _encode({"tasks": len(configs)}))]


def logger_level_record(logger: str, level: str) -> KeyValue:
    """Return the record that sets a logger's level on every running worker (KIP-976)."""
    return _LOGGER + logger, _encode({"level": level})


def logger_level(key: str, value: bytes | None) -> tuple[str, str] | None:
    """Return the logger and the level of a ``logger_level_record``, None for any other record."""
    if not key.startswith(_LOGGER) or value is None:
        return None
    return key.removeprefix(_LOGGER), str(json.loads(value)["level"])


def restart_record(name: str, request: RestartRequest) -> KeyValue:
    """Return the record that requests every worker to restart its part of a connector."""
    return _RESTART + name, _encode({"include-tasks": request.include_tasks, "only-failed": request.only_failed})


def restart_request(key: str, value: bytes | None) -> tuple[str, RestartRequest] | None:
    """Return the connector and the flags of a ``restart_record``, None for any other record."""
    if not key.startswith(_RESTART) or value is None:
        return None
    document = json.loads(value)
    flags = RestartRequest(bool(document["include-tasks"]), bool(document["only-failed"]))
    return key.removeprefix(_RESTART), flags


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
