"""An object store that ignores ``If-None-Match``, which no local server does: a proxy before one that applies it.

The condition is a part of a request's signature, so the proxy cannot remove it. When the store refuses a request
because the object exists, the proxy removes the object and sends the same request again.
"""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from headrace_dev.object_store import ObjectStore
from headrace_dev.server import LOOPBACK

_CONDITION = "If-None-Match"
_OF_CONNECTION = {"connection", "content-length", "date", "server", "transfer-encoding"}


class UnconditionalStore:
    """The objects of ``store`` at ``endpoint``. ``ignored`` counts the conditions that did not hold."""

    def __init__(self, store: ObjectStore) -> None:
        self.ignored = 0
        upstream = urlsplit(store.direct_endpoint).netloc
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer, content = self._send(body)
                if answer.status == HTTPStatus.PRECONDITION_FAILED and _CONDITION in self.headers:
                    outer.ignored += 1
                    store.remove(unquote(urlsplit(self.path).path).removeprefix(f"/{store.bucket}/"))
                    answer, content = self._send(body)
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in _OF_CONNECTION:
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815 (names of the base class)

            def _send(self, body: bytes) -> tuple[HTTPResponse, bytes]:
                """Send the request as it was signed: its path, and the headers with the host of the proxy."""
                connection = HTTPConnection(upstream, timeout=60)
                try:
                    connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                    for name, value in self.headers.items():
                        if name.lower() not in ("connection", "expect"):  # of each connection, and not signed
                            connection.putheader(name, value)
                    connection.endheaders(body or None)
                    answer = connection.getresponse()
                    return answer, answer.read()
                finally:
                    connection.close()

            def log_message(self, *_: object) -> None:
                """Write no access log."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://{LOOPBACK}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), name="unconditional", daemon=True).start()

    def close(self) -> None:
        """Answer no more requests."""
        self._server.shutdown()
        self._server.server_close()
