"""OAuth's token endpoint on 127.0.0.1, with TLS, for the client credentials of one client."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs

from support.servers.certificates import Authority

CLIENT, SECRET = "worker-client", "worker-secret"


class TokenEndpoint:
    """Answers ``token()`` to the client with the secret; ``answer`` replaces the status and the document.

    ``forms`` are the decoded bodies of its requests.
    """

    def __init__(self, token: Callable[[], str], authority: Authority) -> None:
        self.token = token
        self.authority = authority
        self.answer: tuple[int, object] | None = None
        self.forms: list[dict[str, list[str]]] = []
        self.url = ""

    def reply(self, authorization: str, body: str) -> tuple[int, object]:
        """Return status and document for a request."""
        self.forms.append(parse_qs(body))
        if self.answer is not None:
            return self.answer
        expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if authorization != f"Basic {expected}":
            return 401, {"error": "invalid_client", "error_description": "no"}
        return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": 300}

    def properties(self, secret: str = SECRET) -> dict[str, str]:
        """The properties of a client of brokers that gets its tokens here."""
        authority = self.authority.pem().decode()
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        options = f'clientId="{CLIENT}" clientSecret="{secret}" ssl.truststore.certificates="{authority}"'
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
            "OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": f"{module} required {options};",
        }


@contextmanager
def token_endpoint(token: Callable[[], str], folder: Path) -> Iterator[TokenEndpoint]:
    """An endpoint that answers within the block."""
    endpoint = TokenEndpoint(token, Authority("provider"))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            status, document = endpoint.reply(self.headers.get("Authorization", ""), body)
            content = document.encode() if isinstance(document, str) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    keys = folder / "token-endpoint.pem"
    keys.write_bytes(endpoint.authority.issue("provider").pem())
    context.load_cert_chain(keys)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    endpoint.url = f"https://127.0.0.1:{server.server_port}/token"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
