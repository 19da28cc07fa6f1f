"""The timeline of a worker: records events, and writes them behind to the status topic (``core/connect/timeline.py``).

An event never delays or fails what it reports. It waits in memory until it is written, and is dropped if too many wait.
All methods except ``record_soon`` are called on the worker's event loop.

Tests: ``tests/unit/runtime/worker/test_timeline.py``, ``tests/rest/test_timeline.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from itertools import islice

from headrace.core.connect.timeline import (
    BY_WORKER,
    Kind,
    TimelineEvent,
    TimelineState,
    Trigger,
    encode_event,
    short,
)
from headrace.core.model.errors import HeadraceError
from headrace.ports import CompactedLog

log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_RECORDS_PER_WRITE = 500
_MOST_WAITING = 2000
"""Records that wait to be written. An outage of the brokers must not fill the memory."""

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
        self._log = log
        self._worker_id = worker_id
        self._now = now
        self.state = TimelineState()
        self._waiting: dict[str, bytes | None] = {}
        self._last = 0
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self.dropped = 0
        """The number of events that were dropped because too many waited."""
        self._drops = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Write events from now on. The status topic has been read to its end, so that new keys follow the old ones."""
        self._last = max(self._last, self.state.last_time(self._worker_id))
        self._loop = asyncio.get_running_loop()
        self._writer = asyncio.create_task(self._write_forever(), name="timeline-writer")

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
        if (repeated := self.state.repeated(event)) is not None:
            since = repeated.time if repeated.since is None else repeated.since
            event = TimelineEvent(
                *(kind, event.time, self._worker_id, connector, task, table, event.text, trigger),
                repeated.count + 1,
                since,
            )
            self.state.remove(repeated.key)
            self._waiting[repeated.key] = None
        self.state.add(event)
        self._waiting[event.key] = encode_event(event)
        self._waiting.update(dict.fromkeys(self.state.outside(_RECORDS_PER_WRITE)))
        self._wake.set()

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
        writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._write_waiting()
        except (TimeoutError, HeadraceError) as error:
            log.warning("Timeline: %d records were not written: %s", len(self._waiting), error)

    async def _write_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._write_waiting()
            except HeadraceError as error:
                log.warning("Timeline: events are not written yet, and the write is retried: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()

    async def _write_waiting(self) -> None:
        while records := list(islice(self._waiting.items(), _RECORDS_PER_WRITE)):
            await self._log.append(records)
            for key, value in records:
                if self._waiting.get(key, _ABSENT) == value:
                    del self._waiting[key]
                if value is None:
                    self.state.apply(key, None)
            self._drops = False


_ABSENT = b"\x00absent"
"""Differs from every value, and from the None of a removal."""
