"""The property of lost tables: a task refuses a table if and only if it lacks records that are not read again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st
from properties.searching import examples
from support.kafka.feed_harness import until
from support.records.envelopes import change, key
from support.task.sink_task_harness import GROUP, TOPIC, Harness, running

from headrace.core.model.errors import TableMissing
from headrace.ports import TopicPartition
from headrace.runtime.threads import WorkerThreads
from headrace_dev.memory import MemoryLakehouse
from headrace_dev.memory.feed import MemoryBroker

TABLE = "shop_public_items"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(2)]

STEPS = st.lists(
    st.sampled_from(["row 0", "row 1", "run", "killed", "drop", "copy", "restore", "no history"]),
    min_size=2,
    max_size=14,
)


class Story:
    """A topic of two partitions whose rows are never deleted, its table, and the faults of both."""

    def __init__(self, threads: WorkerThreads) -> None:
        self._harness = Harness(MemoryBroker(), MemoryLakehouse(), threads)
        self._group = self._harness.broker.group(GROUP)
        self._rows: dict[int, tuple[TopicPartition, int]] = {}
        self._harness.lakehouse.table("lake", TABLE, self._harness.task()._options.tables)
        self._copies = [self._harness.lakehouse.copy("lake", TABLE)]

    async def tell(self, steps: Sequence[str]) -> None:
        """Run all steps, and then a last task."""
        await self._harness.broker.create_topic(TOPIC, partitions=len(PARTITIONS))
        for step in [*steps, "row 0", "run"]:
            await self._step(step)

    async def _step(self, step: str) -> None:
        lakehouse = self._harness.lakehouse
        match step.split():
            case ["row", partition]:
                self._append(PARTITIONS[int(partition)])
            case ["run"]:
                await self._run()
            case ["killed"]:  # between the table and the offsets
                offsets, notes = dict(self._group.committed), dict(self._group.notes)
                await self._run()
                self._group.committed, self._group.notes = offsets, notes
            case ["drop"]:
                lakehouse.drop("lake", TABLE)
            case ["copy"]:
                self._copies.append(lakehouse.copy("lake", TABLE))
            case ["restore"]:
                lakehouse.restore("lake", TABLE, self._copies[-1])
                self._copies[-1] = lakehouse.copy("lake", TABLE)
            case ["no", "history"]:
                lakehouse.table("lake", TABLE, self._harness.task()._options.tables).forget_history()

    def _append(self, partition: TopicPartition) -> None:
        number = len(self._rows)
        row = change("c", {"id": number, "name": "n"}, 100 + number)
        offset = self._harness.broker.append(TOPIC, row, key({"id": number}), partition.partition)
        self._rows[number] = partition, offset

    async def _run(self) -> None:
        """A new task reads to the end, or fails because rows are lost, and then reads all records again."""
        lost, waiting = bool(self._missing(read=True)), bool(self._missing(read=False))
        await self._to_the_end()
        failures = [type(error) for error in self._harness.failures]
        assert failures == ([TableMissing] if lost and waiting else [])
        if failures:
            self._harness.failures.clear()
            self._group.committed, self._group.notes = dict.fromkeys(PARTITIONS, 0), {}
            await self._to_the_end()
            assert self._harness.failures == []
        assert not waiting or set(self._harness.rows(TABLE)) == {f"={number}" for number in self._rows}

    async def _to_the_end(self) -> None:
        ends = {each: end for each in PARTITIONS if (end := self._harness.broker.end(each))}
        async with running(self._harness.task()):
            await until(
                lambda: bool(self._harness.failures) or self._group.committed.items() >= ends.items(), "the end"
            )

    def _missing(self, *, read: bool) -> list[int]:
        """The rows that the table lacks and whose records are not read again; or those still to be read."""
        table = self._harness.rows(TABLE)
        return [
            number
            for number, (partition, offset) in self._rows.items()
            if (offset < self._group.committed.get(partition, 0)) == read and not (read and f"={number}" in table)
        ]


@examples(100)
@given(STEPS)
@example(["row 0", "run", "copy", "row 1", "run", "restore"])  # the copy has no record of the partition
@example(["row 0", "run", "row 1", "run", "no history"])
def test_a_table_is_refused_if_and_only_if_it_lacks_records(steps: list[str]) -> None:
    """A table is dropped, copied or restored, with tasks killed before the offset commit.

    Records that are read again are not lost.
    """
    with WorkerThreads.start(2) as threads:
        asyncio.run(Story(threads).tell(steps))
