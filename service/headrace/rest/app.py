"""The REST application of a worker."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from headrace import __version__
from headrace.rest import (
    access,
    connector_plugins,
    connectors,
    directory,
    errors,
    health,
    loggers,
    openapi,
    owners,
    root,
    tables,
)
from headrace.rest.health import Exposition
from headrace.rest.transport import ConnectTransport
from headrace.runtime.worker.connector_directory import ConnectorDirectory
from headrace.runtime.worker.health import WorkerHealth
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.worker import Worker


def create_app(
    worker: Worker,
    herder: Herder,
    probes: WorkerHealth,
    metrics: Exposition,
    files: ConnectorDirectory | None = None,
) -> FastAPI:
    """Return the application for ``worker``. It has no state of its own. ``files`` are those that define connectors.

    The page ``/docs`` loads nothing from other servers: a cluster often has no access to the internet, and a script
    from a CDN could change connectors.
    """
    app = FastAPIOffline(
        title="Headrace",
        version=__version__,
        description="Kafka Connect's REST API, for sinks that keep lakehouse tables equal to database tables",
        redoc_url=None,
        static_url="/docs/static",
        redirect_slashes=False,
    )
    app.state.worker = worker
    errors.install(app)
    routers = [
        health.router(worker, probes, metrics),
        root.router(worker),
        connectors.router(herder, worker.worker_id),
        owners.router(herder),
        directory.router(files or ConnectorDirectory(worker, herder), worker.worker_id),
        tables.router(herder, worker.config.rest.request_timeout),
        connector_plugins.router(herder),
    ]
    if worker.config.serves_loggers:
        routers.append(loggers.router(herder))
    for router in routers:
        app.include_router(router)
    openapi.install(app)
    app.add_middleware(ConnectTransport, routes=[route for router in routers for route in router.routes])
    access.install(app, worker.config)
    return app
