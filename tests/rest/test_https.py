"""The REST API over https: several listeners, client certificates, renewal, and ``admin.listeners``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from support.rest.secured import client, secured_workers, tls
from support.rest.worker_api import SHOP
from support.servers.certificates import Authority

from headrace.config import WorkerConfig
from headrace.core.model.errors import ConfigError
from headrace.rest.server import Endpoints

pytestmark = pytest.mark.anyio
SHOP_REQUEST = {"name": "shop", "config": SHOP}


async def test_a_worker_serves_https_and_http_at_once(tmp_path: Path) -> None:
    """Each listener has its own scheme; the advertised one is in Location headers."""
    authority = Authority()
    options = {
        **tls(tmp_path, authority),
        "listeners": "https://127.0.0.1:0,http://127.0.0.1:0",
        "rest.advertised.listener": "https",
    }
    async with secured_workers(1, **options) as [worker], client(authority) as http:
        created = await http.post(f"{worker.url}/connectors", json=SHOP_REQUEST)
        assert (created.status_code, created.headers["location"]) == (201, f"{worker.url}/connectors/shop")
        plain = f"http://127.0.0.1:{worker.endpoints.main[1].port}"
        assert (await http.get(f"{plain}/connectors")).json() == ["shop"]
        with pytest.raises(httpx.TransportError):
            await http.get(worker.url.replace("https", "http"))
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            async with client(Authority("other")) as stranger:
                await stranger.get(worker.url)
        assert (await http.get(f"{worker.url}/connectors")).json() == ["shop"]


async def test_clients_without_a_certificate_are_refused_and_probes_are_not(tmp_path: Path) -> None:
    """With ``ssl.client.auth=required``, an http address in admin.listeners answers probes and Prometheus."""
    authority = Authority()
    options = {
        **tls(tmp_path, authority),
        "listeners.https.ssl.client.auth": "required",
        "admin.listeners": "http://127.0.0.1:0",
    }
    key, certificate, rest = authority.issue("client").pem().partition(b"-----BEGIN CERTIFICATE")
    async with secured_workers(1, **options) as [worker], client(authority) as stranger:
        with pytest.raises(httpx.TransportError):
            await stranger.get(worker.url)
        async with client(authority, own=(key, certificate + rest)) as known:
            assert (await known.get(f"{worker.url}/connectors")).status_code == 200
        for path in ("/health", "/metrics"):
            assert (await stranger.get(f"{worker.admin}{path}")).status_code == 200


async def test_a_renewed_certificate_needs_no_restart(tmp_path: Path) -> None:
    """New connections get the new certificate, also of an authority that the old one was not from."""
    old, new = Authority("old"), Authority("new")
    async with secured_workers(1, **tls(tmp_path, old)) as [worker]:
        async with client(old) as http:
            assert (await http.get(worker.url)).status_code == 200
        tls(tmp_path, new)
        async with client(new) as http:
            assert (await http.get(worker.url)).status_code == 200
        with pytest.raises(httpx.ConnectError):
            async with client(old) as http:
                await http.get(worker.url)


async def test_loggers_move_to_their_own_listener(tmp_path: Path) -> None:
    """As in Kafka Connect: ``/admin`` is 404 on listeners, and connectors are 404 on the admin listener."""
    authority = Authority()
    own = {name.replace("listeners", "admin.listeners", 1): value for name, value in tls(tmp_path, authority).items()}
    options = {**own, "listeners": "http://127.0.0.1:0", "admin.listeners": "https://127.0.0.1:0"}
    async with secured_workers(1, **options) as [worker], client(authority) as http:
        assert worker.url.startswith("http:")
        assert (await http.get(f"{worker.url}/admin/loggers")).status_code == 404
        assert (await http.put(f"{worker.admin}/admin/loggers/a.b", json={"level": "DEBUG"})).status_code == 200
        assert (await http.get(f"{worker.admin}/admin/loggers/a.b")).json()["level"] == "DEBUG"
        assert (await http.get(f"{worker.admin}/connectors")).status_code == 404


async def test_a_handshake_that_stops_blocks_nobody(tmp_path: Path) -> None:
    """Connections that send nothing are closed in time, and others are answered."""
    authority = Authority()
    options = {**tls(tmp_path, authority), "rest.receive.timeout.ms": "2000"}
    async with secured_workers(1, **options) as [worker], client(authority) as http:
        port = worker.endpoints.main[0].port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        assert (await http.get(worker.url)).status_code == 200
        for reader, writer in silent:
            async with asyncio.timeout(60):
                assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()


def test_a_listener_that_cannot_be_served_holds_no_port(tmp_path: Path) -> None:
    """A worker without a key store does not start, and leaves its ports to another one."""
    worker = {"bootstrap.servers": "a:1", "listeners": "http://127.0.0.1:0"}
    config = WorkerConfig({**worker, "admin.listeners": "https://127.0.0.1:0"}, distributed=False)
    with pytest.raises(ConfigError, match=r"^ssl\.keystore\.location: is not set"):
        Endpoints.listen(config)
