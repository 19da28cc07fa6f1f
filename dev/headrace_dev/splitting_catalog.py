"""A REST catalog that commits the tables of a transaction one after the other, as several catalogs do.

It stands before another REST catalog, which answers all other requests.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import httpx

from headrace_dev.server import LOOPBACK, http

_TRANSACTION = "/transactions/commit"
_NOT_FORWARDED = {"connection", "content-length", "host", "transfer-encoding"}


class SplittingCatalog:
    """The catalog at ``upstream``. ``url`` is its address in place of that. It may refuse to drop tables."""

    def __init__(self, upstream: str) -> None:
        self.refuses_drops = False
        self._upstream = upstream
        catalog = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                catalog._handle(self)

            do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 (names of the base class)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{LOOPBACK}:{self._server.server_port}"

    def start(self) -> None:
        """Answer requests from now on."""
        threading.Thread(target=self._server.serve_forever, name="splitting-catalog", daemon=True).start()

    def stop(self) -> None:
        """Answer no more requests."""
        self._server.shutdown()
        self._server.server_close()

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_FORWARDED}
        if request.path.endswith(_TRANSACTION):
            answer = self._commit(request.path.removesuffix(_TRANSACTION), body, headers)
        elif request.command == "DELETE" and self.refuses_drops:
            error = {"message": "not allowed", "type": "ForbiddenException", "code": httpx.codes.FORBIDDEN}
            answer = httpx.Response(httpx.codes.FORBIDDEN, json={"error": error})
        else:
            answer = self._send(request.command, request.path, body, headers)
        # The upstream's own address would lead a client past this catalog.
        content = answer.text.replace(self._upstream, self.url).encode()
        request.send_response(answer.status_code)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)

    def _commit(self, prefix: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
        """Commit each table, up to the first that is refused."""
        for change in json.loads(body)["table-changes"]:
            table = change["identifier"]
            namespace = quote("\x1f".join(table["namespace"]), safe="")
            path = f"{prefix}/namespaces/{namespace}/tables/{quote(table['name'], safe='')}"
            answer = self._send("POST", path, json.dumps(change).encode(), headers)
            if not answer.is_success:
                return answer
        return httpx.Response(httpx.codes.NO_CONTENT)

    def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
        return http.request(method, f"{self._upstream}{path}", content=body, headers=headers, timeout=120)
