"""A running connector put to rest for a moment, through its worker's REST interface.

For `headrace verify --repair` on a table that its task writes all the time: of two commits to one data file the second
fails, and a task that is always first would keep a repair out for ever.
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
"""How long tasks may take to finish what they have in hand."""
_POLL_SECONDS = 0.2
_RESUMING = 5


class ConnectorRest:
    """Pauses and resumes one connector; ``host`` and ``port`` are where its worker listens."""

    def __init__(self, host: str, port: int, connector: str, clock: Clock) -> None:
        self._host = host
        self._port = port
        self._connector = connector
        self._clock = clock

    @contextmanager
    def paused(self) -> Iterator[None]:
        """For the time of the block no task of the connector writes, if it runs and its worker can be asked.

        One that does not run is left as it is. Afterwards it is resumed, whatever happens in the block.
        """
        if State.RUNNING not in self._states():
            yield
            return
        log.warning("connector %s is paused while rows are written beside its task", self._connector)
        try:
            if self._order("pause"):
                self._wait_until_at_rest()
            yield
        finally:
            self._resume()

    def _wait_until_at_rest(self) -> None:
        deadline = self._clock.now() + REST_SECONDS
        while State.RUNNING in self._states() and self._clock.now() < deadline:
            self._clock.sleep(_POLL_SECONDS)

    def _resume(self) -> None:
        for _ in range(_RESUMING):
            if self._order("resume"):
                log.warning("connector %s is resumed", self._connector)
                return
            self._clock.sleep(1.0)
        log.error("connector %s could not be resumed: PUT /connectors/%s/resume", self._connector, self._connector)

    def _states(self) -> set[str]:
        """Those of connector and tasks; none where the worker does not answer or does not have it."""
        status = self._ask("GET", "status")
        if not isinstance(status, dict) or "connector" not in status:
            return set()
        return {status["connector"]["state"], *(task["state"] for task in status["tasks"])}

    def _order(self, verb: str) -> bool:
        return self._ask("PUT", verb) is not None

    def _ask(self, method: str, path: str) -> Any:
        """The answer's JSON, ``{}`` if it has none; None for an error, or where nobody answers."""
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
    """Where to ask a worker that listens on ``host``: on this machine if it is every interface."""
    return "localhost" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - nothing is bound to it
