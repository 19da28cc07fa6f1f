"""Connectors as code, which Kafka Connect does not have: ``/connectors/{name}/owner`` and ``/connectors-directory``.

Requests that change a connector have the parameter ``owner``, which Kafka Connect ignores, so that clients may send the
same requests to both. ``/connectors-directory`` compares the connectors with the files of ``connectors.directory``; the
leader answers, because only the leader reads the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.core.connect.connector_plan import DIRECTORY, Ownership, digest
from headrace.core.model.errors import RestError
from headrace.rest import bodies
from headrace.rest.entities import Json
from headrace.rest.route import ConnectRoute
from headrace.runtime.worker.connector_directory import ConnectorDirectory
from headrace.runtime.worker.herder import Herder

OWNER, SOURCE = "owner", "source"
"""Parameters of requests that create, change and delete a connector."""


def owner_router(herder: Herder) -> APIRouter:
    routes = APIRouter(prefix="/connectors", route_class=ConnectRoute)

    @routes.get("/{name}/owner")
    async def get_owner(name: str) -> Response:
        return JSONResponse(owner_document(herder.owner(name), herder.config(name)))

    @routes.put("/{name}/owner")
    async def put_owner(name: str, request: Request) -> Response:
        body = await bodies.string_map(request)
        if body.keys() != {OWNER} or body[OWNER] is None:
            raise RestError('The body must be {"owner": "<name>"}; DELETE removes the owner', 400)
        owner = Ownership(body[OWNER] or "")
        await herder.set_owner(name, owner)
        return JSONResponse(owner_document(owner, {}))

    @routes.delete("/{name}/owner")
    async def delete_owner(name: str) -> Response:
        await herder.set_owner(name, None)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    return routes


def owner_document(owner: Ownership | None, config: Mapping[str, str]) -> Json:
    """Return the owner of the configuration, its file, and whether somebody else has changed the configuration since.

    A member is null if it is unknown; all are without an owner.
    """
    if owner is None:
        return {"owner": None, "source": None, "drifted": None}
    drifted = owner.digest != digest(config) if owner.digest else None
    return {"owner": owner.owner, "source": owner.source or None, "drifted": drifted}


def requesting_owner(request: Request) -> Ownership | None:
    """Return the owner that a request names for its change. Raises RestError 400 for that of the directory."""
    name = request.query_params.get(OWNER)
    if name == DIRECTORY:
        raise RestError(f"The owner {DIRECTORY} changes connectors from its files only; send no owner", 400)
    return None if name is None else Ownership(name, request.query_params.get(SOURCE, ""))


def directory_router(directory: ConnectorDirectory, worker_id: str) -> APIRouter:
    routes = APIRouter(prefix="/connectors-directory", route_class=ConnectRoute)

    @routes.get("")
    async def get_directory() -> Response:
        report = directory.report()
        read_at = None if report.read is None else report.read.isoformat(timespec="seconds").replace("+00:00", "Z")
        document = {
            "worker_id": worker_id,
            "directory": str(report.folder),
            "read": read_at,
            "dry_run": report.dry_run,
            "problem": report.problem or None,
            "files": [
                {"file": file, "connector": problem.connector, "problem": problem.message}
                for file, problem in report.files.problems.items()
            ],
            "ignored": list(report.files.ignored),
            "connectors": [
                {
                    "connector": entry.step.name,
                    "file": entry.step.source or None,
                    "state": entry.state,
                    "action": entry.step.action,
                    "options": list(entry.step.keys),  # the names of options that differ; values may be secrets
                    "drifted": entry.step.drifted,
                    "message": entry.message or None,
                }
                for entry in report.entries
            ],
        }
        return JSONResponse(document)

    return routes
