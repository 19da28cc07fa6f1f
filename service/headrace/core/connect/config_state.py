"""The state of the config topic: connectors, target states and task configurations (``connect.md`` section 18).

Keys and values are those of Kafka Connect, so that its tools can read the topic: ``connector-<n>``,
``target-state-<n>``, ``task-<n>-<i>``, ``commit-<n>``, and two that are requests to running workers instead of state:
``restart-connector-<n>`` and ``logger-cluster-<l>``. Four are Headrace's own, which Connect's readers ignore:
``headrace-owner-<n>`` (``connector_plan.py``), ``headrace-paused-tables-<n>`` (``paused_tables.py``),
``headrace-replay-<n>`` (``dead_letters.py``) and ``headrace-resnapshots-<n>`` (``resnapshots.py``). Task
configurations are valid after their commit record; without it they are incomplete and are not returned. Compaction
keeps the last record of each key at its own offset, so a commit may come before its connector: no record may depend on
the order of keys.

Other tools write these records as well. A connector whose record is not usable exists, with the reason (``problem``),
so that it can be seen, repaired and removed. Any other record that is not usable is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from headrace.core.connect.connector_plan import Ownership, ownership
from headrace.core.connect.dead_letters import Replay, replay_of
from headrace.core.connect.lifecycle import State, TargetState
from headrace.core.connect.paused_tables import PausedTables, paused_tables, paused_tables_document
from headrace.core.connect.resnapshots import Requests, resnapshot_requests, resnapshot_requests_document
from headrace.core.connect.work import Task

Config = dict[str, str]
KeyValue = tuple[str, bytes | None]
"""The key and value of a record of the config topic."""

MAX_TASKS = 100
"""The limit on the tasks of a connector, regardless of ``tasks.max`` and the records of the topic.

Each task is a member of the consumer group, and its record repeats the connector's configuration.
"""
_TASK_NUMBERS = frozenset(map(str, range(MAX_TASKS)))
_NAMED_OPTIONS = 5
"""The options that a message names."""
_ABSENT = object()

_CONNECTOR, _TARGET, _TASK, _COMMIT = "connector-", "target-state-", "task-", "commit-"
_LOGGER, _RESTART = "logger-cluster-", "restart-connector-"
_OWNER, _PAUSED_TABLES = "headrace-owner-", "headrace-paused-tables-"
_REPLAY, _RESNAPSHOTS = "headrace-replay-", "headrace-resnapshots-"


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

    __slots__ = (
        "_connectors",
        "_listed",
        "_owners",
        "_paused",
        "_pending",
        "_problems",
        "_replays",
        "_resnapshots",
        "_targets",
        "_tasks",
    )

    def __init__(self) -> None:
        self._connectors: dict[str, Config] = {}
        self._problems: dict[str, str] = {}
        self._listed: dict[Task, None] = {}
        self._owners: dict[str, Ownership] = {}
        self._targets: dict[str, TargetState] = {}
        self._paused: dict[str, PausedTables] = {}
        self._replays: dict[str, Replay] = {}
        self._resnapshots: dict[str, Requests] = {}
        self._tasks: dict[str, list[Config]] = {}
        self._pending: dict[str, dict[int, Config]] = {}

    def connectors(self) -> list[str]:
        """Return the names of all connectors, oldest first."""
        return list(self._connectors)

    def has_connector(self, name: str) -> bool:
        return name in self._connectors

    def problem(self, name: str) -> str | None:
        """Return why the connector's record is not usable, and how to repair it; None for a usable one."""
        return self._problems.get(name)

    def connector_config(self, name: str) -> Config | None:
        """Return a copy of the connector's configuration, None if the connector does not exist.

        Of a record that is not usable, it has the options whose values are text.
        """
        config = self._connectors.get(name)
        return None if config is None else dict(config)

    def owner(self, name: str) -> Ownership | None:
        """Return the stored owner of the connector; it may be that of a removed connector if ``name`` is unknown."""
        return self._owners.get(name)

    def target_state(self, name: str) -> TargetState:
        """Return the connector's target state; the default is STARTED."""
        return self._targets.get(name, TargetState.STARTED)

    def paused_tables(self, name: str) -> PausedTables:
        """Return the stored tables that requests have paused; of a removed connector if ``name`` is unknown."""
        return self._paused.get(name, {})

    def replay(self, name: str) -> Replay | None:
        """Return the last replay of the connector's dead letters; of a removed connector if ``name`` is unknown."""
        return self._replays.get(name)

    def resnapshots(self, name: str) -> Requests:
        """Return the newest request for each table; of a removed connector if ``name`` is unknown."""
        return self._resnapshots.get(name, {})

    def connectors_with_resnapshots(self) -> list[str]:
        """Return the connectors that exist and have had a request for a resnapshot."""
        return [name for name in self._resnapshots if name in self._connectors]

    def task_configs(self, name: str) -> list[Config]:
        """Return the committed configurations of the connector's tasks, by task number."""
        return [dict(config) for config in self._tasks.get(name, ())]

    def task_count(self, name: str) -> int:
        return len(self._tasks.get(name, ()))

    def tasks(self) -> Set[Task]:
        """Return the committed tasks of all connectors that exist, as a view."""
        return self._listed.keys()

    def apply(self, key: str, value: bytes | None) -> str | None:
        """Apply a record. Return the connector that it changes, None if it changes none.

        Raises any exception for a record that is not in Connect's format, except that of a connector. Task records
        beyond ``MAX_TASKS`` are ignored: the connector writes its tasks again when it starts.
        """
        if key.startswith(_CONNECTOR):
            return self._apply_connector(key.removeprefix(_CONNECTOR), value)
        document = None if value is None else json.loads(value)
        if key.startswith(_TARGET):
            return self._apply_target(key.removeprefix(_TARGET), document)
        if key.startswith(_TASK):
            name, _, number = key.removeprefix(_TASK).rpartition("-")
            if document is not None and number in _TASK_NUMBERS:
                pending = self._pending.setdefault(name, {})
                pending.pop(int(number), None)
                pending[int(number)] = _usable(document)
        if key.startswith(_COMMIT):
            return self._apply_commit(key.removeprefix(_COMMIT), document)
        if key.startswith(_OWNER):
            self._apply_owner(key.removeprefix(_OWNER), document)
        if key.startswith(_PAUSED_TABLES):
            return self._apply_paused_tables(key.removeprefix(_PAUSED_TABLES), document)
        if key.startswith(_REPLAY):
            return self._apply_replay(key.removeprefix(_REPLAY), document)
        if key.startswith(_RESNAPSHOTS):
            self._apply_resnapshots(key.removeprefix(_RESNAPSHOTS), document)
        return None

    def _apply_connector(self, name: str, value: bytes | None) -> str:
        self._problems.pop(name, None)
        config, reason = _stored_config(value)
        if config is None:
            self._connectors.pop(name, None)
            self._tasks.pop(name, None)
            self._pending.pop(name, None)
        else:
            self._connectors[name] = config
            if reason is not None or not name:
                self._problems[name] = _problem(name, reason or "the connector's name is empty")
        self._list_tasks(name)
        return name

    def _list_tasks(self, name: str) -> None:
        for number in range(MAX_TASKS):
            if name in self._connectors and number < self.task_count(name):
                self._listed[name, number] = None
            elif self._listed.pop((name, number), _ABSENT) is _ABSENT:
                return  # tasks are listed from 0 without a gap

    def _apply_owner(self, name: str, document: Any) -> None:
        if document is None:
            self._owners.pop(name, None)
        else:
            owner = ownership(document)
            if not all(map(_is_text, owner.document().values())):
                raise ValueError("the owner is not Unicode text")
            self._owners[name] = owner

    def _apply_paused_tables(self, name: str, document: Any) -> str:
        if document is None:
            self._paused.pop(name, None)
        else:
            self._paused[name] = paused_tables(document)
        return name

    def _apply_replay(self, name: str, document: Any) -> str:
        if document is None:
            self._replays.pop(name, None)
        else:
            self._replays[name] = replay_of(document)
        return name

    def _apply_resnapshots(self, name: str, document: Any) -> None:
        if document is None:
            self._resnapshots.pop(name, None)
        else:
            self._resnapshots[name] = resnapshot_requests(document)

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
            self._list_tasks(name)
            return None
        pending = self._pending.pop(name, {})
        configs = dict(enumerate(self._tasks.get(name, ()))) | pending
        count = min(int(document["tasks"]), MAX_TASKS)
        if any(number not in configs for number in range(count)):
            return None  # compaction removed a task's record: the connector writes its tasks again when it starts
        self._tasks[name] = [configs[number] for number in range(count)]
        self._list_tasks(name)
        return name


def connector_records(name: str, config: Mapping[str, str], target: TargetState | None = None) -> list[KeyValue]:
    """Return the records that create or change a connector; the target state comes first, as Connect writes it."""
    change = (_CONNECTOR + name, _encode({"properties": dict(config)}))
    return [change] if target is None else [target_state_record(name, target), change]


def owner_record(name: str, owner: Ownership | None) -> KeyValue:
    return _OWNER + name, None if owner is None else _encode(owner.document())


def paused_tables_record(name: str, paused: PausedTables) -> KeyValue:
    """Return the record of the tables that requests have paused, which removes it if there are none."""
    return _PAUSED_TABLES + name, _encode(paused_tables_document(paused)) if paused else None


def replay_record(name: str, replay: Replay | None) -> KeyValue:
    return _REPLAY + name, None if replay is None else _encode(replay.document())


def resnapshots_record(name: str, requests: Requests) -> KeyValue:
    """Return the record of the requests for resnapshots, which removes it if there are none."""
    return _RESNAPSHOTS + name, _encode(resnapshot_requests_document(requests)) if requests else None


def removal_records(name: str, tasks: int, own: Sequence[KeyValue] = ()) -> list[KeyValue]:
    """Return the records that remove a connector with ``tasks`` tasks; ``own`` remove what Headrace stores of it."""
    removed_tasks: list[KeyValue] = [(f"{_TASK}{name}-{number}", None) for number in range(tasks)]
    return [(_CONNECTOR + name, None), (_TARGET + name, None), *removed_tasks, (_COMMIT + name, None), *own]


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


def _stored_config(value: bytes | None) -> tuple[Config | None, str | None]:
    """Return the options of a connector's record that are text, and why the record is not usable, if it is not.

    A record that removes the connector has no options. An option that is null is absent, as in a request.
    """
    try:
        document = None if value is None else json.loads(value)
    except (ValueError, RecursionError):
        return {}, "its value is not JSON"
    if document is None:
        return None, None
    properties = document.get("properties") if isinstance(document, dict) else None
    if not isinstance(properties, dict):
        return {}, 'its value is not an object with an object "properties"'
    given = {key: text for key, text in properties.items() if text is not None}
    config = {key: text for key, text in given.items() if _is_text(key) and _is_text(text)}
    others = [ascii(key)[1:-1] for key in given.keys() - config.keys()]
    if not others:
        return config, None
    more = f" and {len(others) - _NAMED_OPTIONS} more" if len(others) > _NAMED_OPTIONS else ""
    return config, f"these options are not Unicode text: {', '.join(sorted(others)[:_NAMED_OPTIONS])}{more}"


def _usable(document: Any) -> Config:
    """Return the configuration of a task's record. Raises ValueError and others for a record that is not usable."""
    config: Config = {key: text for key, text in document["properties"].items() if text is not None}
    if not all(map(_is_text, [*config, *config.values()])):
        raise ValueError("the configuration of a task contains options that are not text")
    return config


def _is_text(text: object) -> bool:
    """Return whether ``text`` is a string that an answer can contain: JSON may name half of a surrogate pair."""
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _problem(name: str, reason: str) -> str:
    if name:
        repair = f"PUT /connectors/{name}/config stores a usable one, DELETE /connectors/{name} removes the connector"
    else:
        repair = f"no request can address it: write a record with the key {_CONNECTOR} and a null value to this topic"
    shown = name or '""'
    return f"Connector {shown}: its record {_CONNECTOR}{name} in the config topic is not usable: {reason}; {repair}"


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
