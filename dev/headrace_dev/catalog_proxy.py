"""An HTTP server before a REST catalog, for catalogs of the tests that answer some requests by themselves."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from headrace_dev.server import LOOPBACK, http

_NOT_FORWARDED = {"connection", "content-length", "host", "transfer-encoding"}


class CatalogProxy(ABC):
    """The catalog at ``upstream``. ``origin`` is the address of this server."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        catalog = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                catalog.handle(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 (names of the base class)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self.origin = f"http://{LOOPBACK}:{self._server.server_port}"

    @abstractmethod
    def handle(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer a request."""

    def start(self) -> None:
        """Answer requests from now on."""
        threading.Thread(target=self._server.serve_forever, name="catalog-proxy", daemon=True).start()

    def stop(self) -> None:
        """Answer no more requests."""
        self._server.shutdown()
        self._server.server_close()

    def send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Return the catalog's answer. Headers of the connection are not sent."""
        sent = {name: value for name, value in headers.items() if name.lower() not in _NOT_FORWARDED}
        return http.request(method, f"{self._upstream}{path}", content=body, headers=sent, timeout=120)


def answer(request: BaseHTTPRequestHandler, status: HTTPStatus, document: Mapping[str, Any] | None) -> None:
    """Answer with a document."""
    content = b"" if document is None else json.dumps(document).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(content)
