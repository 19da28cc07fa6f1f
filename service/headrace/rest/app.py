"""The REST applications of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI
from fastapi_offline import FastAPIOffline

from headrace import __version__
from headrace.rest import (
    access,
    connectors,
    dead_letters,
    doctor,
    errors,
    openapi,
    preview,
    resnapshots,
    stages,
    table_queries,
    tables,
    timeline,
    workers,
)
from headrace.rest.access import CrossSiteProtection
from headrace.rest.authentication import Audit, Authentication, Credentials
from headrace.rest.cluster_tables import ClusterTables
from headrace.rest.connectors_as_code import directory_router, owner_router
from headrace.rest.console.pages import Console, Documents
from headrace.rest.dead_letters import ClusterReplays
from headrace.rest.doctor import ConnectorDoctor
from headrace.rest.route import Forwarder
from headrace.rest.stages import ConnectorStages, Flows
from headrace.rest.table_queries import TableQueries
from headrace.rest.timeline import TimelineEvents
from headrace.rest.transport import ConnectTransport
from headrace.rest.worker_resources import Exposition, health_router, logger_router, plugin_router, root_router
from headrace.rest.workers import ClusterWorkers
from headrace.runtime.dead_letters.replays import DeadLetters
from headrace.runtime.doctor import Doctor
from headrace.runtime.resnapshot.worker_resnapshots import WorkerResnapshots
from headrace.runtime.worker.connector_directory import ConnectorDirectory
from headrace.runtime.worker.health import WorkerHealth
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What the REST API of a worker shows and changes."""

    worker: Worker
    herder: Herder
    health: WorkerHealth
    directory: ConnectorDirectory
    metrics: Exposition
    doctor: Doctor
    flows: Flows
    dead_letters: DeadLetters
    resnapshots: WorkerResnapshots


def create_app(parts: WorkerParts) -> FastAPI:
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
    worker, herder, forwarder = parts.worker, parts.herder, Forwarder(parts.worker.config)
    cluster_tables = ClusterTables(herder, forwarder)
    queries = TableQueries(worker, herder)
    cluster_workers = ClusterWorkers(worker, herder, forwarder)
    connector_stages = ConnectorStages(herder, forwarder, worker.worker_id, parts.flows)
    connector_doctor = ConnectorDoctor(worker, herder, parts.doctor)
    events = TimelineEvents(worker)
    routers = [
        health_router(worker, parts.health, parts.metrics),
        root_router(worker),
        connectors.router(herder, worker.url),
        owner_router(herder),
        directory_router(parts.directory, worker.worker_id),
        tables.router(herder, cluster_tables, forwarder),
        resnapshots.router(worker, herder, cluster_tables, parts.resnapshots),
        doctor.router(connector_doctor),
        dead_letters.router(parts.dead_letters),
        stages.router(connector_stages),
        workers.router(cluster_workers),
        timeline.router(events),
        table_queries.router(queries),
        plugin_router(herder),
        preview.router(worker, herder),
    ]
    if worker.config.serves_loggers:
        routers.append(logger_router(herder))
    _install(app, worker, forwarder, routers)
    replays = ClusterReplays(parts.dead_letters, forwarder)
    documents = Documents(
        cluster_tables,
        connector_stages,
        cluster_workers,
        queries,
        connector_doctor,
        parts.dead_letters,
        replays,
        events,
    )
    Console(worker, herder, documents).install(app)
    openapi.install(app)
    return app


def create_admin_app(parts: WorkerParts) -> FastAPI:
    """Return the application of ``admin.listeners``: loggers, and what probes and Prometheus request."""
    app = FastAPI(title="Headrace", version=__version__, openapi_url=None, redirect_slashes=False)
    routers = [health_router(parts.worker, parts.health, parts.metrics), logger_router(parts.herder)]
    _install(app, parts.worker, Forwarder(parts.worker.config), routers)
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
    if credentials.are_required:
        app.add_middleware(Authentication, credentials=credentials, open_metrics=config.access.open_metrics)
    app.add_middleware(Audit)
    app.add_middleware(ConnectTransport, routes=routes, receive_timeout=config.access.receive_timeout)
    access.install(app, config)
