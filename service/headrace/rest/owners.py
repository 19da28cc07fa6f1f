"""``/connectors/{name}/owner`` and the parameter ``owner``: connectors as code, which Kafka Connect does not have.

Kafka Connect ignores the parameter, so clients may send the same requests to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.core.connect.ownership import DIRECTORY, Ownership, digest
from headrace.core.model.errors import RestError
from headrace.rest import bodies
from headrace.rest.entities import Json
from headrace.rest.route import ConnectRoute
from headrace.runtime.worker.herder import Herder

OWNER, SOURCE = "owner", "source"
"""Parameters of requests that create, change and delete a connector."""


def router(herder: Herder) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(prefix="/connectors", route_class=ConnectRoute)

    @routes.get("/{name}/owner")
    async def get_owner(name: str) -> Response:
        return JSONResponse(owner_document(herder.owner(name), herder.config(name)))

    @routes.put("/{name}/owner")
    async def put_owner(name: str, request: Request) -> Response:
        given = await bodies.string_map(request)
        if given.keys() != {OWNER} or given[OWNER] is None:
            raise RestError('The body must be {"owner": "<name>"}; DELETE removes the owner', 400)
        await herder.set_owner(name, Ownership(given[OWNER] or ""))
        return JSONResponse(owner_document(Ownership(given[OWNER] or ""), {}))

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
