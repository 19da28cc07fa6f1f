"""Kafka Connect's JSON bodies of answers (``connect.md`` sections 2 to 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.core.connect.config_def import ConfigInfos, ConfigKey
from headrace.core.connect.status import Status, notes_document, tables_document
from headrace.ports import TopicPartition
from headrace.runtime.worker.herder import ConnectorInfo, ConnectorStateInfo
from headrace.runtime.worker.loggers import LoggerLevel
from headrace.runtime.worker.sink_connector import PluginInfo

Json = dict[str, Any]


def connector_info(info: ConnectorInfo) -> Json:
    tasks = [{"connector": info.name, "task": task_number} for task_number in info.tasks]
    return {"name": info.name, "config": info.config, "tasks": tasks, "type": info.type}


def connector_state_info(info: ConnectorStateInfo) -> Json:
    """Return ``ConnectorStateInfo`` with the tasks sorted by number."""
    return {
        "name": info.name,
        "connector": _state(info.connector),
        "tasks": [task_state(task_number, seen) for task_number, seen in info.tasks],
        "type": info.type,
    }


def task_state(task_number: int, seen: Status) -> Json:
    """Return a task's state, with ``tables`` that do not run and ``notes`` on missing guarantees if there are any.

    These members and ``waits_for`` are Headrace's own. Clients ignore unknown members, as when Kafka Connect added
    ``version`` (KIP-891). With a ``trace`` instead, consoles would show a running task as failed.
    """
    notes = {"notes": notes_document(seen.notes)} if seen.notes else {}
    tables = {"tables": tables_document(seen.tables)} if seen.tables else {}
    return {"id": task_number, **_state(seen), **notes, **tables}


def task_infos(name: str, configs: Sequence[Mapping[str, str]]) -> list[Json]:
    return [
        {"id": {"connector": name, "task": task_number}, "config": config} for task_number, config in enumerate(configs)
    ]


def connector_offsets(offsets: Mapping[TopicPartition, int]) -> Json:
    """Return the answer of ``/offsets`` for a sink (KIP-875)."""
    entries = [
        {
            "partition": {"kafka_topic": partition.topic, "kafka_partition": partition.partition},
            "offset": {"kafka_offset": offset},
        }
        for partition, offset in sorted(offsets.items())
    ]
    return {"offsets": entries}


def plugin_info(plugin: PluginInfo) -> Json:
    return {"class": plugin.class_name, "type": plugin.type, "version": plugin.version}


def logger_level(level: LoggerLevel) -> Json:
    return {"level": level.level, "last_modified": level.last_modified}


def config_infos(infos: ConfigInfos) -> Json:
    """Return ``ConfigInfos``, the answer of a validation."""
    return {
        "name": infos.name,
        "error_count": infos.error_count,
        "groups": list(infos.groups),
        "configs": [
            {
                "definition": config_key_info(info.definition),
                "value": {
                    "name": info.value.name,
                    "value": info.value.value,
                    "recommended_values": list(info.value.recommended_values),
                    "errors": list(info.value.errors),
                    "visible": info.value.visible,
                },
            }
            for info in infos.configs
        ],
    }


def config_key_info(key: ConfigKey) -> Json:
    return {
        "name": key.name,
        "type": key.type,
        "required": key.required,
        "default_value": key.default_text,
        "importance": key.importance,
        "documentation": key.doc,
        "group": key.group,
        "order_in_group": key.order,
        "width": key.width,
        "display_name": key.display_name or key.name,
        "dependents": [],
    }


def _state(seen: Status) -> Json:
    state: Json = {"state": seen.state, "worker_id": seen.worker_id}
    if seen.version is not None:
        state["version"] = seen.version
    if seen.trace:
        state["trace"] = seen.trace
    if seen.waits_for is not None:
        state["waits_for"] = seen.waits_for
    return state
