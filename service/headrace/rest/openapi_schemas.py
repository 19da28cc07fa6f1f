"""The schemas of the documents in requests and answers, for the OpenAPI description (``openapi.py``).

Tests: ``tests/rest/test_openapi.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.core.batch.batch import Trigger
from headrace.core.connect.connector_plan import Action
from headrace.core.connect.dead_letters import ReplayState
from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.resnapshots import ResnapshotState
from headrace.core.connect.timeline import Kind, TriggerType
from headrace.core.doctor.findings import Severity

Json = dict[str, Any]
Answers = Mapping[int, tuple[str, Json | None]]

TEXT: Json = {"type": "string"}
NUMBER: Json = {"type": "integer"}
FLAG: Json = {"type": "boolean"}
RATE: Json = {"type": "number"}
STATE: Json = {"enum": ["UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED", "DESTROYED"]}
LEVEL: Json = {"enum": ["OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL"]}


def object_of(required: Mapping[str, Json], optional: Mapping[str, Json] | None = None) -> Json:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required)}


def list_of(items: Json) -> Json:
    return {"type": "array", "items": items}


def map_of(values: Json) -> Json:
    return {"type": "object", "additionalProperties": values}


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


SCALAR: Json = {"type": ["string", "number", "boolean", "null"]}
SEEN = {"state": STATE, "worker_id": TEXT}
MAYBE = {"version": TEXT, "trace": TEXT}
NOTES = list_of(object_of({"note": TEXT, "where": list_of(TEXT)}))
TABLE_STATE: Json = {"type": "string", "enum": list(TableState)}
TABLES = list_of(
    object_of(
        {"table": TEXT, "state": TABLE_STATE, "trace": TEXT, "since": TEXT},
        {"next_attempt": TEXT, "topics": list_of(TEXT), "recreate": FLAG},
    )
)
NULLABLE: Json = {"type": ["string", "null"]}
LETTER_COUNTS: Mapping[str, Json] = {
    "letters": NUMBER,
    "reasons": list_of(object_of({"topic": TEXT, "reason": TEXT, "count": NUMBER})),
    **dict.fromkeys(("more_reasons", "too_old", "without_coordinate"), NUMBER),
    "other_connectors": list_of(object_of({"connector": TEXT, "count": NUMBER})),
}
MESSAGE = object_of({"message": TEXT})
SCHEMAS: Mapping[str, Json] = {
    "Error": object_of({"error_code": NUMBER, "message": TEXT}),
    "Config": map_of(TEXT),
    "ConfigGiven": map_of(SCALAR),
    "CreateConnectorRequest": {
        **object_of(
            {"name": TEXT, "config": ref("ConfigGiven")},
            {"initial_state": {"enum": ["RUNNING", "PAUSED", "STOPPED"]}},
        ),
        "additionalProperties": False,
    },
    "ConnectorTaskId": object_of({"connector": TEXT, "task": NUMBER}),
    "ConnectorInfo": object_of(
        {"name": TEXT, "config": ref("Config"), "tasks": list_of(ref("ConnectorTaskId")), "type": TEXT}
    ),
    "TaskState": object_of({"id": NUMBER, **SEEN}, {**MAYBE, "waits_for": TEXT, "notes": NOTES, "tables": TABLES}),
    "ConnectorStateInfo": object_of(
        {"name": TEXT, "connector": object_of(SEEN, MAYBE), "tasks": list_of(ref("TaskState")), "type": TEXT}
    ),
    "TaskInfo": object_of({"id": ref("ConnectorTaskId"), "config": ref("Config")}),
    "ConnectorOffsets": {
        **object_of(
            {
                "offsets": list_of(
                    object_of(
                        {"partition": object_of({"kafka_topic": TEXT, "kafka_partition": NUMBER})},
                        {"offset": {"anyOf": [object_of({"kafka_offset": NUMBER}), {"type": "null"}]}},
                    )
                )
            }
        ),
        "additionalProperties": False,
    },
    "TableReport": object_of(
        {
            **{"table": TEXT, "task": NUMBER, "state": TABLE_STATE, "topics": list_of(TEXT)},
            "freshness_seconds": {"type": ["number", "null"]},
            "waiting": object_of({"events": NUMBER, "bytes": NUMBER}),
        },
        {
            "freshness_target_seconds": {"type": "number"},
            "waits_for": TEXT,
            "last_batch": object_of(
                {"events": NUMBER, "bytes": NUMBER, "seconds": {"type": "number"}, "committed": TEXT},
                {"source_time": TEXT},
            ),
            "load": object_of(
                {"rows": NUMBER, "remaining": NUMBER, "rows_per_second": {"type": "number"}, "began": TEXT},
                {"estimated_end": TEXT, "ended": TEXT},
            ),
            "last_error": object_of({"state": TABLE_STATE, "trace": TEXT, "since": TEXT}, {"next_attempt": TEXT}),
        },
    ),
    "TableDetails": {
        "allOf": [
            ref("TableReport"),
            object_of(
                {
                    "batches": list_of(
                        object_of(
                            {
                                **{"events": NUMBER, "bytes": NUMBER, "seconds": RATE, "committed": TEXT},
                                **{"closed_by": {"enum": list(Trigger)}, "operations": map_of(NUMBER)},
                                "offsets": list_of(
                                    object_of({"topic": TEXT, "partition": NUMBER, "next_offset": NUMBER})
                                ),
                            },
                            {"source_time": TEXT},
                        )
                    ),
                    "operations": map_of(NUMBER),
                    "schema_changes": list_of(
                        object_of(
                            {"at": TEXT, "change": {"enum": ["created", "added", "removed", "retyped"]}},
                            {"column": TEXT, "type": TEXT, "earlier_type": TEXT},
                        )
                    ),
                },
                {
                    "watermark": TEXT,
                    "columns": list_of(object_of({"name": TEXT, "type": TEXT})),
                    "files": object_of(
                        dict.fromkeys(("data_files", "delete_files", "bytes", "rows", "deleted_rows"), NUMBER)
                    ),
                    "last_compaction": TEXT,
                    "reselect": object_of(
                        {
                            **dict.fromkeys(("cells", "cache_requests", "queries"), map_of(NUMBER)),
                            **{"rows_requested": NUMBER, "rows_not_found": NUMBER},
                        }
                    ),
                },
            ),
        ]
    },
    "TaskFlow": object_of(
        {
            **{"task": NUMBER, "worker_id": TEXT, "lag_records": NUMBER},
            **{f"{flow}_per_second": RATE for flow in ("records_read", "rows_reselected", "changes_written")},
            "busy_threads": map_of(RATE),
        }
    ),
    "WorkerInfo": object_of(
        {
            **{"worker_id": TEXT, "version": TEXT, "leader": FLAG, "tasks": NUMBER, "waits_for": NULLABLE},
            "memory": object_of({"used_bytes": NUMBER, "available_bytes": NUMBER}),
        }
    ),
    "TimelineEvent": object_of(
        {
            **{"time": TEXT, "kind": {"enum": list(Kind)}, "text": TEXT, "worker_id": TEXT},
            "by": object_of({"type": {"enum": list(TriggerType)}}, {"method": TEXT, "path": TEXT, "user": TEXT}),
        },
        {"connector": TEXT, "task": NUMBER, "table": TEXT, "count": NUMBER, "since": TEXT},
    ),
    "Owner": object_of({"owner": NULLABLE, "source": NULLABLE, "drifted": {"type": ["boolean", "null"]}}),
    "Diagnosis": object_of(
        {
            "findings": list_of(
                object_of(
                    {
                        **{"rule": TEXT, "severity": {"enum": [severity.name for severity in Severity]}},
                        **{"subject": TEXT, "consequence": TEXT, "evidence": TEXT, "remedy": TEXT},
                    }
                )
            ),
            "not_checked": list_of(TEXT),
        }
    ),
    "DeadLetters": object_of(
        {
            **{"connector": TEXT, "queue": TEXT, "records_read": NUMBER, "complete": FLAG, **LETTER_COUNTS},
            "newest": list_of(
                object_of(
                    {
                        **{"topic": TEXT, "partition": NUMBER, "offset": NUMBER, "time": NULLABLE},
                        **{"reason": TEXT, "error": NULLABLE, "class": TEXT, "task": TEXT},
                        **{"headers": list_of(TEXT), "too_old": FLAG},
                        **{"queue_partition": NUMBER, "queue_offset": NUMBER},
                    }
                )
            ),
        }
    ),
    "Replay": object_of(
        {
            **{"connector": TEXT, "run": TEXT, "state": {"enum": list(ReplayState)}},
            **{"dry_run": FLAG, "old": FLAG, "worker_id": TEXT, "began": TEXT, "ended": NULLABLE},
            **{"pauses": FLAG, "counts": {"anyOf": [object_of(LETTER_COUNTS), {"type": "null"}]}, "sent": NUMBER},
            "refused": list_of(
                object_of(
                    {"topic": TEXT, "partition": NUMBER, "offset": NUMBER, "stage": TEXT, "error": TEXT},
                )
            ),
            **{"refused_count": NUMBER, "error": NULLABLE},
        }
    ),
    "Directory": object_of(
        {
            **{"worker_id": TEXT, "directory": TEXT, "read": NULLABLE, "dry_run": FLAG, "problem": NULLABLE},
            "files": list_of(object_of({"file": TEXT, "connector": NULLABLE, "problem": TEXT})),
            "ignored": list_of(TEXT),
            "connectors": list_of(
                object_of(
                    {
                        **{"connector": TEXT, "file": NULLABLE},
                        "state": {"enum": ["IN_SYNC", "PENDING", "DRIFTED", "CONFLICT", "FAILED", "KEPT"]},
                        "action": {"enum": [str(action) for action in Action]},
                        **{"options": list_of(TEXT), "drifted": FLAG, "message": NULLABLE},
                    }
                )
            ),
        }
    ),
    "Resnapshot": object_of(
        {
            **dict.fromkeys(("table", "source_table", "topic", "requested"), TEXT),
            "state": {"enum": [str(state) for state in ResnapshotState]},
        },
        {
            **dict.fromkeys(("updated", "step", "waits_for", "error", "estimated_end"), TEXT),
            **dict.fromkeys(("rows", "total_rows", "chunks", "total_chunks", "records_left"), NUMBER),
            **dict.fromkeys(("compared_rows", "differing_rows", "repaired_rows"), NUMBER),
            "not_compared": list_of(TEXT),
        },
    ),
    "PluginInfo": object_of({"class": TEXT, "type": TEXT}, {"version": TEXT}),
    "ConfigKeyInfo": object_of(
        {
            **dict.fromkeys(("name", "type", "importance", "documentation", "width", "display_name"), TEXT),
            **{"required": FLAG, "default_value": NULLABLE, "group": NULLABLE},
            **{"order_in_group": NUMBER, "dependents": list_of(TEXT)},
        }
    ),
    "ConfigValueInfo": object_of(
        {
            **{"name": TEXT, "value": NULLABLE, "visible": FLAG},
            **{"recommended_values": list_of(TEXT), "errors": list_of(TEXT)},
        }
    ),
    "ConfigInfos": object_of(
        {
            **{"name": TEXT, "error_count": NUMBER, "groups": list_of(TEXT)},
            "configs": list_of(object_of({"definition": ref("ConfigKeyInfo"), "value": ref("ConfigValueInfo")})),
        }
    ),
    "Preview": object_of(
        {
            **dict.fromkeys(("format", "catalog", "namespace"), TEXT),
            "topics": list_of(object_of({"topic": TEXT, "partitions": NUMBER, "table": NULLABLE, "problem": NULLABLE})),
            **{"more_topics": NUMBER, "missing": list_of(TEXT), "names_from_records": NULLABLE},
        }
    ),
    "LoggerLevel": object_of({"level": LEVEL, "last_modified": {"type": ["integer", "null"]}}),
}
