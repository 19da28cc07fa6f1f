"""Commit the offsets of durable records to the consumer group.

Offsets are committed after the table commit, over what is durable in every table. The group refuses a commit that comes
after it has assigned the partitions to another task. It stores what arrives last, so only one commit is in progress at
any time; those that wait for it become one, with all offsets that have moved by then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from headrace.core.model.errors import Fenced, Retriable
from headrace.ports import Feed, TopicPartition
from headrace.runtime import failpoints
from headrace.runtime.observation import Observer

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class CommittedOffsets:
    """The offsets of one assignment.

    ``mark_durable`` is called, on a thread, with offsets before which nothing is read again. ``turn`` orders the
    commits of all assignments of a task.
    """

    _connector: str
    _feed: Feed
    _mark_durable: Callable[[Mapping[TopicPartition, int]], None]
    _observer: Observer
    _in_thread: Callable[..., Awaitable[object]]
    _turn: asyncio.Lock
    _uncommitted: dict[TopicPartition, int] = field(default_factory=dict)
    _durable: dict[TopicPartition, int] = field(default_factory=dict)

    def begins(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether this is the first chunk of a partition; its offset is where the assignment begins."""
        if partition in self._durable:
            return False
        self._durable[partition] = offset
        return True

    def on_durable(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Register next offsets: all records below them are durable."""
        self._uncommitted.update(offsets)

    async def quiet(self) -> None:
        """Wait for the end of the commit in progress, if there is one."""
        async with self._turn:
            pass

    async def commit(self) -> None:
        """Commit the registered offsets, after the commit in progress.

        What cannot be committed for now, or is cancelled, is tried again with the next commit of the assignment. What
        the group refuses is dropped.
        """
        async with self._turn:
            offsets, self._uncommitted = self._uncommitted, {}
            if not offsets:
                return
            self._durable.update(offsets)
            try:
                await self._in_thread(failpoints.reach, failpoints.BEFORE_OFFSET_COMMIT)
                began = time.monotonic()
                await self._feed.commit(offsets)
                self._observer.on_commit(offsets, time.monotonic() - began)
                await self._in_thread(self._mark_durable, offsets)
            except Fenced as error:
                self._observer.on_failed_commit(refused=True)
                log.warning("%s: offsets were refused, the records are read again: %s", self._connector, error)
            except Retriable as error:
                self._observer.on_failed_commit(refused=False)
                log.warning("%s: offsets could not be committed yet: %s", self._connector, error)
                self._uncommitted = {**offsets, **self._uncommitted}
            except asyncio.CancelledError:
                self._uncommitted = {**offsets, **self._uncommitted}
                raise

    async def confirm(self, partitions: Mapping[TopicPartition, int]) -> None:
        """Check that the group still assigns the partitions to this task, which may have been suspended. Raises Fenced.

        What is committed once more is durable, or where the assignment began. Raises Retriable as well.
        """
        async with self._turn:
            durable = self._durable.items()
            await self._feed.commit({partition: offset for partition, offset in durable if partition in partitions})
