"""One update of a warm table from the poll to Iceberg: the modules that docs/architecture.md names, and few frames.

The frames are those on the stacks of all threads where the record is handed over: consumer thread, event loop, decoding
thread, agent and writing thread.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.fix_spark import Warehouse
from support.kafka.feed_harness import until
from support.kafka.kafka_harness import QUICK, KafkaHarness, producer
from support.records.envelopes import change, key
from support.repository.way import check_page, ours, stack

from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.core.connect.table_activity import LastBatch
from headrace.core.decode.envelope import TopicDecoder
from headrace.runtime.task.chunk_decoder import ChunkDecoder
from headrace.runtime.task.flow_control import unlimited
from headrace.runtime.task.sink_task import SinkTask
from headrace.runtime.task.table_lane import TableLane
from headrace.runtime.task.task_factory import SinkTaskFactory
from headrace.runtime.threads import WorkerThreads
from headrace_connectors.lakehouse.direct.direct_table import DirectTable
from headrace_dev.kafka import Kafka

COMMIT = DirectTable.commit
HAND_OVER = asyncio.run_coroutine_threadsafe
DELIVER = ("headrace_connectors/kafka/member.py", "GroupMember._deliver")
JSON = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}


class Way:
    """The frames of Headrace's packages, in the order of their first call."""

    def __init__(self) -> None:
        self.frames: dict[tuple[str, str], None] = {}
        self.committed = False

    def note(self, called: Callable[..., Any]) -> None:
        """Add the stack of the caller, outermost first, from the delivery of records on, and the called function."""
        frames = [*ours(called.__code__), *stack(sys._getframe(2), DELIVER)]
        if called is HAND_OVER and DELIVER not in frames:
            return  # the offsets of the batch before, on their way to the consumer thread
        if not self.committed:
            self.frames |= dict.fromkeys(reversed(frames))
        self.committed |= called is COMMIT


@contextmanager
def traced(way: Way, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Record the stack at every hand-over."""

    def noting(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            way.note(original)
            return original(*arguments, **named)

        patched.setattr(owner, name, noted)

    with monkeypatch.context() as patched:
        noting(asyncio, "run_coroutine_threadsafe")
        noting(SinkTask, "put")
        noting(ChunkDecoder, "decode")
        noting(TopicDecoder, "decode")
        noting(TableLane, "put")
        noting(TableLane, "_write")
        noting(DirectTable, "commit")
        yield


def last_batch(task: SinkTask) -> LastBatch | None:
    """The last batch of the only table."""
    return next((report.last_batch for report in task.reports()), None)


@pytest.mark.stack
@pytest.mark.spark
def test_the_way_of_an_update(
    stack_kafka: Kafka, warehouse: Warehouse, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update passes the modules of the table in docs/architecture.md, in their order."""
    topic, way = unique("way"), Way()
    config = {"name": topic, "connector.class": "LakehouseSink", "topics": topic, **JSON, **QUICK}
    typed = sink_connector_config({**config, "table.namespace": "way"}, WorkerDefaults({}, "1.0"))
    failures: list[BaseException] = []

    async def scenario() -> None:
        async with KafkaHarness(stack_kafka, unique).cluster() as cluster:
            await cluster.create(topic)
            with WorkerThreads.start(2) as threads:
                factory = SinkTaskFactory(
                    cluster.feeds,
                    warehouse.lakehouse,
                    lambda *_: None,
                    threads,
                    unlimited(),  # type: ignore[arg-type,return-value]
                    sources={},
                )
                task = await factory(topic, 0, typed, failures.append)
                await task.start()
                try:
                    await sent(task, "c", 1)
                    with traced(way, monkeypatch):
                        await sent(task, "u", 2)
                finally:
                    await task.stop()

    async def sent(task: SinkTask, operation: str, lsn: int) -> None:
        before = last_batch(task)
        with producer(stack_kafka) as made:
            made.produce(topic, change(operation, {"id": 1, "name": f"name {lsn}"}, lsn), key({"id": 1}))
        await until(lambda: bool(failures) or last_batch(task) != before, "the change is written", 120)
        assert not failures

    asyncio.run(scenario())
    check_page("One update, step by step", list(way.frames), 20, 12)
