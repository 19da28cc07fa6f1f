"""The OpenAPI description for ``/docs`` and ``/openapi.json``: one entry per request, with its body and answers.

FastAPI provides the paths and their parameters. It cannot derive bodies and answers, because ``bodies.py`` parses
bodies with Kafka Connect's rules and not as Python types. ``openapi_examples.py`` has the examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fastapi import FastAPI

from headrace.core.batch.batch import Trigger
from headrace.core.connect.connector_plan import Action
from headrace.core.connect.dead_letters import ReplayState
from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.resnapshots import ResnapshotState
from headrace.core.connect.timeline import EVENTS, Kind, TriggerType
from headrace.core.doctor.findings import Severity
from headrace.rest.openapi_examples import ANSWERS, BODIES, ERROR, PATHS
from headrace.rest.timeline import DEFAULT_LIMIT

Json = dict[str, Any]
Answers = Mapping[int, tuple[str, Json | None]]

_TEXT: Json = {"type": "string"}
_NUMBER: Json = {"type": "integer"}
_FLAG: Json = {"type": "boolean"}
_RATE: Json = {"type": "number"}
_STATE: Json = {"enum": ["UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED", "DESTROYED"]}
_LEVEL: Json = {"enum": ["OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL"]}


def _object(required: Mapping[str, Json], optional: Mapping[str, Json] | None = None) -> Json:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required)}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _map(values: Json) -> Json:
    return {"type": "object", "additionalProperties": values}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


_SCALAR: Json = {"type": ["string", "number", "boolean", "null"]}
_SEEN = {"state": _STATE, "worker_id": _TEXT}
_MAYBE = {"version": _TEXT, "trace": _TEXT}
_NOTES = _list(_object({"note": _TEXT, "where": _list(_TEXT)}))
_TABLE_STATE: Json = {"type": "string", "enum": list(TableState)}
_TABLES = _list(
    _object(
        {"table": _TEXT, "state": _TABLE_STATE, "trace": _TEXT, "since": _TEXT},
        {"next_attempt": _TEXT, "topics": _list(_TEXT), "recreate": _FLAG},
    )
)
_NULLABLE: Json = {"type": ["string", "null"]}
_LETTER_COUNTS: Mapping[str, Json] = {
    "letters": _NUMBER,
    "reasons": _list(_object({"topic": _TEXT, "reason": _TEXT, "count": _NUMBER})),
    **dict.fromkeys(("more_reasons", "too_old", "without_coordinate"), _NUMBER),
    "other_connectors": _list(_object({"connector": _TEXT, "count": _NUMBER})),
}
_MESSAGE = _object({"message": _TEXT})
SCHEMAS: Mapping[str, Json] = {
    "Error": _object({"error_code": _NUMBER, "message": _TEXT}),
    "Config": _map(_TEXT),
    "ConfigGiven": _map(_SCALAR),
    "CreateConnectorRequest": {
        **_object(
            {"name": _TEXT, "config": _ref("ConfigGiven")},
            {"initial_state": {"enum": ["RUNNING", "PAUSED", "STOPPED"]}},
        ),
        "additionalProperties": False,
    },
    "ConnectorTaskId": _object({"connector": _TEXT, "task": _NUMBER}),
    "ConnectorInfo": _object(
        {"name": _TEXT, "config": _ref("Config"), "tasks": _list(_ref("ConnectorTaskId")), "type": _TEXT}
    ),
    "TaskState": _object({"id": _NUMBER, **_SEEN}, {**_MAYBE, "waits_for": _TEXT, "notes": _NOTES, "tables": _TABLES}),
    "ConnectorStateInfo": _object(
        {"name": _TEXT, "connector": _object(_SEEN, _MAYBE), "tasks": _list(_ref("TaskState")), "type": _TEXT}
    ),
    "TaskInfo": _object({"id": _ref("ConnectorTaskId"), "config": _ref("Config")}),
    "ConnectorOffsets": {
        **_object(
            {
                "offsets": _list(
                    _object(
                        {"partition": _object({"kafka_topic": _TEXT, "kafka_partition": _NUMBER})},
                        {"offset": {"anyOf": [_object({"kafka_offset": _NUMBER}), {"type": "null"}]}},
                    )
                )
            }
        ),
        "additionalProperties": False,
    },
    "TableReport": _object(
        {
            **{"table": _TEXT, "task": _NUMBER, "state": _TABLE_STATE, "topics": _list(_TEXT)},
            "freshness_seconds": {"type": ["number", "null"]},
            "waiting": _object({"events": _NUMBER, "bytes": _NUMBER}),
        },
        {
            "freshness_target_seconds": {"type": "number"},
            "waits_for": _TEXT,
            "last_batch": _object(
                {"events": _NUMBER, "bytes": _NUMBER, "seconds": {"type": "number"}, "committed": _TEXT},
                {"source_time": _TEXT},
            ),
            "load": _object(
                {"rows": _NUMBER, "remaining": _NUMBER, "rows_per_second": {"type": "number"}, "began": _TEXT},
                {"estimated_end": _TEXT, "ended": _TEXT},
            ),
            "last_error": _object({"state": _TABLE_STATE, "trace": _TEXT, "since": _TEXT}, {"next_attempt": _TEXT}),
        },
    ),
    "TableDetails": {
        "allOf": [
            _ref("TableReport"),
            _object(
                {
                    "batches": _list(
                        _object(
                            {
                                **{"events": _NUMBER, "bytes": _NUMBER, "seconds": _RATE, "committed": _TEXT},
                                **{"closed_by": {"enum": list(Trigger)}, "operations": _map(_NUMBER)},
                                "offsets": _list(
                                    _object({"topic": _TEXT, "partition": _NUMBER, "next_offset": _NUMBER})
                                ),
                            },
                            {"source_time": _TEXT},
                        )
                    ),
                    "operations": _map(_NUMBER),
                    "schema_changes": _list(
                        _object(
                            {"at": _TEXT, "change": {"enum": ["created", "added", "removed", "retyped"]}},
                            {"column": _TEXT, "type": _TEXT, "earlier_type": _TEXT},
                        )
                    ),
                },
                {
                    "watermark": _TEXT,
                    "columns": _list(_object({"name": _TEXT, "type": _TEXT})),
                    "files": _object(
                        dict.fromkeys(("data_files", "delete_files", "bytes", "rows", "deleted_rows"), _NUMBER)
                    ),
                    "last_compaction": _TEXT,
                    "reselect": _object(
                        {
                            **dict.fromkeys(("cells", "cache_requests", "queries"), _map(_NUMBER)),
                            **{"rows_requested": _NUMBER, "rows_not_found": _NUMBER},
                        }
                    ),
                },
            ),
        ]
    },
    "TaskFlow": _object(
        {
            **{"task": _NUMBER, "worker_id": _TEXT, "lag_records": _NUMBER},
            **{f"{flow}_per_second": _RATE for flow in ("records_read", "rows_reselected", "changes_written")},
            "busy_threads": _map(_RATE),
        }
    ),
    "WorkerInfo": _object(
        {
            **{"worker_id": _TEXT, "version": _TEXT, "leader": _FLAG, "tasks": _NUMBER, "waits_for": _NULLABLE},
            "memory": _object({"used_bytes": _NUMBER, "available_bytes": _NUMBER}),
        }
    ),
    "TimelineEvent": _object(
        {
            **{"time": _TEXT, "kind": {"enum": list(Kind)}, "text": _TEXT, "worker_id": _TEXT},
            "by": _object({"type": {"enum": list(TriggerType)}}, {"method": _TEXT, "path": _TEXT, "user": _TEXT}),
        },
        {"connector": _TEXT, "task": _NUMBER, "table": _TEXT, "count": _NUMBER, "since": _TEXT},
    ),
    "Owner": _object({"owner": _NULLABLE, "source": _NULLABLE, "drifted": {"type": ["boolean", "null"]}}),
    "Diagnosis": _object(
        {
            "findings": _list(
                _object(
                    {
                        **{"rule": _TEXT, "severity": {"enum": [severity.name for severity in Severity]}},
                        **{"subject": _TEXT, "consequence": _TEXT, "evidence": _TEXT, "remedy": _TEXT},
                    }
                )
            ),
            "not_checked": _list(_TEXT),
        }
    ),
    "DeadLetters": _object(
        {
            **{"connector": _TEXT, "queue": _TEXT, "records_read": _NUMBER, "complete": _FLAG, **_LETTER_COUNTS},
            "newest": _list(
                _object(
                    {
                        **{"topic": _TEXT, "partition": _NUMBER, "offset": _NUMBER, "time": _NULLABLE},
                        **{"reason": _TEXT, "error": _NULLABLE, "class": _TEXT, "task": _TEXT},
                        **{"headers": _list(_TEXT), "too_old": _FLAG},
                        **{"queue_partition": _NUMBER, "queue_offset": _NUMBER},
                    }
                )
            ),
        }
    ),
    "Replay": _object(
        {
            **{"connector": _TEXT, "run": _TEXT, "state": {"enum": list(ReplayState)}},
            **{"dry_run": _FLAG, "old": _FLAG, "worker_id": _TEXT, "began": _TEXT, "ended": _NULLABLE},
            **{"pauses": _FLAG, "counts": {"anyOf": [_object(_LETTER_COUNTS), {"type": "null"}]}, "sent": _NUMBER},
            "refused": _list(
                _object(
                    {"topic": _TEXT, "partition": _NUMBER, "offset": _NUMBER, "stage": _TEXT, "error": _TEXT},
                )
            ),
            **{"refused_count": _NUMBER, "error": _NULLABLE},
        }
    ),
    "Directory": _object(
        {
            **{"worker_id": _TEXT, "directory": _TEXT, "read": _NULLABLE, "dry_run": _FLAG, "problem": _NULLABLE},
            "files": _list(_object({"file": _TEXT, "connector": _NULLABLE, "problem": _TEXT})),
            "ignored": _list(_TEXT),
            "connectors": _list(
                _object(
                    {
                        **{"connector": _TEXT, "file": _NULLABLE},
                        "state": {"enum": ["IN_SYNC", "PENDING", "DRIFTED", "CONFLICT", "FAILED", "KEPT"]},
                        "action": {"enum": [str(action) for action in Action]},
                        **{"options": _list(_TEXT), "drifted": _FLAG, "message": _NULLABLE},
                    }
                )
            ),
        }
    ),
    "Resnapshot": _object(
        {
            **dict.fromkeys(("table", "source_table", "topic", "requested"), _TEXT),
            "state": {"enum": [str(state) for state in ResnapshotState]},
        },
        {
            **dict.fromkeys(("updated", "step", "waits_for", "error", "estimated_end"), _TEXT),
            **dict.fromkeys(("rows", "total_rows", "chunks", "total_chunks", "records_left"), _NUMBER),
            **dict.fromkeys(("compared_rows", "differing_rows", "repaired_rows"), _NUMBER),
        },
    ),
    "PluginInfo": _object({"class": _TEXT, "type": _TEXT}, {"version": _TEXT}),
    "ConfigKeyInfo": _object(
        {
            **dict.fromkeys(("name", "type", "importance", "documentation", "width", "display_name"), _TEXT),
            **{"required": _FLAG, "default_value": _NULLABLE, "group": _NULLABLE},
            **{"order_in_group": _NUMBER, "dependents": _list(_TEXT)},
        }
    ),
    "ConfigValueInfo": _object(
        {
            **{"name": _TEXT, "value": _NULLABLE, "visible": _FLAG},
            **{"recommended_values": _list(_TEXT), "errors": _list(_TEXT)},
        }
    ),
    "ConfigInfos": _object(
        {
            **{"name": _TEXT, "error_count": _NUMBER, "groups": _list(_TEXT)},
            "configs": _list(_object({"definition": _ref("ConfigKeyInfo"), "value": _ref("ConfigValueInfo")})),
        }
    ),
    "Preview": _object(
        {
            **dict.fromkeys(("format", "catalog", "namespace"), _TEXT),
            "topics": _list(_object({"topic": _TEXT, "partitions": _NUMBER, "table": _NULLABLE, "problem": _NULLABLE})),
            **{"more_topics": _NUMBER, "missing": _list(_TEXT), "names_from_records": _NULLABLE},
        }
    ),
    "LoggerLevel": _object({"level": _LEVEL, "last_modified": {"type": ["integer", "null"]}}),
}


class Tag(StrEnum):
    """A group of requests on the page."""

    CONNECTORS = "Connectors"
    STATES = "States"
    TABLES = "Tables"
    DEAD_LETTERS = "Dead letters"
    OFFSETS = "Offsets"
    AS_CODE = "Connectors as code"
    PLUGINS = "Plug-ins"
    WORKER = "Worker"
    LOGGERS = "Log levels"
    INTERNAL = "Internal"


TAGS: Mapping[Tag, str] = {
    Tag.CONNECTORS: "Create, read, change and remove connectors",
    Tag.STATES: "States of connectors and tasks: read them, pause, resume, stop and restart",
    Tag.TABLES: "The lake tables of the connectors, which Kafka Connect does not know",
    Tag.DEAD_LETTERS: "Records that a connector could not use, and their replay, which Kafka Connect does not know",
    Tag.OFFSETS: "Committed offsets of a connector's consumer group",
    Tag.AS_CODE: "Connectors that are defined in files (connectors.directory, headrace apply)",
    Tag.PLUGINS: "Connector classes and their options, and the validation of a configuration",
    Tag.WORKER: "Version, probes and metrics of this worker",
    Tag.LOGGERS: "Levels of the worker's loggers",
    Tag.INTERNAL: "Requests that only Kafka Connect's own workers send to each other",
}
"""The description of each group, in the order of the page."""


@dataclass(frozen=True, slots=True)
class RestOperation:
    """One request. ``query`` has the parameters by name, each with its schema and description."""

    tag: Tag
    summary: str
    answers: Answers
    body: Json | None = None
    query: Mapping[str, tuple[Json, str]] = field(default_factory=dict)
    needs_body: bool = True


def _query(**parameters: tuple[Json, str]) -> Mapping[str, tuple[Json, str]]:
    return parameters


_INFO, _STATES = _ref("ConnectorInfo"), _ref("ConnectorStateInfo")
_CONFIG = _ref("ConfigGiven")
_DONE = "Accepted; the worker applies it asynchronously"
_REFUSED = "Internal request between workers of Kafka Connect; always refused (400)"
_PROBE = _object({"status": _TEXT, "message": _TEXT})
_EXPANDED = _map(_object({}, {"info": _INFO, "status": _STATES, "owner": _ref("Owner")}))
_AS_OWNER = _query(
    owner=(_TEXT, "Make the change as this owner of connectors as code; 409 if the connector is not its own"),
    source=(_TEXT, "File that the change comes from"),
)
_TIMELINE = _query(
    limit=({"type": "integer", "minimum": 1, "maximum": EVENTS, "default": DEFAULT_LIMIT}, "The most events to return"),
    kind=(_list({"enum": list(Kind)}), "Only events of this kind; may be repeated"),
    table=(_TEXT, "Only events of this table"),
)

OPERATIONS: Mapping[str, RestOperation] = {
    "get /": RestOperation(
        Tag.WORKER,
        "Version and Kafka cluster id",
        {200: ("Versions and cluster", _object({"version": _TEXT, "commit": _TEXT, "kafka_cluster_id": _NULLABLE}))},
    ),
    "get /health": RestOperation(
        Tag.WORKER,
        "Readiness of the worker, independent of failed connectors",
        {status: (text, _PROBE) for status, text in ((200, "Ready"), (500, "Stuck"), (503, "Starting or stopping"))},
    ),
    "get /health/live": RestOperation(
        Tag.WORKER,
        "Whether the worker makes progress; if not, restart it",
        {status: (text, _PROBE) for status, text in ((200, "It does"), (503, "It does not; message contains why"))},
    ),
    "get /health/ready": RestOperation(
        Tag.WORKER,
        "Whether the worker answers requests and Spark runs",
        {status: (text, _PROBE) for status, text in ((200, "Ready"), (503, "Not ready; message contains why"))},
    ),
    "get /workers": RestOperation(
        Tag.WORKER,
        "This worker and the others that have tasks, with their memory",
        {200: ("Workers", _list(_ref("WorkerInfo")))},
    ),
    "get /metrics": RestOperation(Tag.WORKER, "Metrics for Prometheus", {200: ("Text exposition", {})}),
    "get /connectors": RestOperation(
        Tag.CONNECTORS,
        "All connectors",
        {200: ("Names; with expand, a map of views by name", {"anyOf": [_list(_TEXT), _EXPANDED]})},
        query=_query(expand=(_list({"enum": ["info", "status", "owner"]}), "Views to include; may be repeated")),
    ),
    "post /connectors": RestOperation(
        Tag.CONNECTORS,
        "Create a connector",
        {201: ("Created", _INFO)},
        body=_ref("CreateConnectorRequest"),
        query=_AS_OWNER,
    ),
    "get /connectors/{name}": RestOperation(
        Tag.CONNECTORS, "A connector with its configuration and tasks", {200: ("The connector", _INFO)}
    ),
    "delete /connectors/{name}": RestOperation(
        Tag.CONNECTORS,
        "Remove a connector; its group's offsets stay",
        {204: ("Removed", None)},
        query=_query(owner=_AS_OWNER["owner"]),
    ),
    "get /connectors/{name}/config": RestOperation(
        Tag.CONNECTORS, "Configuration of a connector, as submitted", {200: ("Values by key", _ref("Config"))}
    ),
    "put /connectors/{name}/config": RestOperation(
        Tag.CONNECTORS,
        "Replace the configuration of a connector, or create the connector",
        {200: ("Replaced", _INFO), 201: ("Created", _INFO)},
        body=_CONFIG,
        query=_AS_OWNER,
    ),
    "patch /connectors/{name}/config": RestOperation(
        Tag.CONNECTORS,
        "Change some keys of the configuration; null removes a key",
        {200: ("Changed", _INFO)},
        body=_CONFIG,
    ),
    "get /connectors/{name}/owner": RestOperation(
        Tag.AS_CODE, "What created the connector from a file, null if nothing did", {200: ("Owner", _ref("Owner"))}
    ),
    "put /connectors/{name}/owner": RestOperation(
        Tag.AS_CODE,
        "Give a connector to an owner, which may then change and delete it",
        {200: ("Owner", _ref("Owner"))},
        body=_object({"owner": _TEXT}),
    ),
    "delete /connectors/{name}/owner": RestOperation(
        Tag.AS_CODE, "Release a connector from its owner; the connector stays", {204: ("Released", None)}
    ),
    "get /connectors/{name}/topics": RestOperation(
        Tag.CONNECTORS,
        "Topics that a connector has read",
        {200: ("By connector", _map(_object({"topics": _list(_TEXT)})))},
    ),
    "put /connectors/{name}/topics/reset": RestOperation(
        Tag.CONNECTORS, "Empty the list of topics", {202: ("Accepted", None)}
    ),
    "get /connectors/{name}/offsets": RestOperation(
        Tag.OFFSETS, "Committed offsets of a connector's group", {200: ("By partition", _ref("ConnectorOffsets"))}
    ),
    "patch /connectors/{name}/offsets": RestOperation(
        Tag.OFFSETS,
        "Set offsets of a stopped connector; null removes an offset",
        {200: ("Altered", _MESSAGE)},
        body=_ref("ConnectorOffsets"),
    ),
    "delete /connectors/{name}/offsets": RestOperation(
        Tag.OFFSETS, "Remove the offsets of a stopped connector", {200: ("Reset", _MESSAGE)}
    ),
    "get /connectors/{name}/status": RestOperation(
        Tag.STATES, "States of a connector and its tasks", {200: ("States", _STATES)}
    ),
    "put /connectors/{name}/pause": RestOperation(
        Tag.STATES, "Pause a connector; it stays in its group", {202: (_DONE, None)}
    ),
    "put /connectors/{name}/resume": RestOperation(
        Tag.STATES, "Resume a paused or stopped connector", {202: (_DONE, None)}
    ),
    "put /connectors/{name}/stop": RestOperation(
        Tag.STATES, "Stop a connector; it leaves its group and has no tasks", {204: (_DONE, None)}
    ),
    "post /connectors/{name}/restart": RestOperation(
        Tag.STATES,
        "Restart a connector, with a flag also its tasks",
        {202: ("With a flag: what will restart", _STATES), 204: ("Without: the connector alone", None)},
        query=_query(
            includeTasks=(_FLAG, "Whether to restart its tasks as well"),
            onlyFailed=(_FLAG, "Whether to restart only what has failed"),
        ),
    ),
    "get /connectors/{name}/tasks": RestOperation(
        Tag.CONNECTORS, "Configurations of a connector's tasks", {200: ("Tasks", _list(_ref("TaskInfo")))}
    ),
    "post /connectors/{name}/tasks": RestOperation(Tag.INTERNAL, _REFUSED, {}, body=_list(_CONFIG)),
    "put /connectors/{name}/fence": RestOperation(Tag.INTERNAL, _REFUSED, {}),
    "get /connectors/{name}/tasks/{task}/status": RestOperation(
        Tag.STATES, "State of a task", {200: ("State", _ref("TaskState"))}
    ),
    "post /connectors/{name}/tasks/{task}/restart": RestOperation(Tag.STATES, "Restart a task", {204: (_DONE, None)}),
    "get /connectors/{name}/tables": RestOperation(
        Tag.TABLES,
        "State, freshness and waiting changes of a connector's tables",
        {200: ("Tables", _list(_ref("TableReport")))},
    ),
    "get /connectors/{name}/tables/{table}": RestOperation(
        Tag.TABLES,
        "State, freshness and waiting changes of a table, its files and columns; and what happened since the task "
        "started: the last batches, operations, reselect, changes of columns",
        {200: ("Table", _ref("TableDetails"))},
    ),
    "get /connectors/{name}/tables/{table}/queries": RestOperation(
        Tag.TABLES,
        "How to query a table in several engines, according to its format and catalog; without credentials",
        {
            200: (
                "Queries; no text if an engine cannot",
                _list(_object(dict.fromkeys(("engine", "text", "note"), _TEXT))),
            )
        },
    ),
    "get /tables": RestOperation(
        Tag.TABLES,
        "The tables of all connectors, on all workers: failed ones first, then those that are retried, then the least "
        "fresh",
        {200: ("Tables", _list({"allOf": [_object({"connector": _TEXT}), _ref("TableReport")]}))},
    ),
    "get /connectors/{name}/stages": RestOperation(
        Tag.STATES,
        "What each task did in the last minute: rates, and how many threads were in each stage on average",
        {200: ("Tasks", _list(_ref("TaskFlow")))},
    ),
    "get /connectors/{name}/doctor": RestOperation(
        Tag.CONNECTORS,
        "What will go wrong with the connector, the worst first: checks its topics and source database",
        {200: ("Diagnosis", _ref("Diagnosis"))},
    ),
    "get /connectors/{name}/dead-letters": RestOperation(
        Tag.DEAD_LETTERS,
        "The connector's dead letters by topic and reason, and the newest ones, without keys and values of records; it "
        "reads the newest 10,000 records of the queue, for at most 15 s (complete says whether these were all)",
        {200: ("Counts and letters", _ref("DeadLetters"))},
        query=_query(
            limit=(_NUMBER, "Most letters to list, up to 1000; the default is 100"),
            topic=(_TEXT, "List the letters of records of this topic only"),
            reason=(_TEXT, "List the letters with this reason only, as in reasons"),
        ),
    ),
    "post /connectors/{name}/dead-letters/replay": RestOperation(
        Tag.DEAD_LETTERS,
        "Send the connector's dead letters through its task again, in the background; the connector pauses while they "
        "are written; 409 while another replay runs",
        {202: ("The replay, which runs", _ref("Replay"))},
        query=_query(
            dry_run=(_FLAG, "true: only count the letters, and write nothing"),
            old=(
                _FLAG,
                "true: also send letters older than tombstone.retention.ms; a row that was deleted since may come back",
            ),
        ),
    ),
    "get /connectors/{name}/dead-letters/replay": RestOperation(
        Tag.DEAD_LETTERS,
        "Progress or result of the connector's last replay; 404 if there was none",
        {200: ("The replay", _ref("Replay"))},
    ),
    "get /connectors/{name}/timeline": RestOperation(
        Tag.CONNECTORS,
        "What has happened to a connector, its tasks and tables, newest first, also if it was deleted",
        {200: ("Events", _list(_ref("TimelineEvent")))},
        query=_TIMELINE,
    ),
    "get /timeline": RestOperation(
        Tag.CONNECTORS,
        "What has happened to all connectors and workers, newest first",
        {200: ("Events", _list(_ref("TimelineEvent")))},
        query=_TIMELINE,
    ),
    "put /connectors/{name}/tables/{table}/pause": RestOperation(
        Tag.TABLES,
        "Pause a table: neither read nor write it until it is resumed; the other tables continue",
        {202: (_DONE, None)},
    ),
    "put /connectors/{name}/tables/{table}/resume": RestOperation(
        Tag.TABLES, "Resume a paused table, where it stopped", {202: (_DONE, None)}
    ),
    "post /connectors/{name}/tables/{table}/restart": RestOperation(
        Tag.TABLES,
        "Restart a table: open it again, and read again what it does not have",
        {204: (_DONE, None)},
        query=_query(
            missing=(
                {"enum": ["fail", "recreate"]},
                "recreate: create a table that does not exist any more, or accept one that was rolled back, and "
                "continue at the group's offsets, as table.missing=recreate does for all tables",
            )
        ),
    ),
    "post /connectors/{name}/tables/{table}/resnapshot": RestOperation(
        Tag.TABLES,
        "Fill a table again from its source, in the background: an incremental snapshot of Debezium, a comparison, and "
        "a repair. Needs source.connector.url",
        {202: ("Requested", _ref("Resnapshot"))},
        body={**_object({}, {"source.table": _TEXT, "topic": _TEXT}), "additionalProperties": False},
        needs_body=False,
    ),
    "get /connectors/{name}/tables/{table}/resnapshot": RestOperation(
        Tag.TABLES,
        "Progress and result of the table's newest resnapshot",
        {200: ("Resnapshot", _ref("Resnapshot"))},
    ),
    "delete /connectors/{name}/tables/{table}/resnapshot": RestOperation(
        Tag.TABLES,
        "Cancel a resnapshot; what has arrived stays",
        {202: (_DONE, _ref("Resnapshot"))},
    ),
    "get /connectors-directory": RestOperation(
        Tag.AS_CODE,
        "How the connectors compare with the files of connectors.directory",
        {200: ("The leader's last round", _ref("Directory"))},
    ),
    "get /connector-plugins": RestOperation(
        Tag.PLUGINS,
        "Connector classes",
        {200: ("Plug-ins", _list(_ref("PluginInfo")))},
        query=_query(connectorsOnly=(_FLAG, "false also lists converters, transforms and predicates")),
    ),
    "get /connector-plugins/{plugin}/config": RestOperation(
        Tag.PLUGINS,
        "The options of a plug-in",
        {200: ("Definitions", _list(_ref("ConfigKeyInfo")))},
        query=_query(version=(_TEXT, "Range of versions in Maven's syntax")),
    ),
    "put /connector-plugins/{plugin}/config/validate": RestOperation(
        Tag.PLUGINS,
        "Validate a configuration",
        {200: ("Each option's value and errors", _ref("ConfigInfos"))},
        body=_CONFIG,
    ),
    "put /connector-plugins/{plugin}/config/preview": RestOperation(
        Tag.PLUGINS,
        "The existing topics that a configuration would read, and the names of their tables; creates nothing",
        {200: ("Topics and tables", _ref("Preview"))},
        body=_CONFIG,
    ),
    "get /admin/loggers": RestOperation(
        Tag.LOGGERS, "Levels of this worker's loggers", {200: ("By name", _map(_ref("LoggerLevel")))}
    ),
    "get /admin/loggers/{name}": RestOperation(Tag.LOGGERS, "Level of a logger", {200: ("Level", _ref("LoggerLevel"))}),
    "put /admin/loggers/{name}": RestOperation(
        Tag.LOGGERS,
        "Set the level of a logger and of all loggers below it",
        {200: ("The loggers that changed", _list(_TEXT)), 204: ("Sent to all workers", None)},
        body=_object({"level": _LEVEL}),
        query=_query(scope=({"enum": ["worker", "cluster"]}, "This worker, or all workers")),
    ),
}


def install(app: FastAPI) -> None:
    """Generate the application's description from this table, at the first request for it."""
    generated = app.openapi

    def document() -> Json:
        return app.openapi_schema or _complete(generated())

    app.openapi = document  # type: ignore[method-assign]  # the way that FastAPI documents


def _complete(document: Json) -> Json:
    """Raises KeyError for a request that has no entry."""
    document["components"] = {"schemas": dict(SCHEMAS)}
    document["tags"] = [{"name": tag, "description": text} for tag, text in TAGS.items()]
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            described |= _describe(f"{method} {path}", described.get("parameters", ()))
    return document


def _describe(label: str, path_parameters: Sequence[Json]) -> Json:
    """Return the members of an operation that replace those of the framework."""
    operation, examples = OPERATIONS[label], ANSWERS.get(label, {})
    answers = {
        str(status): _answer(text, schema, examples.get(status)) for status, (text, schema) in operation.answers.items()
    }
    path_examples = PATHS.get(label, PATHS[""])
    path = [{**parameter, "example": path_examples[parameter["name"]]} for parameter in path_parameters]
    query = [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": text}
        for name, (schema, text) in operation.query.items()
    ]
    body = {}
    if operation.body is not None:
        body = {"requestBody": {"required": operation.needs_body, **_content(operation.body, BODIES[label])}}
    return {
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [*path, *query],
        "responses": {**answers, "default": _answer("Error", _ref("Error"), ERROR)},
        **body,
    }


def _answer(text: str, schema: Json | None, example: Any = None) -> Json:
    if schema is None:
        return {"description": text}
    return {"description": text, **_content(schema, example, "application/json" if schema else "text/plain")}


def _content(schema: Json, example: Any, media_type: str = "application/json") -> Json:
    return {"content": {media_type: {"schema": schema, "example": example}}}
