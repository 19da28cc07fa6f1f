"""HTTP servers on 127.0.0.1: a schema registry, or another one, that answers by path."""

from __future__ import annotations

import json
import ssl
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """A server that responds by path, over TLS if given, and records the headers and bodies of requests.

    A deque has the bodies of the next answers.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, tuple[int, object]] = {}
        self.moved: dict[str, str] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.posted: list[tuple[str, bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, dict(self.headers)))
                code, body = outer.answers.get(self.path, (404, {"error_code": 40403, "message": "Schema not found"}))
                body = body.popleft() if isinstance(body, deque) else body
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(302 if self.path in outer.moved else code)
                if self.path in outer.moved:
                    self.send_header("Location", outer.moved[self.path])
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def do_POST(self) -> None:
                outer.posted.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.do_GET()

            def log_message(self, *_: object) -> None:
                """Write no access log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"{'https' if tls else 'http'}://{self.host}"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
