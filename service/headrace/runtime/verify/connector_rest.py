"""A running connector, through its worker's REST interface: pauses it for a moment, and restarts its tables.

The pause is for `headrace verify --repair` on a table that its task writes all the time: of two commits to one data
file the second fails, so a task that always commits first would never let a repair succeed.
"""

from __future__ import annotations

import json
import logging
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headrace.config import WorkerConfig
from headrace.config.password_file import read_users
from headrace.config.rest_options import authority
from headrace.config.tls import client_context
from headrace.config.worker_options import LISTENER_TLS
from headrace.core.connect.lifecycle import State
from headrace.core.model.errors import Retriable
from headrace.runtime.http_client import HttpClient, HttpResponse, TooLarge, basic
from headrace.runtime.verify.table_verifier import Clock

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
REST_SECONDS = 60.0
"""The time in which tasks must finish their write in flight."""
_POLL_SECONDS = 0.2
_RESUME_ATTEMPTS = 5


class ConnectorRest:
    """One connector, whose worker's REST API is at ``url``.

    ``authorization`` is the header of that name in each request.
    """

    def __init__(
        self,
        url: str,
        connector: str,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        authorization: str | None = None,
    ) -> None:
        self._url = f"{url}/connectors/{quote(connector, safe='')}"
        self._http = HttpClient(ANSWER_SECONDS, tls)
        self._headers = {} if authorization is None else {"Authorization": authorization}
        self._connector = connector
        self._clock = clock

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the connector's tasks during the block, if the connector runs and its worker answers.

        A connector that does not run stays as it is. Another one is resumed after the block, also after an error.
        """
        if State.RUNNING not in self._states():
            yield
            return
        log.warning("connector %s: paused while rows are repaired", self._connector)
        try:
            if self._request("PUT", "pause") is not None:
                deadline = self._clock.now() + REST_SECONDS
                while State.RUNNING in self._states() and self._clock.now() < deadline:
                    self._clock.sleep(_POLL_SECONDS)
            yield
        finally:
            for _ in range(_RESUME_ATTEMPTS):
                if self._request("PUT", "resume") is not None:
                    log.warning("connector %s: resumed", self._connector)
                    break
                self._clock.sleep(1.0)
            else:
                log.error("connector %s: not resumed; send PUT /connectors/%s/resume", self._connector, self._connector)

    def table(self, table: str) -> Mapping[str, Any] | None:
        """Return the report on a lake table; None if no change of it was read. Raises Retriable."""
        answer = self._answer("GET", f"tables/{quote(table, safe='')}")
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        document: Mapping[str, Any] = json.loads(answer.body)
        return document

    def restart_table(self, table: str) -> None:
        """Restart a lake table, and accept it as it is if it was dropped or rolled back. Raises Retriable."""
        self._answer("POST", f"tables/{quote(table, safe='')}/restart?missing=recreate")

    def _answer(self, method: str, path: str) -> HttpResponse:
        """Return the answer of a success, or of status 404. Raises Retriable."""
        try:
            answer = self._http.send(method, f"{self._url}/{path}", self._headers)
        except (OSError, TooLarge) as error:
            raise Retriable(
                f"connector {self._connector}: its worker at {self._url} does not answer: {error}"
            ) from error
        if answer.status >= HTTPStatus.BAD_REQUEST and answer.status != HTTPStatus.NOT_FOUND:
            raise Retriable(f"connector {self._connector}: the worker refuses {method} {path}: {answer.status}")
        return answer

    def _states(self) -> set[str]:
        """The states of connector and tasks; none if the worker does not answer or does not have the connector."""
        status = self._request("GET", "status")
        if not isinstance(status, dict) or "connector" not in status:
            return set()
        return {status["connector"]["state"], *(task["state"] for task in status["tasks"])}

    def _request(self, method: str, path: str) -> object:
        """Return the answer's JSON, ``{}`` if it is empty, and None after an error or without an answer."""
        try:
            answer = self._http.send(method, f"{self._url}/{path}", self._headers)
            if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                log.warning("connector %s: the worker refuses %s %s: %s", self._connector, method, path, answer.status)
            return json.loads(answer.body or b"{}") if answer.status < HTTPStatus.BAD_REQUEST else None
        except (OSError, TooLarge, ValueError):
            return None


def connector_rest(config: WorkerConfig, connector: str, clock: Clock) -> ConnectorRest:
    """Return the REST interface of the worker that the worker file is for. Raises ConfigError.

    The worker's certificate proves the advertised name, so an https worker is reached by that. The credentials are
    those of the first user in ``rest.basic.auth.file`` that may pause a connector, or the bearer token in the
    environment variable ``HEADRACE_REST_TOKEN``.
    """
    listener = config.listener
    host, tls = reachable(listener.host), None
    if config.advertises_https:
        host, tls = config.rest.advertised_host or host, client_context(*config.tls(LISTENER_TLS))
    url = f"{'http' if tls is None else 'https'}://{authority(host, listener.port)}"
    authorization = None
    if token := os.environ.get("HEADRACE_REST_TOKEN", "").strip():
        authorization = f"Bearer {token}"
    elif config.basic_auth.file is not None:
        only_reads = {user for user, role in config.basic_auth.roles if role == "read"}
        users = read_users(Path(config.basic_auth.file))
        credentials = (f"{user}:{password}" for user, password in users.items() if user not in only_reads)
        authorization = next(map(basic, credentials), None)
    return ConnectorRest(url, connector, clock, tls, authorization)


def reachable(host: str) -> str:
    """Return the address of a worker that listens on ``host``: this machine if it listens on every interface."""
    return "localhost" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - nothing is bound to it
