"""Posts what begins and what ends to be wrong to ``alerts.webhook.url``, for those without Prometheus.

A worker looks at its own tasks and their tables, as ``headrace status`` does, and posts the difference to what the
receiver has accepted last. So a receiver that was away gets one request with what is wrong then, and nothing waits in
memory for it. A worker that starts has posted nothing: it posts what is wrong again.

Tests: ``tests/rest/test_webhook.py``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from headrace.config.worker_options import AlertSettings
from headrace.core.connect.problems import Problem, problems
from headrace.core.model.errors import RestError
from headrace.rest import entities
from headrace.runtime.http_client import HttpClient, TooLarge
from headrace.runtime.retry import pause_after
from headrace.runtime.trace import summary
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.worker import Worker

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
_LONGEST_PAUSE = 60.0
_CONNECTORS_AT_ONCE = 100
MOST_POSTED = 100
"""Problems in a request: thousands of tables may fail at once, and the receiver is to read the first of them."""

_Key = tuple[str, str, str, str]


class AlertWebhook:
    """Posts the problems of a worker. Never raises, and nothing of the worker waits for it."""

    def __init__(self, settings: AlertSettings, worker: Worker, herder: Herder) -> None:
        self._url = settings.webhook_url
        self._authorization = settings.webhook_authorization
        self._worker = worker
        self._herder = herder
        self._http = HttpClient(_ANSWER_SECONDS)
        self._posted: dict[_Key, Problem] = {}
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look, if there is an address."""
        if self._url:
            self._running = asyncio.create_task(self._run(), name="alert-webhook")

    async def stop(self) -> None:
        """Cancel what is being posted. Idempotent."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running

    async def _run(self) -> None:
        failures = 0
        while True:
            await asyncio.sleep(max(LOOK_SECONDS, pause_after(failures, _LONGEST_PAUSE) if failures else 0.0))
            try:
                is_accepted = not self._worker.ready or await self._post_difference(await self._look())
            except Exception as error:  # whatever it is: later failures have to be posted
                log.warning("Webhook: the alerts cannot be determined now: %s", summary(error))
                is_accepted = False
            failures = 0 if is_accepted else failures + 1

    async def _look(self) -> dict[_Key, Problem]:
        """Return what is wrong with the connectors and tasks of this worker, without what only waits."""
        statuses: dict[str, Mapping[str, Any]] = {}
        for count, name in enumerate(self._herder.connectors(), 1):
            with suppress(RestError):
                statuses[name] = self._own(entities.connector_state_info(self._herder.status(name)))
            if count % _CONNECTORS_AT_ONCE == 0:
                await asyncio.sleep(0)
        now = time.time()
        tables = [{"connector": name, **report.document(task, now)} for name, task, report in self._herder.all_tables()]
        found = (problem for problem in problems(statuses, tables) if problem.state)
        return {(problem.connector, problem.task, problem.table, problem.state): problem for problem in found}

    def _own(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a status without the tasks of other workers, which post these themselves."""
        own = self._worker.worker_id
        connector = status["connector"]
        if connector["worker_id"] != own:
            connector = {**connector, "trace": None}
        tasks = [task for task in status["tasks"] if task["worker_id"] == own]
        return {**status, "connector": connector, "tasks": tasks}

    async def _post_difference(self, current: dict[_Key, Problem]) -> bool:
        """Post what has begun and ended since the last request that was accepted. Return False if this one was not."""
        begun = [problem for key, problem in current.items() if key not in self._posted]
        ended = [problem for key, problem in self._posted.items() if key not in current]
        if not begun and not ended:
            return True
        document = {
            "worker": self._worker.worker_id,
            "begun": [problem._asdict() for problem in begun[:MOST_POSTED]],
            "ended": [problem._asdict() for problem in ended[:MOST_POSTED]],
            "more": max(0, len(begun) - MOST_POSTED) + max(0, len(ended) - MOST_POSTED),
        }
        headers = {"Content-Type": "application/json"}
        if self._authorization:
            headers["Authorization"] = self._authorization
        try:
            answer = await self._http.request("POST", self._url, headers, json.dumps(document).encode())
        except (OSError, TooLarge) as error:
            log.warning("Webhook: alerts.webhook.url does not accept alerts, which are sent again: %s", error)
            return False
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            log.warning("Webhook: alerts.webhook.url answers %d; alerts are sent again", answer.status)
            return False
        self._posted = current
        return True
