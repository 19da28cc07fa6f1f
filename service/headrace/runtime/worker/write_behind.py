"""Records of a compacted log that are written behind the caller, which never waits for the brokers.

Tests: ``tests/unit/runtime/worker/test_timeline.py``, ``tests/rest/test_status.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from headrace.core.model.errors import HeadraceError
from headrace.ports import CompactedLog

log = logging.getLogger(__name__)

RECORDS_PER_WRITE = 500
_RETRY_SECONDS = 1.0


class WriteBehind:
    """The records that wait to be written, by key: a newer value of a key replaces the one that waits.

    All methods are called on one event loop. ``name`` is for messages; ``written`` receives each record afterwards.
    """

    def __init__(
        self,
        log: CompactedLog,
        name: str,
        written: Callable[[str, bytes | None], None] = lambda key, value: None,
    ) -> None:
        self._log = log
        self._name = name
        self._written = written
        self._waiting: dict[str, bytes | None] = {}
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    def __contains__(self, key: str) -> bool:
        """Return whether a record with this key waits."""
        return key in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        """Write from now on; records may wait already."""
        self._writer = asyncio.create_task(self._write_forever(), name=f"{self._name} writer")

    def put(self, records: Mapping[str, bytes | None]) -> None:
        """Write these records soon; None removes a key."""
        self._waiting.update(records)
        self._wake.set()

    async def close(self, deadline_seconds: float) -> None:
        """Write what waits within the deadline, and stop. Idempotent."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._write_waiting()
        except (TimeoutError, HeadraceError) as error:
            log.warning("%s: %d records were not written: %s", self._name, len(self._waiting), error)

    async def _write_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._write_waiting()
            except HeadraceError as error:
                log.warning("%s: records are not written yet, and the write is retried: %s", self._name, error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()

    async def _write_waiting(self) -> None:
        while records := list(islice(self._waiting.items(), RECORDS_PER_WRITE)):
            await self._log.append(records)
            self._forget(records)

    def _forget(self, written: Iterable[tuple[str, bytes | None]]) -> None:
        for key, value in written:
            if self._waiting.get(key, _ABSENT) == value:
                del self._waiting[key]
            self._written(key, value)


_ABSENT = b"\x00absent"
"""Differs from every value, and from the None of a removal."""
