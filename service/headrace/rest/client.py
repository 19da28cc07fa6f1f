"""A client of Kafka Connect's REST API, for commands that an operator runs.

Tests: ``tests/rest/test_apply.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from headrace.core.model.errors import ConfigError, RestError
from headrace.runtime.http_client import HttpClient, TooLarge, basic

DEFAULT_URL = "http://127.0.0.1:8083"
_ANSWER_SECONDS = 100.0
"""Longer than the time in which a worker answers (``rest.request.timeout.ms``)."""
_MAX_ANSWER_BYTES = 256 * 1024 * 1024
_REBALANCE_SECONDS = 60.0
_RETRY_SECONDS = 1.0
_REBALANCING = ("Cannot complete request momentarily", "Cannot complete request because of a conflicting operation")
"""The answers 409 after which Kafka Connect's clients repeat a request."""
_MAX_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a client proves who it is: user and password, a bearer token, or a certificate. All are optional.

    ``ca`` is a PEM file of authorities that are trusted instead of the system's; ``certificate`` is a PEM file with the
    client's certificate and key.
    """

    user: str | None = None
    password: str | None = None
    token: str | None = None
    ca: Path | None = None
    certificate: Path | None = None

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"

    def header(self) -> dict[str, str]:
        """Return the header Authorization, none without credentials."""
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        if self.user is None:
            return {}
        return {"Authorization": basic(f"{self.user}:{self.password or ''}")}


class ConnectClient:
    """Sends requests to one worker. Every method raises ConfigError if it cannot be reached, RestError for errors.

    It follows no redirects, so credentials go to the given address only. ``option`` and ``login`` are what sets the
    address and the credentials, for messages.
    """

    def __init__(
        self,
        url: str,
        credentials: Credentials,
        option: str = "--url",
        login: str = "--user and HEADRACE_PASSWORD, or HEADRACE_TOKEN",
        answer_seconds: float = _ANSWER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port  # the second is invalid only when it is read
        except ValueError as error:
            raise ConfigError(f"{option}: {url!r} is not http://host:port or https://host:port") from error
        if parts.username is not None:
            raise ConfigError(f"{option}: the URL contains credentials; set {login} instead")
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigError(f"{option}: {url!r} is not http://host:port or https://host:port")
        tls = None
        if parts.scheme == "https":
            try:
                tls = ssl.create_default_context(cafile=credentials.ca)
                if credentials.certificate is not None:
                    tls.load_cert_chain(credentials.certificate)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"--ca, --cert: cannot be read: {error.strerror or error}") from error
        self._http = HttpClient(answer_seconds, tls, max_bytes=_MAX_ANSWER_BYTES)
        self._base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._headers = {"Accept": "application/json", **credentials.header()}
        self._url, self._option, self._login = url, option, login
        self._clock, self._sleep = clock, sleep

    def get(self, path: str, query: Mapping[str, str | list[str]] | None = None) -> Any:
        return self.request("GET", path, query)

    def request(
        self, method: str, path: str, query: Mapping[str, str | list[str]] | None = None, body: object = None
    ) -> Any:
        """Return the JSON answer, None for an empty one. Repeats the request while the workers rebalance."""
        target = self._base + path + (f"?{urlencode(query, doseq=True)}" if query else "")
        deadline = self._clock() + _REBALANCE_SECONDS
        while True:
            status, answer = self._exchange(method, target, body)
            message = answer.get("message") if isinstance(answer, dict) else None
            if status < HTTPStatus.MULTIPLE_CHOICES:
                return answer
            busy = status == HTTPStatus.CONFLICT and str(message).startswith(_REBALANCING)
            if not busy or self._clock() > deadline:
                raise RestError(self._error(method, status, message), status)
            self._sleep(_RETRY_SECONDS)

    def _exchange(self, method: str, target: str, body: object) -> tuple[int, Any]:
        content = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({} if content is None else {"Content-Type": "application/json"})
        try:
            answer = self._http.send(method, target, headers, content)
        except (OSError, TooLarge) as error:
            cause = str(error) or type(error).__name__
            raise ConfigError(
                f"{self._url}: does not answer: {cause}; start a worker there, or set {self._option}"
            ) from error
        try:
            return answer.status, json.loads(answer.body) if answer.body.strip() else None
        except ValueError as error:
            if answer.status >= HTTPStatus.BAD_REQUEST:
                return answer.status, None
            raise ConfigError(
                f"{self._url}: the answer is not JSON; set {self._option} to a worker's REST API"
            ) from error

    def _error(self, method: str, status: int, message: object) -> str:
        if status == HTTPStatus.UNAUTHORIZED:
            return f"{self._url}: refused (401); set {self._login}"
        if status == HTTPStatus.FORBIDDEN:
            verb = "read" if method == "GET" else "change"
            return (
                f"{self._url}: refused (403); this user may not {verb} connectors: use another one, or grant the role"
            )
        return str(message)[:_MAX_SHOWN] if message else f"{self._url}: answered with status {status}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that sends requests to a worker."""
    parser.add_argument("--url", help=f"a worker's REST API (default: HEADRACE_URL, or {DEFAULT_URL})")
    parser.add_argument("--user", metavar="NAME", help="user for basic authentication; password: HEADRACE_PASSWORD")
    parser.add_argument("--ca", type=Path, metavar="PEM", help="authorities to trust for https")
    parser.add_argument("--cert", type=Path, metavar="PEM", help="the client's certificate and key for https")


def url_of(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> str:
    return options.url or environment.get("HEADRACE_URL") or DEFAULT_URL


def credentials_of(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Credentials:
    """Return the credentials from the command line and the environment."""
    return Credentials(
        options.user or environment.get("HEADRACE_USER"),
        environment.get("HEADRACE_PASSWORD"),
        environment.get("HEADRACE_TOKEN"),
        options.ca,
        options.cert,
    )


def segment(name: str) -> str:
    return quote(name, safe="")
