"""``/connectors-directory``: how the connectors compare with the files of ``connectors.directory``.

Kafka Connect has no such resource. The leader answers, because only the leader reads the files.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from headrace.rest.route import ConnectRoute
from headrace.runtime.worker.connector_directory import ConnectorDirectory, DirectoryEntry, DirectoryReport

Json = dict[str, Any]


def router(directory: ConnectorDirectory, worker_id: str) -> APIRouter:
    """Return the route."""
    routes = APIRouter(prefix="/connectors-directory", route_class=ConnectRoute)

    @routes.get("")
    async def get_directory() -> Response:
        return JSONResponse({"worker_id": worker_id, **_document(directory.report())})

    return routes


def _document(report: DirectoryReport) -> Json:
    return {
        "directory": str(report.folder),
        "read": _utc(report.read),
        "dry_run": report.dry_run,
        "problem": report.problem or None,
        "files": [
            {"file": file, "connector": problem.connector, "problem": problem.message}
            for file, problem in report.files.problems.items()
        ],
        "ignored": list(report.files.ignored),
        "connectors": [_entry(entry) for entry in report.entries],
    }


def _entry(entry: DirectoryEntry) -> Json:
    """Return a connector with the names of the options that differ, never with their values."""
    return {
        "connector": entry.step.name,
        "file": entry.step.source or None,
        "state": entry.state,
        "action": entry.step.action,
        "options": list(entry.step.keys),
        "drifted": entry.step.drifted,
        "message": entry.message or None,
    }


def _utc(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds").replace("+00:00", "Z")
