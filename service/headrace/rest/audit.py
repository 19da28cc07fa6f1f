"""The audit log: a line for each request that may change something, also for those that are refused.

The logger is ``headrace.audit``. A line has who, what, from where and the result, and neither a query nor a body, which
may contain secrets. Texts of clients are JSON strings, so that they cannot forge a line.
"""

from __future__ import annotations

import json
import logging

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.rest.forward import is_forwarded
from headrace.rest.roles import changes_state

log = logging.getLogger("headrace.audit")

_VALIDATE = "/config/validate"
_SHOWN = 256


class Audit:
    """ASGI middleware around authentication."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or not changes_state(scope["method"]) or scope["path"].endswith(_VALIDATE):
            await self._app(scope, receive, send)
            return
        status = 500  # of an error that the outer layers answer

        async def send_and_see(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope.setdefault("state", {})
        try:
            await self._app(scope, receive, send_and_see)
        finally:
            log.info("%s", _line(scope, status))


def _line(scope: Scope, status: int) -> str:
    state = scope["state"]
    caller = state.get("caller")
    who = caller.name if caller is not None else state.get("certificate", "")
    fields = {
        "user": who or "anonymous",
        "method": scope["method"],
        "path": scope["raw_path"].decode("latin-1").partition("?")[0],
        "client": (scope.get("client") or ("",))[0],
    }
    if proxied := Headers(scope=scope).get("x-forwarded-for"):
        fields["x_forwarded_for"] = proxied
    texts = [f"{name}={json.dumps(value[:_SHOWN])}" for name, value in fields.items()]
    return " ".join((*texts, f"status={status}", f"from_worker={str(is_forwarded(scope)).lower()}"))
