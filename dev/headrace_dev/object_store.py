"""A real object store with S3's interface on 127.0.0.1 (versitygw), and a proxy that disturbs it (toxiproxy)."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace_dev.go_tools import tool
from headrace_dev.server import LOOPBACK, Server, accepts, free_ports, http
from headrace_dev.store_sessions import StoreSessions
from headrace_dev.versions import TOXIPROXY, VERSITYGW

ACCESS_KEY, SECRET_KEY, REGION = "headrace-test", "headrace-test-secret", "us-east-1"
_ROOT = ("--access", ACCESS_KEY, "--secret", SECRET_KEY, "--region", REGION)


class ObjectStore:
    """An S3 server with conditional writes, which keeps objects as files below ``root``.

    ``endpoint`` is that of its proxy, which listens on ``host``: ``slow`` and ``killed`` disturb its clients. Readers
    (``reader_settings``) use another server of the same objects, which nothing disturbs. With ``sessions`` the store
    also accepts temporary credentials. With ``tls``, a domain and the files of a certificate and a key for it, clients
    use TLS and find the bucket at its own host in the domain. With ``names_headers`` the log of ``server`` has the
    headers of each request.
    """

    def __init__(
        self,
        root: Path,
        bucket: str = "lake",
        host: str = LOOPBACK,
        *,
        sessions: bool = False,
        tls: tuple[str, Path, Path] | None = None,
        names_headers: bool = False,
    ) -> None:
        folder = self.folder = root.resolve() / "object-store"
        self._objects = folder / "data" / bucket
        self._objects.mkdir(parents=True)
        self.bucket = bucket
        self._port, self._reading, proxied, self._control = free_ports(4)
        self.endpoint = f"http://{host}:{proxied}"
        self._proxied = f"{host}:{proxied}"
        self.direct_endpoint = f"http://{LOOPBACK}:{self._port}"
        """The same server without the proxy, for a client that nothing delays."""
        program = tool("versitygw", "github.com/versity/versitygw/cmd/versitygw", VERSITYGW)
        self.sessions = StoreSessions(folder, program, _ROOT) if sessions else None
        options = self.sessions.gateway_options if self.sessions else ()
        more = ["--debug"] if names_headers else []
        if tls is not None:
            domain, certificate, key = tls
            self.endpoint = f"https://{domain}:{proxied}"
            more += ["--cert", str(certificate), "--key", str(key), "--virtual-domain", domain]

        def gateway(name: str, port: int, more: Sequence[str] = ()) -> Server:
            command = [str(program), *_ROOT, *options, *more, "--port", f"{LOOPBACK}:{port}"]
            return Server(name, [*command, "posix", str(folder / "data")], folder)

        self.server = gateway("object-store", self._port, more)
        self._readers = gateway("object-store-readers", self._reading)
        proxy = tool("server", "github.com/Shopify/toxiproxy/v2/cmd/server", TOXIPROXY)
        self._proxy = Server("object-store-proxy", [str(proxy), "-host", LOOPBACK, "-port", str(self._control)], folder)

    def start(self) -> None:
        """Start the store and its proxy."""
        if self.sessions is not None:
            self.sessions.start()
        self.server.start(lambda: accepts(self._port))
        self._readers.start(lambda: accepts(self._reading))
        self._proxy.start(lambda: accepts(self._control))
        self._order("POST", "/proxies", name="store", listen=self._proxied, upstream=f"{LOOPBACK}:{self._port}")

    def stop(self) -> None:
        """Stop all servers. The objects stay."""
        for server in (self._proxy, self._readers, self.server):
            server.stop()
        if self.sessions is not None:
            self.sessions.server.stop()

    def objects(self, pattern: str) -> Collection[str]:
        """The URIs of the objects whose keys match a pattern of ``Path.glob``."""
        found = self._objects.glob(pattern)
        return {f"s3://{self.bucket}/{path.relative_to(self._objects)}" for path in found if path.is_file()}

    def remove(self, key: str) -> None:
        """Remove an object, if there is one."""
        (self._objects / key).unlink(missing_ok=True)

    def read(self, uri: str) -> str:
        """The text of an object."""
        return (self._objects / uri.removeprefix(f"s3://{self.bucket}/")).read_text()

    @contextmanager
    def killed(self) -> Iterator[None]:
        """``kill -9`` of the store; it runs again after the block, with its objects."""
        self.server.kill()
        try:
            yield
        finally:
            self.server.start(lambda: accepts(self._port))

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Let the store accept connections without an answer during the block."""
        os.killpg(self.server.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.server.pid, signal.SIGCONT)

    @contextmanager
    def slow(self, milliseconds: int, kilobytes_per_second: int) -> Iterator[None]:
        """Delay each answer, and limit its rate, during the block."""
        toxics = "/proxies/store/toxics"
        self._order("POST", toxics, name="delay", type="latency", attributes={"latency": milliseconds})
        self._order("POST", toxics, name="rate", type="bandwidth", attributes={"rate": kilobytes_per_second})
        try:
            yield
        finally:
            for name in ("delay", "rate"):
                self._order("DELETE", f"{toxics}/{name}")

    def catalog_settings(self, catalog: str = "spark.sql.catalog.lake") -> Mapping[str, str]:
        """Return a worker's keys by which an Iceberg catalog stores its tables here."""
        return {
            f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            f"{catalog}.s3.endpoint": self.endpoint,
            f"{catalog}.s3.path-style-access": "true",
            f"{catalog}.s3.access-key-id": ACCESS_KEY,
            f"{catalog}.s3.secret-access-key": SECRET_KEY,
            f"{catalog}.client.region": REGION,
        }

    def reader_settings(self) -> Mapping[str, str]:
        """Return PyIceberg's properties for reading beside the disturbed store."""
        return {
            "s3.endpoint": f"http://{LOOPBACK}:{self._reading}",
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
            "s3.region": REGION,
        }

    def _order(self, method: str, path: str, **body: Any) -> None:
        url = f"http://{LOOPBACK}:{self._control}{path}"
        http.request(method, url, json=body or None, timeout=10).raise_for_status()
