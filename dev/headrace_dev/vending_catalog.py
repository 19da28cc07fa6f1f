"""A REST catalog that requires OAuth tokens and issues credentials for the storage, both of which end after seconds.

It stands before another REST catalog, which answers all requests for tables. Catalogs such as Polaris, Lakekeeper and
Unity Catalog do the same with longer times.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

from headrace_dev.catalog_proxy import CatalogProxy, answer
from headrace_dev.object_store import ObjectStore

CLIENT, CLIENT_SECRET = "headrace", "headrace-catalog-secret"
_DELEGATION = "X-Iceberg-Access-Delegation"
# Those that this catalog handles itself.
_NOT_FORWARDED = {"authorization", _DELEGATION.lower()}
_CREDENTIALS = "credentials"


class VendingCatalog(CatalogProxy):
    """The catalog at ``upstream`` with tokens and credentials; ``store`` has sessions.

    ``token_seconds`` is the life of a token, ``credential_seconds`` the least life of credentials when they are issued;
    both may change at any time. With ``renewable`` the answer for a table contains the address of new credentials.
    ``count`` has the numbers of tokens, credentials and refused requests.
    """

    def __init__(self, upstream: str, store: ObjectStore, *, renewable: bool = True) -> None:
        super().__init__(upstream)
        assert store.sessions is not None, "a store with sessions"
        self.token_seconds, self.credential_seconds = 20.0, 20.0
        self.count: Counter[str] = Counter()
        self._store, self._sessions, self._renewable = store, store.sessions, renewable
        self._tokens: dict[str, float] = {}
        self.url = f"{self.origin}/iceberg"
        self.token_url = f"{self.origin}/token"

    # -- requests ------------------------------------------------------------------------------------------------------

    def handle(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        """Require a token, issue credentials, and forward all other requests."""
        if request.path == "/token":
            answer(request, *self._token(body, request.headers.get("Authorization", "")))
        elif not self._is_authorized(request.headers.get("Authorization", "")):
            self.count["refused"] += 1
            error = {"message": "the token has ended", "type": "NotAuthorizedException", "code": 401}
            answer(request, HTTPStatus.UNAUTHORIZED, {"error": error})
        elif request.path.endswith(f"/{_CREDENTIALS}"):
            self.count["renewed"] += 1
            answer(request, HTTPStatus.OK, {"storage-credentials": [{"prefix": "s3", "config": self._credentials()}]})
        else:
            self._forward(request, body)

    def _token(self, body: bytes, authorization: str) -> tuple[HTTPStatus, Mapping[str, Any]]:
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        basic = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        in_form = (form.get("client_id"), form.get("client_secret")) == (CLIENT, CLIENT_SECRET)
        knows_secret = in_form or authorization == f"Basic {basic}"
        has_token = self._is_authorized(authorization) or time.time() < self._tokens.get(
            form.get("subject_token", ""), 0
        )
        if not (knows_secret or has_token):
            return HTTPStatus.UNAUTHORIZED, {"error": "invalid_client"}
        self.count["tokens"] += 1
        token = secrets.token_hex(20)
        self._tokens[token] = time.time() + self.token_seconds
        kind = "urn:ietf:params:oauth:token-type:access_token"
        seconds = int(self.token_seconds)
        answer = {"access_token": token, "token_type": "bearer", "issued_token_type": kind, "expires_in": seconds}
        return HTTPStatus.OK, answer

    def _is_authorized(self, header: str) -> bool:
        return self._is_valid(header.removeprefix("Bearer "))

    def _is_valid(self, token: str) -> bool:
        return time.time() < self._tokens.get(token, 0)

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        path = request.path.removeprefix("/iceberg")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_FORWARDED}
        received = self.send(request.command, path, body, headers)
        status = HTTPStatus(received.status_code)
        if not received.content or not received.is_success:
            answer(request, status, received.json() if received.content else None)
            return
        # The upstream's own address would lead a client past this catalog.
        document = json.loads(received.text.replace(self._upstream, self.url))
        if "metadata" in document and request.headers.get(_DELEGATION):
            document["config"] = {**document.get("config", {}), **self._credentials(), **self._renewal(document, path)}
        answer(request, status, document)

    def _renewal(self, document: Mapping[str, Any], path: str) -> Mapping[str, str]:
        if not self._renewable:
            return {}
        table = path.partition("?")[0]
        if not table.rpartition("/")[0].endswith("/tables"):  # a table that is created: its name is not in the path
            return {}
        return {"client.refresh-credentials-endpoint": f"{table.lstrip('/')}/{_CREDENTIALS}"}

    def _credentials(self) -> Mapping[str, str]:
        self.count["credentials"] += 1
        session = self._sessions.issue(self.credential_seconds)
        return {
            "s3.access-key-id": session.access_key,
            "s3.secret-access-key": session.secret_key,
            "s3.session-token": session.token,
            "s3.session-token-expires-at-ms": str(int(1000 * session.expires)),
        }
