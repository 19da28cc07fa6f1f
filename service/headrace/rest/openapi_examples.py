"""An example of each body and each answer of ``openapi.py``: a connector of the shop that the README begins with.

Tests: ``tests/rest/test_openapi.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

_GIVEN: Json = {
    "connector.class": "LakehouseSink",
    "topics": "shop.public.orders,shop.public.products",
    "table.namespace": "shop",
}
_NAMED: Json = {"name": "shop", **_GIVEN}
_INFO: Json = {"name": "shop", "config": _NAMED, "tasks": [{"connector": "shop", "task": 0}], "type": "sink"}
_WORKER = "10.0.0.5:8083"
_VERSION = "0.2.0"
_RUNNING: Json = {"state": "RUNNING", "worker_id": _WORKER, "version": _VERSION}
_TASK: Json = {"id": 0, **_RUNNING}
_STATUS: Json = {"name": "shop", "connector": _RUNNING, "tasks": [_TASK], "type": "sink"}
_RESTARTING: Json = {
    **_STATUS,
    "connector": {**_RUNNING, "state": "RESTARTING"},
    "tasks": [{**_TASK, "state": "RESTARTING"}],
}
_TABLE: Json = {
    "table": "shop_public_orders",
    "task": 0,
    "state": "RUNNING",
    "topics": ["shop.public.orders"],
    "freshness_seconds": 4.2,
    "freshness_target_seconds": 10.0,
    "waiting": {"events": 120, "bytes": 48_000},
    "last_batch": {
        "events": 1_800,
        "bytes": 720_000,
        "seconds": 1.31,
        "committed": "2026-11-21T08:07:06Z",
        "source_time": "2026-11-21T08:07:02Z",
    },
    "load": {
        "rows": 1_200_000,
        "remaining": 3_800_000,
        "rows_per_second": 24_500.0,
        "began": "2026-11-21T08:06:17Z",
        "estimated_end": "2026-11-21T08:09:42Z",
    },
}
_OPERATIONS: Json = {"creates": 400, "updates": 1_350, "deletes": 50, "truncates": 0, "snapshot_reads": 0}
_DETAILS: Json = {
    **_TABLE,
    "batches": [
        {
            **_TABLE["last_batch"],
            "closed_by": "age",
            "operations": _OPERATIONS,
            "offsets": [{"topic": "shop.public.orders", "partition": 0, "next_offset": 4_711}],
        }
    ],
    "operations": _OPERATIONS,
    "watermark": "2026-11-21T08:07:02Z",
    "columns": [{"name": "id", "type": "BIGINT"}, {"name": "note", "type": "STRING"}],
    "schema_changes": [{"at": "2026-11-21T08:06:40Z", "change": "added", "column": "note", "type": "STRING"}],
    "files": {"data_files": 12, "delete_files": 3, "bytes": 48_210_433, "rows": 1_204_000, "deleted_rows": 8_100},
    "last_compaction": "2026-11-21T08:06:50Z",
    "reselect": {
        "cells": {"cache": 120, "fold": 30, "source": 41},
        "cache_requests": {"hit": 120, "miss": 41},
        "queries": {"ok": 3},
        "rows_requested": 41,
        "rows_not_found": 0,
    },
}
_FLOW: Json = {
    "task": 0,
    "worker_id": _WORKER,
    "lag_records": 240,
    "records_read_per_second": 310.5,
    "rows_reselected_per_second": 4.25,
    "changes_written_per_second": 309.8,
    "busy_threads": {"decode": 0.05, "fold": 0.02, "ledger": 0.01, "merge": 0.64, "reselect": 0.11},
}
_OFFSETS: Json = {
    "offsets": [
        {
            "partition": {"kafka_topic": "shop.public.orders", "kafka_partition": 0},
            "offset": {"kafka_offset": 4_711},
        }
    ]
}
_EVENT: Json = {
    "time": "2026-11-21T08:07:06.123Z",
    "kind": "CONFIG_CHANGED",
    "connector": "shop",
    "text": "tasks.max",
    "worker_id": _WORKER,
    "by": {"type": "request", "method": "PATCH", "path": "/connectors/shop/config", "user": "ann"},
}
_OWNER: Json = {"owner": "connectors.directory", "source": "shop.json", "drifted": False}
_DIAGNOSIS: Json = {
    "findings": [
        {
            "rule": "table-missing",
            "severity": "WARNING",
            "subject": 'database "shop" at db:5432 (user "headrace"), table public.items',
            "consequence": "its topic gets no changes any more, and reselect cannot read its rows",
            "evidence": "the database has no table of the topic's name",
            "remedy": "name the table as its topic says, or remove the topic from the connector",
        }
    ],
    "not_checked": [],
}
_DIRECTORY: Json = {
    "worker_id": _WORKER,
    "directory": "/etc/headrace/connectors",
    "read": "2026-11-21T08:07:06Z",
    "dry_run": False,
    "problem": None,
    "files": [],
    "ignored": ["README.md"],
    "connectors": [
        {
            "connector": "shop",
            "file": "shop.json",
            "state": "IN_SYNC",
            "action": "unchanged",
            "options": [],
            "drifted": False,
            "message": None,
        }
    ],
}
_DEFINITION: Json = {
    "name": "tasks.max",
    "type": "INT",
    "required": False,
    "default_value": "1",
    "importance": "HIGH",
    "documentation": "Maximum number of tasks that share the connector's topics.",
    "group": "Common",
    "order_in_group": 4,
    "width": "SHORT",
    "display_name": "Tasks max",
    "dependents": [],
}
_VALIDATED: Json = {
    "name": "LakehouseSink",
    "error_count": 1,
    "groups": ["Common", "Tables"],
    "configs": [
        {
            "definition": _DEFINITION,
            "value": {
                "name": "tasks.max",
                "value": "0",
                "recommended_values": [],
                "errors": ["Invalid value 0 for configuration tasks.max: Value must be at least 1"],
                "visible": True,
            },
        }
    ],
}
_PREVIEW: Json = {
    "format": "iceberg",
    "catalog": "lake",
    "namespace": "shop",
    "topics": [{"topic": "shop.public.orders", "partitions": 3, "table": "shop_public_orders", "problem": None}],
    "more_topics": 0,
    "missing": ["shop.public.products"],
    "names_from_records": None,
}
_REASON = "VALUE_CONVERTER, headrace.core.model.errors.BadRecord"
_LETTER_COUNTS: Json = {
    "letters": 2,
    "reasons": [{"topic": "shop.public.orders", "reason": _REASON, "count": 2}],
    "more_reasons": 0,
    "too_old": 0,
    "without_coordinate": 0,
    "other_connectors": [],
}
_LETTERS: Json = {
    "connector": "shop",
    "queue": "shop-dead",
    "records_read": 2,
    "complete": True,
    **_LETTER_COUNTS,
    "newest": [
        {
            "topic": "shop.public.orders",
            "partition": 0,
            "offset": 77,
            "time": "2026-07-01T12:00:00Z",
            "reason": _REASON,
            "error": "the value is not JSON",
            "class": "org.apache.kafka.connect.json.JsonConverter",
            "task": "0",
            "headers": ["traceparent"],
            "too_old": False,
            "queue_partition": 0,
            "queue_offset": 1,
        }
    ],
}
_REPLAY: Json = {
    "connector": "shop",
    "run": "5f0c2a7d1b9e4c0f8a6d3e2b1c0f9a8d",
    "state": "RUNNING",
    "dry_run": False,
    "old": False,
    "worker_id": _WORKER,
    "began": "2026-07-01T12:00:00Z",
    "ended": None,
    "pauses": False,
    "counts": None,
    "sent": 0,
    "refused": [],
    "refused_count": 0,
    "error": None,
}
_REPLAYED: Json = {
    **_REPLAY,
    "state": "DONE",
    "ended": "2026-07-01T12:00:09Z",
    "counts": _LETTER_COUNTS,
    "sent": 2,
    "refused": [
        {
            "topic": "shop.public.orders",
            "partition": 0,
            "offset": 77,
            "stage": "VALUE_CONVERTER",
            "error": "headrace.core.model.errors.BadRecord: the value is not JSON",
        }
    ],
    "refused_count": 1,
}
_LEVEL: Json = {"level": "INFO", "last_modified": None}

ERROR: Json = {"error_code": 404, "message": "Connector shop not found"}

_RESNAPSHOT = {
    "table": "shop_public_orders",
    "source_table": "public.orders",
    "topic": "shop.public.orders",
    "requested": "2026-07-01T10:00:00Z",
}

PATHS: Mapping[str, Mapping[str, Any]] = {
    "": {"name": "shop", "task": 0, "table": "shop_public_orders", "plugin": "LakehouseSink"},
    "get /admin/loggers/{name}": {"name": "headrace.runtime"},
    "put /admin/loggers/{name}": {"name": "headrace.runtime"},
}
"""Parameters of paths by name: those of a request, or ("") of all others."""

BODIES: Mapping[str, Any] = {
    "post /connectors": {"name": "shop", "config": _GIVEN},
    "put /connectors/{name}/config": _GIVEN,
    "patch /connectors/{name}/config": {"tasks.max": "2", "batch.linger.ms": None},
    "put /connectors/{name}/owner": {"owner": "connectors.directory"},
    "patch /connectors/{name}/offsets": _OFFSETS,
    "post /connectors/{name}/tasks": [_NAMED],
    "post /connectors/{name}/tables/{table}/resnapshot": {"source.table": "public.orders"},
    "put /connector-plugins/{plugin}/config/validate": {**_NAMED, "tasks.max": "0"},
    "put /connector-plugins/{plugin}/config/preview": _NAMED,
    "put /admin/loggers/{name}": {"level": "DEBUG"},
}
"""Bodies of requests."""

ANSWERS: Mapping[str, Mapping[int, Any]] = {
    "get /": {200: {"version": "4.3.1", "commit": "headrace-0.2.0", "kafka_cluster_id": "5L6g3nShT-eMCtK--X86sw"}},
    "get /health": {
        200: {"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."},
        500: {
            "status": "unhealthy",
            "message": "Worker was unable to handle this request and may be unable to handle other requests.",
        },
        503: {"status": "starting", "message": "Worker is still starting up. The worker is reading the config topic."},
    },
    "get /health/live": {
        200: {"status": "live", "message": ""},
        503: {"status": "not live", "message": "kafka: no answer for 75 s"},
    },
    "get /health/ready": {
        200: {"status": "ready", "message": ""},
        503: {"status": "not ready", "message": "Spark: STARTING"},
    },
    "get /workers": {
        200: [
            {
                "worker_id": _WORKER,
                "version": _VERSION,
                "leader": True,
                "tasks": 1,
                "waits_for": None,
                "memory": {"used_bytes": 2_147_483_648, "available_bytes": 4_294_967_296},
            }
        ]
    },
    "get /metrics": {
        200: 'headrace_lag_records{connector="shop",task="0",topic="shop.public.orders",partition="0"} 120\n'
    },
    "get /connectors": {200: {"shop": {"info": _INFO, "status": _STATUS}}},
    "post /connectors": {201: _INFO},
    "get /connectors/{name}": {200: _INFO},
    "get /connectors/{name}/config": {200: _NAMED},
    "put /connectors/{name}/config": {200: _INFO, 201: _INFO},
    "patch /connectors/{name}/config": {200: {**_INFO, "config": {**_NAMED, "tasks.max": "2"}}},
    "get /connectors/{name}/owner": {200: _OWNER},
    "put /connectors/{name}/owner": {200: {"owner": "connectors.directory", "source": None, "drifted": None}},
    "get /connectors/{name}/topics": {200: {"shop": {"topics": ["shop.public.orders", "shop.public.products"]}}},
    "get /connectors/{name}/offsets": {200: _OFFSETS},
    "patch /connectors/{name}/offsets": {
        200: {"message": "The offsets for this connector have been altered successfully"}
    },
    "delete /connectors/{name}/offsets": {
        200: {"message": "The offsets for this connector have been reset successfully"}
    },
    "get /connectors/{name}/status": {200: _STATUS},
    "post /connectors/{name}/restart": {202: _RESTARTING},
    "get /connectors/{name}/tasks": {200: [{"id": {"connector": "shop", "task": 0}, "config": _NAMED}]},
    "get /connectors/{name}/tasks/{task}/status": {200: _TASK},
    "get /tables": {200: [{"connector": "shop", **_TABLE}]},
    "get /connectors/{name}/tables": {200: [_TABLE]},
    "post /connectors/{name}/tables/{table}/resnapshot": {202: {**_RESNAPSHOT, "state": "WAITING"}},
    "get /connectors/{name}/tables/{table}/resnapshot": {
        200: {
            **_RESNAPSHOT,
            "state": "READING",
            "updated": "2026-07-01T10:01:00Z",
            "step": "source reads",
            "rows": 20_480,
            "chunks": 20,
            "total_rows": 1_000_000,
            "total_chunks": 977,
            "estimated_end": "2026-07-01T10:48:50Z",
        }
    },
    "delete /connectors/{name}/tables/{table}/resnapshot": {
        202: {**_RESNAPSHOT, "state": "READING", "updated": "2026-07-01T10:01:00Z", "step": "is being cancelled"}
    },
    "get /connectors/{name}/tables/{table}": {200: _DETAILS},
    "get /connectors/{name}/stages": {200: [_FLOW]},
    "get /connectors/{name}/tables/{table}/queries": {
        200: [
            {
                "engine": "PyIceberg",
                "text": "from pyiceberg.table import StaticTable\n\n"
                "StaticTable.from_metadata('/warehouse/shop/shop_public_orders').scan().to_arrow()",
                "note": "",
            }
        ]
    },
    "get /connectors/{name}/doctor": {200: _DIAGNOSIS},
    "get /connectors/{name}/dead-letters": {200: _LETTERS},
    "post /connectors/{name}/dead-letters/replay": {202: _REPLAY},
    "get /connectors/{name}/dead-letters/replay": {200: _REPLAYED},
    "delete /connectors/{name}/dead-letters/replay": {
        202: {**_REPLAY, "pauses": True, "counts": _LETTER_COUNTS, "sent": 1}
    },
    "get /timeline": {200: [_EVENT]},
    "get /connectors/{name}/timeline": {200: [_EVENT]},
    "get /connectors-directory": {200: _DIRECTORY},
    "get /connector-plugins": {
        200: [{"class": "headrace.LakehouseSinkConnector", "type": "sink", "version": _VERSION}]
    },
    "get /connector-plugins/{plugin}/config": {200: [_DEFINITION]},
    "put /connector-plugins/{plugin}/config/validate": {200: _VALIDATED},
    "put /connector-plugins/{plugin}/config/preview": {200: _PREVIEW},
    "get /admin/loggers": {200: {"headrace": _LEVEL, "headrace.runtime": _LEVEL}},
    "get /admin/loggers/{name}": {200: _LEVEL},
    "put /admin/loggers/{name}": {200: ["headrace.runtime", "headrace.runtime.worker.worker"]},
}
"""Answers by status, where they have a body."""
