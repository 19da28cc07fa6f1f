"""A REST catalog that commits the tables of a transaction one after the other, as several catalogs do.

It stands before another REST catalog, which answers all other requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import quote

from headrace_dev.catalog_proxy import CatalogProxy, answer

_TRANSACTION = "/transactions/commit"


class SplittingCatalog(CatalogProxy):
    """The catalog at ``upstream``. ``url`` is its address in place of that. It may refuse to drop tables."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.refuses_drops = False
        self.url = self.origin

    def handle(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        """Commit a transaction table by table, and forward all other requests."""
        if request.path.endswith(_TRANSACTION):
            answer(request, *self._commit(request.path.removesuffix(_TRANSACTION), body, dict(request.headers)))
        elif request.command == "DELETE" and self.refuses_drops:
            error = {"message": "not allowed", "type": "ForbiddenException", "code": HTTPStatus.FORBIDDEN}
            answer(request, HTTPStatus.FORBIDDEN, {"error": error})
        else:
            answer(request, *self._forward(request.command, request.path, body, dict(request.headers)))

    def _commit(
        self, prefix: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[HTTPStatus, Mapping[str, Any] | None]:
        """Commit each table, up to the first that is refused."""
        for change in json.loads(body)["table-changes"]:
            table = change["identifier"]
            namespace = quote("\x1f".join(table["namespace"]), safe="")
            path = f"{prefix}/namespaces/{namespace}/tables/{quote(table['name'], safe='')}"
            status, document = self._forward("POST", path, json.dumps(change).encode(), headers)
            if status >= HTTPStatus.BAD_REQUEST:
                return status, document
        return HTTPStatus.NO_CONTENT, None

    def _forward(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[HTTPStatus, Mapping[str, Any] | None]:
        received = self.send(method, path, body, headers)
        # The upstream's own address would lead a client past this catalog.
        text = received.text.replace(self._upstream, self.url)
        return HTTPStatus(received.status_code), json.loads(text) if text else None
