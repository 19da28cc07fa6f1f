"""AWS's STS for tests: ``AssumeRoleWithWebIdentity``, by which pods exchange their service account's token for keys.

versitygw has this call too, but asks only issuers on public addresses for their keys.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from headrace_dev.object_store import REGION
from headrace_dev.server import LOOPBACK
from headrace_dev.store_sessions import ROLE_ARN, Session, StoreSessions

_NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


class WebIdentity:
    """Issues credentials of ``sessions`` that last at least ``seconds``, for the content of the file ``token``.

    ``ends`` has the end of each in seconds since 1970, ``refused`` counts requests with other tokens or roles.
    """

    def __init__(self, sessions: StoreSessions, token: Path, seconds: float) -> None:
        self.ends: list[float] = []
        self.refused = 0
        self._sessions, self._token, self._seconds = sessions, token, seconds
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                service._answer(self, {name: values[0] for name, values in parse_qs(body.decode()).items()})

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self.environment = {
            "AWS_REGION": REGION,
            "AWS_ROLE_ARN": ROLE_ARN,
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
            "AWS_ENDPOINT_URL_STS": f"http://{LOOPBACK}:{self._server.server_port}",
        }
        """The variables that Kubernetes gives to pods on AWS, and the address of this service."""

    def start(self) -> None:
        """Answer requests from now on."""
        threading.Thread(target=self._server.serve_forever, name="web-identity", daemon=True).start()

    def stop(self) -> None:
        """Answer no more requests."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        wanted = ("AssumeRoleWithWebIdentity", ROLE_ARN, self._token.read_text())
        if (form.get("Action"), form.get("RoleArn"), form.get("WebIdentityToken")) == wanted:
            session = self._sessions.issue(self._seconds)
            self.ends.append(session.expires)
            status, text = HTTPStatus.OK, _credentials(session)
        else:
            self.refused += 1
            status, text = HTTPStatus.FORBIDDEN, _DENIED
        content = text.encode()
        request.send_response(status)
        request.send_header("Content-Type", "text/xml")
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)


_DENIED = (
    f'<ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>Sender</Type><Code>AccessDenied</Code>'
    "<Message>the token or the role is not known</Message></Error></ErrorResponse>"
)


def _credentials(session: Session) -> str:
    ends = datetime.fromtimestamp(session.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f'<AssumeRoleWithWebIdentityResponse xmlns="{_NAMESPACE}"><AssumeRoleWithWebIdentityResult>'
        f"<Credentials><AccessKeyId>{session.access_key}</AccessKeyId>"
        f"<SecretAccessKey>{session.secret_key}</SecretAccessKey>"
        f"<SessionToken>{escape(session.token)}</SessionToken><Expiration>{ends}</Expiration></Credentials>"
        f"<AssumedRoleUser><Arn>{ROLE_ARN}</Arn><AssumedRoleId>headrace</AssumedRoleId></AssumedRoleUser>"
        "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    )
