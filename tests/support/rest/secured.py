"""Workers of one cluster on memory stores, behind their real servers, with the options of a secured REST API."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from support.fix_asyncio import eventually
from support.rest.worker_api import WORKER, Api
from support.servers.certificates import Authority

from headrace.config import WorkerConfig
from headrace.config.tls import client_context
from headrace.rest.server import Endpoints, rest_servers
from headrace_dev.memory.stores import MemoryStores

HTTPS = "https://127.0.0.1:0"
USERS = "ann=ann's password\nbob=bob-password\neve=eve-password\n"
ROLES = "bob:operate,eve:read"


def basic(user: str, password: str) -> dict[str, str]:
    """The header of a user."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


ANN, BOB, EVE = basic("ann", "ann's password"), basic("bob", "bob-password"), basic("eve", "eve-password")


class SecuredWorker:
    """A running worker. ``url`` is that of its first listener, ``admin`` that of its first admin listener."""

    def __init__(self, api: Api, endpoints: Endpoints) -> None:
        self.api = api
        self.endpoints = endpoints
        self.url = f"{api.worker.config.listeners[0].scheme}://127.0.0.1:{endpoints.main[0].port}"
        admin = api.worker.config.admin_listeners
        self.admin = f"{admin[0].scheme}://127.0.0.1:{endpoints.admin[0].port}" if admin else ""


@asynccontextmanager
async def secured_workers(count: int, **properties: str) -> AsyncIterator[list[SecuredWorker]]:
    """Workers with these options; the first one is the leader."""
    workers: list[SecuredWorker] = []
    servers = []
    try:
        for _ in range(count):
            stores = MemoryStores(shared=workers[0].api.stores) if workers else MemoryStores()
            config = WorkerConfig({**WORKER, "listeners": HTTPS, **properties})
            endpoints = Endpoints.listen(config)
            api = Api(stores, host="127.0.0.1", port=endpoints.port(config), **{"listeners": HTTPS, **properties})
            workers.append(SecuredWorker(api, endpoints))
            for server in rest_servers(api.parts, endpoints):
                server.start()
                servers.append(server)
            await api.worker.start()
        yield workers
    finally:
        for worker in reversed(workers):
            await worker.api.worker.stop()
        for server in servers:
            await server.stop()
        await eventually(no_open_transport)


def no_open_transport() -> bool:
    """Return whether the loop has closed all connections. It closes those with TLS some time after their server."""
    transports = getattr(asyncio.get_running_loop(), "_transports", {})
    return all(each._sock is None for each in list(transports.values()))


def tls(folder: Path, authority: Authority) -> dict[str, str]:
    """Options of a worker with a certificate of the authority, which it trusts."""
    (folder / "tls.pem").write_bytes(authority.issue("worker").pem())
    (folder / "ca.pem").write_bytes(authority.pem())
    return {
        "listeners.https.ssl.keystore.location": str(folder / "tls.pem"),
        "listeners.https.ssl.truststore.location": str(folder / "ca.pem"),
    }


def users(folder: Path, text: str = USERS, roles: str = ROLES) -> dict[str, str]:
    """Options of basic authentication: ann is an admin, bob operates, eve reads."""
    (folder / "users.properties").write_text(text)
    return {"rest.basic.auth.file": str(folder / "users.properties"), "rest.basic.auth.roles": roles}


def client(authority: Authority, auth: httpx.Auth | None = None, own: Sequence[bytes] = ()) -> httpx.AsyncClient:
    """An HTTP client that trusts the authority. ``own`` has its key and certificate in PEM."""
    properties: dict[str, str | None] = {"ssl.truststore.certificates": authority.pem().decode()}
    if own:
        properties["ssl.keystore.key"], properties["ssl.keystore.certificate.chain"] = (part.decode() for part in own)
    return httpx.AsyncClient(verify=client_context(properties), auth=auth, timeout=20)


class Bearer(httpx.Auth):
    """Sends a bearer token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request):  # type: ignore[no-untyped-def]  # a generator of httpx
        """Add the header."""
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request
