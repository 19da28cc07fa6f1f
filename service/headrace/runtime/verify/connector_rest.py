"""Pauses a running connector for a moment, through its worker's REST interface.

For `headrace verify --repair` on a table that its task writes all the time: of two commits to one data file the second
fails, so a task that always commits first would never let a repair succeed.
"""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from headrace.core.connect.lifecycle import State
from headrace.runtime.verify.table_verifier import Clock

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
REST_SECONDS = 60.0
"""The time in which tasks must finish their write in flight."""
_POLL_SECONDS = 0.2
_RESUME_ATTEMPTS = 5


class ConnectorRest:
    """Pauses and resumes one connector, whose worker listens at ``host`` and ``port``."""

    def __init__(self, host: str, port: int, connector: str, clock: Clock) -> None:
        self._host = host
        self._port = port
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
            self._resume()

    def _resume(self) -> None:
        for _ in range(_RESUME_ATTEMPTS):
            if self._request("PUT", "resume") is not None:
                log.warning("connector %s: resumed", self._connector)
                return
            self._clock.sleep(1.0)
        log.error("connector %s: not resumed; send PUT /connectors/%s/resume", self._connector, self._connector)

    def _states(self) -> set[str]:
        """The states of connector and tasks; none if the worker does not answer or does not have the connector."""
        status = self._request("GET", "status")
        if not isinstance(status, dict) or "connector" not in status:
            return set()
        return {status["connector"]["state"], *(task["state"] for task in status["tasks"])}

    def _request(self, method: str, path: str) -> Any:
        """Return the answer's JSON, ``{}`` if it is empty, and None after an error or without an answer."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, f"/connectors/{quote(self._connector, safe='')}/{path}")
            answer = connection.getresponse()
            body = answer.read()
            return json.loads(body or b"{}") if answer.status < http.client.BAD_REQUEST else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()


def reachable(host: str) -> str:
    """Return the address of a worker that listens on ``host``: this machine if it listens on every interface."""
    return "localhost" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - nothing is bound to it
