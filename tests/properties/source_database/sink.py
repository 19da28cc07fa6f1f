"""The environment of the sink task: a scripted feed with its group, and a lakehouse whose calls may kill the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from properties.source_database.connector import SentRecord
from properties.source_database.scenario import Death, chance
from properties.source_database.virtual_time import Killed

from headrace.core.batch.held_halves import HALF_TIMEOUT_BEHIND
from headrace.core.connect.paused_tables import PausedTable
from headrace.core.model.actions import Actions
from headrace.core.model.errors import Fenced
from headrace.core.model.events import RowVersion
from headrace.ports import (
    Chunk,
    Commit,
    Divide,
    FeedListener,
    LakeTable,
    MergeCounts,
    OffsetNote,
    TableOptions,
    TopicPartition,
)
from headrace_dev.memory.feed import MemoryRecord

if TYPE_CHECKING:
    from properties.source_database.world import Life

STALLS = (0.02, 0.3, 2.0, 6.0)
"""Seconds between two chunks; a first half of a key change waits for five."""
FIRST_WAITS = (6.0, 12.0, 20.0)
"""Seconds before the first chunk of a partition, while it counts as unread."""
PAUSES = (1.0, 1.0, 1.0, 70.0)
"""Seconds for which a task is paused. The waits of halves begin again after a pause."""

TABLE_PAUSES = (1.0, 6.0, 20.0)
"""Seconds for which one table is paused."""


class Fate:
    """Counts durable steps, and kills the worker at the scheduled ones."""

    def __init__(self, deaths: Sequence[Death]) -> None:
        self._due = {(death.point, death.count, death.before) for death in deaths}
        self._counts: dict[str, int] = {}

    def before(self, point: str) -> None:
        """Call this before a step becomes durable. Raises Killed."""
        self._counts[point] = self._counts.get(point, 0) + 1
        self._perhaps(point, before=True)

    def after(self, point: str) -> None:
        """Call this after a step has become durable. Raises Killed."""
        self._perhaps(point, before=False)

    def _perhaps(self, point: str, *, before: bool) -> None:
        if (point, self._counts[point], before) in self._due:
            self._due.discard((point, self._counts[point], before))
            raise Killed


class MortalTable:
    """A ``ports.LakeTable`` of one life: its calls are counted, its commits judged, and each may kill the worker."""

    def __init__(self, table: LakeTable, name: str, life: Life) -> None:
        self._table = table
        self._name = name
        self._life = life

    def __getattr__(self, name: str) -> Any:
        """Methods without a durable effect are those of the table."""
        self._life.call()
        return getattr(self._table, name)

    def evolve(self, schema: Any, key_fields: Sequence[str]) -> None:
        """Create or change the table."""
        self._durably("schema", self._table.evolve, schema, key_fields)

    def record_tombstones(self, tombstones: Mapping[str, RowVersion], now: int) -> None:
        """Add to the ledger."""
        self._durably("ledger", self._table.record_tombstones, tombstones, now)

    def merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        """Apply the actions."""
        counts: MergeCounts = self._durably("table", self._table.merge, actions, commit)
        return counts

    def truncate(self, floor: RowVersion, commit: Commit) -> None:
        """Remove rows."""
        self._durably("table", self._table.truncate, floor, commit)

    def _durably(self, point: str, do: Callable[..., Any], *arguments: Any) -> Any:
        self._life.call()
        self._life.before(point)
        result = do(*arguments)
        if point == "table":
            self._life.world.judge_commit(self._name)
        self._life.after(point)
        return result


class MortalLakehouse:
    """The lakehouse of one life."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def table(self, namespace: str, name: str, options: TableOptions) -> Any:
        """A handle of this life."""
        return MortalTable(self._life.world.lakehouse.table(namespace, name, options), name, self._life)

    def check(self) -> None:
        """Memory can always be written."""

    def close(self) -> None:
        """Nothing to close."""


class ScriptedFeed:
    """A ``ports.Feed`` that delivers a scenario's records in their order of arrival, from the group's offsets on."""

    def __init__(self, life: Life, divide: Divide | None) -> None:
        self._life = life
        self._world = life.world
        self._divide = divide
        self._epoch = 0
        self._paused = False
        self._throttled: frozenset[str] = frozenset()
        self._wake = asyncio.Event()
        self._script: asyncio.Task[None] | None = None
        self._chunks = 0
        self._put: dict[tuple[str, int], int] = {}

    async def start(self, listener: FeedListener) -> None:
        """Join and begin to fetch."""
        self._listener = listener
        await self._assign()
        self._script = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Leave the group."""
        if self._script is not None:
            self._script.cancel()

    def pause(self) -> None:
        """Stop fetching."""
        self._paused = True

    def resume(self) -> None:
        """Fetch again."""
        self._paused = False
        self._wake.set()

    def throttle(self, topics: Collection[str]) -> None:
        """Fetch no records of these topics."""
        self._throttled = frozenset(topics)
        self._wake.set()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit next offsets; raise Fenced for a member of an older generation."""
        if self._life.is_overtaken:
            raise Fenced("the group has another generation")
        try:
            self._life.before("offsets")
            self._world.committed.update({(each.topic, each.partition): at for each, at in offsets.items()})
            self._world.notes.update({partition: self._notes[partition] for partition in offsets})
            self._life.after("offsets")
        except Killed:
            loop = asyncio.get_running_loop()
            loop.stop()
            await loop.create_future()

    def committed(self) -> Mapping[TopicPartition, OffsetNote]:
        """The committed offsets of the group when the assignment began."""
        return self._begun

    def topic_ids(self) -> Mapping[str, str]:
        """Return none: no topic is created again."""
        return {}

    def note(self, notes: Mapping[TopicPartition, str]) -> None:
        """Commit other notes with the offsets from now on."""
        self._notes |= notes

    def last_caught_up(self) -> Mapping[TopicPartition, float]:
        """The present time for each partition without a record in Kafka that was not put."""
        now = asyncio.get_running_loop().time()
        unread = {(each.topic, each.partition) for each in self._in_kafka() if each.offset >= self._next(each)}
        return {each: -inf if each in unread else now for each in self._partitions}

    def _in_kafka(self) -> Sequence[SentRecord]:
        """All records; if the source is live, those up to the end of the statement that was read last."""
        records = self._world.truth.records
        if not self._world.scenario.pace.live:
            return records
        read = [index for index, each in enumerate(records) if each.offset < self._next(each)]
        newest = max(read, default=0)
        following = (index for index in range(newest, len(records)) if records[index].uid[0] != records[newest].uid[0])
        return records[: next(following, len(records))]

    def _next(self, record: SentRecord) -> int:
        """The offset of its partition that is put next."""
        return self._put.get((record.topic, record.partition), 0)

    def lag(self) -> Mapping[TopicPartition, int]:
        """Not used by the tests."""
        return {}

    def absent(self) -> Sequence[str] | None:
        return None

    @property
    def _partitions(self) -> list[TopicPartition]:
        setup = self._world.scenario.setup
        topics = sorted({setup.topic(table) for table in range(setup.tables)})
        return [TopicPartition(topic, number) for topic in topics for number in range(setup.partitions)]

    async def _assign(self) -> None:
        self._epoch, self._sequence = self._epoch + 1, 0
        offsets, notes = self._world.committed, self._world.notes
        self._begun = {each: OffsetNote(offsets.get(each, 0), notes.get(each, "")) for each in self._partitions}
        self._notes = {each: note.note for each, note in self._begun.items()}
        await self._listener.on_partitions_assigned(self._epoch, self._partitions)

    async def _run(self) -> None:
        try:
            while await self._until_moved():
                await self._listener.on_partitions_revoked(self._partitions)
                await self._assign()
        except Exception as error:
            self._listener.on_failure(error)

    async def _until_moved(self) -> bool:
        """Deliver uncommitted records; return True if the partitions should be assigned again."""
        world, scenario = self._world, self._world.scenario
        begin = dict(world.committed)
        self._put = dict(begin)
        loop, read = asyncio.get_running_loop(), set[tuple[str, int]]()
        began = loop.time()
        for poll in self._polls(begin):
            while (self._paused or self._throttled & {each[0].topic for each in poll}) and not self._life.is_overtaken:
                self._wake.clear()
                await self._wake.wait()
            if self._life.is_overtaken:
                return False
            uid, partitions = poll[-1][-1].uid, {(each[-1].topic, each[-1].partition) for each in poll}
            if scenario.pace.unread and not partitions <= read:
                await asyncio.sleep(FIRST_WAITS[chance(scenario, *uid, self._life.number, 15) % len(FIRST_WAITS)])
            read |= partitions
            await self._listener.put([self._chunk(each, begin) for each in poll])
            for each in poll:
                self._put[each[-1].topic, each[-1].partition] = each[-1].offset + 1
            world.judge.halves_apart |= loop.time() - began > HALF_TIMEOUT_BEHIND
            chunks = range(world.chunks + 1, world.chunks + len(poll) + 1)
            self._chunks += len(poll)
            world.chunks += len(poll)
            pause = chance(scenario, *uid, self._life.number, 3)
            if pause % 100 < scenario.pace.pauses:
                await self._life.task.pause()
                await asyncio.sleep(PAUSES[pause // 100 % len(PAUSES)])
                await self._life.task.resume()
                began = loop.time()
            pause = chance(scenario, *uid, self._life.number, 19)
            if pause % 100 < scenario.pace.pauses:
                self._pause_table(poll[-1][-1].topic, TABLE_PAUSES[pause // 100 % len(TABLE_PAUSES)])
            stall = chance(scenario, *uid, self._life.number, 5)
            await asyncio.sleep(STALLS[stall // 100 % len(STALLS)] if stall % 100 < scenario.pace.stall else 0)
            if any(moved in chunks for moved in scenario.moves):
                return True
        return False

    def _pause_table(self, topic: str, seconds: float) -> None:
        """Pause a table of the topic. The script waits with the next records of the topic, and all later ones."""
        world, task = self._world, self._life.task
        setup = world.scenario.setup
        name = next(world.table_name(number) for number in range(setup.tables) if setup.topic(number) == topic)
        task.set_paused_tables({name: PausedTable((topic,), 0.0)})
        asyncio.get_running_loop().call_later(seconds, task.set_paused_tables, {})

    def _polls(self, begin: Mapping[tuple[str, int], int]) -> Iterator[list[list[SentRecord]]]:
        """The remaining chunks in polls, which have one chunk of a partition at most."""
        poll: list[list[SentRecord]] = []
        for chunk in self._cut(begin):
            partitions = {(each[0].topic, each[0].partition) for each in poll}
            ends = chance(self._world.scenario, *chunk[0].uid, self._life.number, 17) % 2
            if poll and (ends or (chunk[0].topic, chunk[0].partition) in partitions):
                yield poll
                poll = []
            poll.append(chunk)
        if poll:
            yield poll

    def _cut(self, begin: Mapping[tuple[str, int], int]) -> list[list[SentRecord]]:
        """The remaining records in chunks of one partition each."""
        chunks: list[list[SentRecord]] = []
        scenario, ended = self._world.scenario, True
        for record in self._world.truth.arrivals:
            partition = record.topic, record.partition
            if record.offset < begin.get(partition, 0):
                continue
            if ended or (chunks[-1][-1].topic, chunks[-1][-1].partition) != partition:
                chunks.append([])
            chunks[-1].append(record)
            ended = chance(scenario, *record.uid, self._life.number) % scenario.pace.chunk == 0
        return chunks

    def _chunk(self, records: Sequence[SentRecord], begin: dict[tuple[str, int], int]) -> Chunk:
        first, last = records[0], records[-1]
        partition = first.topic, first.partition
        self._world.seen(max(record.version for record in records))
        chunk = Chunk(
            self._epoch,
            self._sequence,
            TopicPartition(*partition),
            [self._as_fetched(record) for record in records],
            begin.get(partition, 0),
            last.offset + 1,
            self._behind(last),
        )
        begin[partition] = last.offset + 1
        self._sequence += 1
        return chunk

    def _behind(self, last: SentRecord) -> int:
        partition = last.topic, last.partition
        if not self._world.scenario.pace.live:
            return self._world.truth.ends[partition] - last.offset - 1
        return sum(
            (record.topic, record.partition) == partition
            and record.offset > last.offset
            and record.uid[0] == last.uid[0]
            for record in self._world.truth.records
        )

    def _as_fetched(self, record: SentRecord) -> MemoryRecord:
        value: Any = record.value if self._divide is None else self._divide(record.value)
        return MemoryRecord(
            record.topic, record.partition, record.offset, record.timestamp, record.key, value, record.headers
        )
