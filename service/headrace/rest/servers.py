"""The HTTP servers of a worker: one for ``listeners``, and one for ``admin.listeners`` if they are set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.config import WorkerConfig
from headrace.config.listeners import HTTPS, Listener
from headrace.config.tls import server_context
from headrace.config.worker_options import ADMIN_TLS, LISTENER_TLS
from headrace.core.model.errors import ConfigError
from headrace.rest.app import WorkerParts, create_admin_app, create_app
from headrace.rest.connection import ConnectionLimits
from headrace.rest.server import Endpoint, RestServer, bind


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The sockets of ``listeners`` and of ``admin.listeners``, each in the order of the option."""

    main: Sequence[Endpoint]
    admin: Sequence[Endpoint]

    def port(self, config: WorkerConfig) -> int:
        """Return the port of the listener that other workers use."""
        return self.main[config.listeners.index(config.listener)].port

    @classmethod
    def bound(cls, config: WorkerConfig) -> Endpoints:
        """Listen on the addresses of the options. Raises ConfigError, and then listens on none."""
        main = _bound("listeners", config.listeners, config.tls(LISTENER_TLS))
        try:
            return cls(main, _bound("admin.listeners", config.admin_listeners, config.tls(ADMIN_TLS)))
        except ConfigError:
            _close(main)
            raise


def rest_servers(parts: WorkerParts, endpoints: Endpoints) -> Sequence[RestServer]:
    """Return the servers, which are not started. Raises ConfigError."""
    config = parts.worker.config
    limits = ConnectionLimits(config.access.connections, config.access.receive_timeout)
    servers = [RestServer(create_app(parts), endpoints.main, limits)]
    if endpoints.admin:
        servers.append(RestServer(create_admin_app(parts), endpoints.admin, limits))
    return servers


def _bound(option: str, listeners: Sequence[Listener], tls: tuple[Mapping[str, str], str]) -> list[Endpoint]:
    found: list[Endpoint] = []
    try:
        for each in listeners:
            context = server_context(*tls) if each.scheme == HTTPS else None
            found.append(Endpoint(bind(each.host, each.port, option), context))
    except ConfigError:
        _close(found)
        raise
    return found


def _close(endpoints: Sequence[Endpoint]) -> None:
    for each in endpoints:
        each.socket.close()
