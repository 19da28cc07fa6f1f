"""``/connector-plugins/{plugin}/config/preview``: what a configuration would read and write, unknown to Kafka Connect.

Tests: ``tests/rest/test_preview.py``.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.core.model.errors import ConfigError, HeadraceError, RestError
from headrace.rest import bodies
from headrace.rest.route import ConnectRoute
from headrace.runtime.preview import preview
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.worker import Worker


def router(worker: Worker, herder: Herder) -> APIRouter:
    routes = APIRouter(route_class=ConnectRoute)

    @routes.put("/connector-plugins/{plugin}/config/preview")
    async def put_preview(plugin: str, request: Request) -> Response:
        """Raises RestError: 400 for an invalid configuration, 503 if the brokers do not answer."""
        config = await bodies.string_map(request)
        errors = herder.validate(plugin, config).errors()
        if errors:
            raise RestError(f"Connector configuration is invalid: {'; '.join(errors)}", 400)
        try:
            connector = worker.connector_class.resolve(config, "Connector configuration is invalid")
            found = await preview(connector, worker.stores)
        except ConfigError as error:
            raise RestError(str(error), 400) from error
        except HeadraceError as error:
            raise RestError(f"The topics cannot be listed: {error}", 503) from error
        return JSONResponse(found.document())

    return routes
