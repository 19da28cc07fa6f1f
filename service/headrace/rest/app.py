"""The REST application of a worker."""

from __future__ import annotations

from fastapi import FastAPI

from headrace import __version__
from headrace.rest import connector_plugins, connectors, errors, health, root
from headrace.rest.health import Exposition
from headrace.rest.transport import ConnectTransport
from headrace.runtime.herder import Herder
from headrace.runtime.worker import Worker


def create_app(worker: Worker, herder: Herder, metrics: Exposition) -> FastAPI:
    """The application for ``worker``; it holds no state of its own. Nothing but this API is served, no pages."""
    app = FastAPI(
        title="Headrace",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.worker = worker
    errors.install(app)
    app.include_router(health.router(worker, metrics))
    app.include_router(root.router(worker))
    app.include_router(connectors.router(herder, worker.worker_id))
    app.include_router(connector_plugins.router(herder))
    app.add_middleware(ConnectTransport, routes=app)
    return app
