"""The REST applications of a worker."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from fastapi_offline import FastAPIOffline

from headrace import __version__
from headrace.rest import access, connector_plugins, connectors, errors, health, loggers, openapi, root, tables
from headrace.rest.audit import Audit
from headrace.rest.authentication import Authentication, Credentials
from headrace.rest.cross_site import CrossSiteProtection
from headrace.rest.forward import Forwarder
from headrace.rest.health import Exposition
from headrace.rest.transport import ConnectTransport
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.worker import Worker


def create_app(worker: Worker, herder: Herder, metrics: Exposition) -> FastAPI:
    """Return the application of ``listeners``. It has no state of its own. Raises ConfigError.

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
    forwarder = Forwarder(worker.config)
    routers = [
        health.router(worker, metrics),
        root.router(worker),
        connectors.router(herder, worker.url),
        tables.router(herder, forwarder),
        connector_plugins.router(herder),
    ]
    if worker.config.serves_loggers:
        routers.append(loggers.router(herder))
    _install(app, worker, forwarder, routers)
    openapi.install(app)
    return app


def create_admin_app(worker: Worker, herder: Herder, metrics: Exposition) -> FastAPI:
    """Return the application of ``admin.listeners``: loggers, and what probes and Prometheus request."""
    app = FastAPI(title="Headrace", version=__version__, openapi_url=None, redirect_slashes=False)
    routers = [health.router(worker, metrics), loggers.router(herder)]
    _install(app, worker, Forwarder(worker.config), routers)
    return app


def _install(app: FastAPI, worker: Worker, forwarder: Forwarder, routers: Sequence[APIRouter]) -> None:
    """Add routes, error handlers and middleware. The middleware that is added last is the outermost."""
    config = worker.config
    app.state.worker, app.state.forwarder = worker, forwarder
    errors.install(app)
    for router in routers:
        app.include_router(router)
    routes = [route for router in routers for route in router.routes]
    app.add_middleware(CrossSiteProtection, allowed=access.allowed_origins(config))
    credentials = Credentials(config)
    if credentials.required:
        app.add_middleware(Authentication, credentials=credentials, open_metrics=config.access.open_metrics)
    app.add_middleware(Audit)
    app.add_middleware(ConnectTransport, routes=routes, receive_timeout=config.access.receive_timeout)
    access.install(app, config)
