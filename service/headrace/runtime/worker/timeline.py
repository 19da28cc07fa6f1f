"""The timeline of a worker: records events, and writes them behind to the status topic (``core/connect/timeline.py``).

An event never delays or fails what it reports. It waits in memory until it is written, and is dropped if too many wait.
A command, which is no worker, appends its events when it ends. All methods except ``record_soon`` are called on the
worker's event loop.

Tests: ``tests/unit/runtime/worker/test_timeline.py``, ``tests/rest/test_timeline.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime
from functools import partial

from headrace.core.connect.timeline import (
    BY_WORKER,
    Kind,
    TimelineEvent,
    TimelineState,
    Trigger,
    encode_event,
    short,
)
from headrace.core.model.errors import Retriable
from headrace.ports import CompactedLog
from headrace.runtime.worker.write_behind import RECORDS_PER_WRITE, WriteBehind

log = logging.getLogger(__name__)
_MOST_WAITING = 2000
"""Records that wait to be written. An outage of the brokers must not fill the memory."""

_APPEND_SECONDS = 60.0

_trigger: ContextVar[Trigger] = ContextVar("timeline_trigger", default=BY_WORKER)


@contextmanager
def triggered_by(trigger: Trigger) -> Iterator[None]:
    """Attribute the changes that the block requests to ``trigger``."""
    token = _trigger.set(trigger)
    try:
        yield
    finally:
        _trigger.reset(token)


def current_trigger() -> Trigger:
    """Return what has triggered the change that runs. What runs behind it afterwards is triggered by the worker."""
    return _trigger.get()


class Timeline:
    """The events of all workers, and the writer of this worker's events."""

    def __init__(self, log: CompactedLog, worker_id: str, now: Callable[[], datetime]) -> None:
        self._worker_id = worker_id
        self._now = now
        self.state = TimelineState()
        self._waiting = WriteBehind(log, "Timeline", self._on_written)
        self._last = 0
        self.dropped = 0
        """The number of events that were dropped because too many waited."""
        self._drops = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Write events from now on. The status topic has been read to its end, so that new keys follow the old ones."""
        self._last = max(self._last, self.state.last_time(self._worker_id))
        self._loop = asyncio.get_running_loop()
        self._waiting.start()

    def record(
        self,
        kind: Kind,
        connector: str | None = None,
        text: str = "",
        *,
        task: int | None = None,
        table: str | None = None,
        trigger: Trigger = BY_WORKER,
    ) -> None:
        """Add an event of now. ``text`` is shown like a trace: without values of cells, or of options that changed."""
        if len(self._waiting) >= _MOST_WAITING:
            self.dropped += 1
            if not self._drops:
                log.warning("Timeline: events are dropped, because %d records wait to be written", len(self._waiting))
            self._drops = True
            return
        self._last = max(int(self._now().timestamp() * 1000), self._last + 1)
        event = TimelineEvent(kind, self._last, self._worker_id, connector, task, table, short(text), trigger)
        records: dict[str, bytes | None] = {}
        if (former := self.state.same_before(event)) is not None:
            since = former.time if former.since is None else former.since
            event = replace(event, count=former.count + 1, since=since)
            self.state.remove(former.key)
            records[former.key] = None
        self.state.add(event)
        records[event.key] = encode_event(event)
        self._waiting.put(records | dict.fromkeys(self.state.outside(RECORDS_PER_WRITE)))

    def record_soon(self, connector: str, task: int, kind: Kind, table: str, text: str) -> None:
        """Add an event of a table, from any thread."""
        record = partial(self.record, kind, connector, text, task=task, table=table)
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended, and with it the worker
                self._loop.call_soon_threadsafe(record)

    def apply(self, key: str, value: bytes | None) -> None:
        """Apply a record of the status topic. Raises any exception for one that is not usable."""
        if key not in self._waiting:  # else this worker has decided about the event since
            self.state.apply(key, value)

    async def close(self, deadline_seconds: float = 2.0) -> None:
        """Write the waiting events within the deadline, and stop. Idempotent."""
        await self._waiting.close(deadline_seconds)

    def _on_written(self, key: str, value: bytes | None) -> None:
        if value is None:
            self.state.apply(key, None)
        self._drops = False


async def append_events(statuses: CompactedLog, events: Sequence[TimelineEvent]) -> None:
    """Append events of a process that is no worker to the status log, which is not open. Raises HeadraceError.

    The workers read them, and remove what is outside of the bound with their next event.
    """
    try:
        async with asyncio.timeout(_APPEND_SECONDS):
            await statuses.start(lambda key, value: None)
            await statuses.append([(event.key, encode_event(event)) for event in events])
    except TimeoutError as error:
        raise Retriable(f"the status topic could not be written within {_APPEND_SECONDS:g} s") from error
    finally:
        await statuses.close()
