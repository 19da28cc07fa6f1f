"""``/connector-plugins``: list plug-ins and their options, and validate configurations."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.rest import bodies, entities
from headrace.rest.route import ConnectRoute
from headrace.runtime.worker.herder import Herder


def router(herder: Herder) -> APIRouter:
    """Return the routes of ``/connector-plugins``."""
    routes = APIRouter(prefix="/connector-plugins", route_class=ConnectRoute)

    @routes.get("")
    async def list_plugins(request: Request) -> Response:
        connectors_only = request.query_params.get("connectorsOnly", "true").lower() == "true"
        return JSONResponse([entities.plugin_info(each) for each in herder.plugins(connectors_only=connectors_only)])

    @routes.get("/{plugin}/config")
    async def plugin_config(plugin: str, request: Request) -> Response:
        definitions = herder.plugin_config(plugin, request.query_params.get("version"))
        return JSONResponse([entities.config_key_info(key) for key in definitions.keys])

    @routes.put("/{plugin}/config/validate")
    async def validate(plugin: str, request: Request) -> Response:
        infos = herder.validate(plugin, await bodies.string_map(request))
        return JSONResponse(entities.config_infos(infos))

    return routes
