"""Require credentials and a role for requests (``docs/security.md``), and log who changes something.

A request without valid credentials is answered with 401 and a challenge, one whose caller lacks a role with 403. Health
checks have no credentials, so every path under ``/health`` is open.

The audit log (logger ``headrace.audit``) has a line for each request that may change something, also for those that are
refused. A line has who, what, from where and the result, and neither a query nor a body, which may contain secrets.
Texts of clients are JSON strings, so that they cannot forge a line.

Tests: ``tests/rest/test_basic_auth.py``, ``tests/rest/test_bearer_tokens.py``, ``tests/rest/test_audit.py``.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.config import WorkerConfig
from headrace.config.password_file import PasswordFile
from headrace.rest.access import Role, changes_state, required_role
from headrace.rest.bearer_tokens import BearerTokens, InvalidToken, KeysUnavailable
from headrace.rest.errors import error_response
from headrace.rest.route import is_forwarded, path_of, user_of

log = logging.getLogger("headrace.audit")

_REALM = "KafkaConnect"
_NEEDED = "User cannot access the resource."
"""Kafka Connect's text."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request. ``role`` is None for a caller without a role of this API."""

    name: str
    role: Role | None


class Refused(Exception):
    """Credentials are missing or invalid. ``challenge_error`` is RFC 6750's code, for an invalid token."""

    def __init__(self, message: str, challenge_error: str | None = None) -> None:
        super().__init__(message)
        self.challenge_error = challenge_error


class Credentials:
    """Verifies the ``Authorization`` header of requests, with each configured scheme."""

    def __init__(self, config: WorkerConfig) -> None:
        """Read the password file. Raises ConfigError."""
        file = config.basic_auth.file
        self._passwords = PasswordFile(file) if file is not None else None
        self._roles: Mapping[str, Role] = {user: Role.of(role) for user, role in config.basic_auth.roles}
        self._tokens = BearerTokens.of(config)

    @property
    def are_required(self) -> bool:
        return self._passwords is not None or self._tokens is not None

    async def caller(self, authorization: str) -> Caller:
        """Return the caller. Raises Refused, and KeysUnavailable."""
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "basic" and self._passwords is not None:
            try:  # RFC 7617
                user, colon, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
            except (binascii.Error, ValueError) as error:
                raise Refused(_NEEDED) from error
            if not colon or not self._passwords.accepts(user, password):
                raise Refused(_NEEDED)
            return Caller(user, self._roles.get(user, Role.ADMIN))
        if scheme.lower() == "bearer" and self._tokens is not None:
            try:
                return Caller(*await self._tokens.caller(value.strip()))
            except InvalidToken as error:
                raise Refused(f"{_NEEDED} The token is not valid: {error}", "invalid_token") from error
        raise Refused(_NEEDED)

    def challenges(self, error: str | None) -> list[str]:
        """Return the values of ``WWW-Authenticate``: one for each scheme."""
        basic = [f'Basic realm="{_REALM}"'] if self._passwords is not None else []
        detail = f', error="{error}"' if error else ""
        bearer = [f'Bearer realm="{_REALM}"{detail}'] if self._tokens is not None else []
        return basic + bearer


class Authentication:
    """ASGI middleware that lets requests pass whose callers have the role that they need.

    It stores the caller in ``scope["state"]["caller"]``.
    """

    def __init__(self, app: ASGIApp, credentials: Credentials, *, open_metrics: bool) -> None:
        self._app = app
        self._credentials = credentials
        self._open_metrics = open_metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        is_open = path == "/health" or path.startswith("/health/") or (path == "/metrics" and self._open_metrics)
        if scope["type"] != "http" or is_open:
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._credentials.caller(Headers(scope=scope).get("authorization", ""))
        except Refused as error:
            answer = error_response(401, str(error))
            for challenge in self._credentials.challenges(error.challenge_error):
                answer.headers.append("WWW-Authenticate", challenge)
        except KeysUnavailable as error:
            answer = error_response(503, f"The token cannot be verified now: {error}")
        else:
            scope.setdefault("state", {})["caller"] = caller
            needed = required_role(scope["method"], path)
            if caller.role is not None and caller.role >= needed:
                await self._app(scope, receive, send)
                return
            has = f"has the role {caller.role}" if caller.role is not None else "has no role"
            answer = error_response(403, f"The request needs the role {needed}; its caller {has}")
        await answer(scope, receive, send)


_CHANGE_NOTHING = ("/config/validate", "/config/preview")
"""The ends of the paths of requests that have a body and change nothing."""
_SHOWN = 256


class Audit:
    """ASGI middleware around authentication."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not changes_state(scope["method"]) or scope["path"].endswith(_CHANGE_NOTHING):
            await self._app(scope, receive, send)
            return
        status = 500  # of an error that the outer layers answer

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope.setdefault("state", {})
        try:
            await self._app(scope, receive, send_and_note_status)
        finally:
            log.info("%s", _audit_line(scope, status))


def _audit_line(scope: Scope, status: int) -> str:
    fields = {
        "user": user_of(scope) or "anonymous",
        "method": scope["method"],
        "path": path_of(scope),
        "client": (scope.get("client") or ("",))[0],
    }
    if proxied := Headers(scope=scope).get("x-forwarded-for"):
        fields["x_forwarded_for"] = proxied
    texts = [f"{name}={json.dumps(value[:_SHOWN])}" for name, value in fields.items()]
    return " ".join((*texts, f"status={status}", f"from_worker={str(is_forwarded(scope)).lower()}"))
