"""The compacted log, against brokers that return errors or disappear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.protocol.admin import DescribeConfigsRequest_v0, DescribeConfigsResponse_v0
from aiokafka.protocol.fetch import FetchRequest_v4, FetchResponse_v4
from aiokafka.protocol.offset import OffsetRequest_v2, OffsetResponse_v2
from aiokafka.protocol.transaction import InitProducerIdRequest_v0, InitProducerIdResponse_v0
from support.fix_asyncio import eventually
from support.kafka.scripted_kafka import NODE, ScriptedKafka, batch

from headrace.core.model.errors import Retriable
from headrace_connectors.kafka import aiokafka_patches
from headrace_connectors.kafka import log as module
from headrace_connectors.kafka.log import KafkaLog, LogTopic

TOPIC = LogTopic("configs", "config.storage.topic", 2, 1)


@pytest.fixture(autouse=True)
def retry_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait before a retry to 10 ms."""
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)


class Storage:
    """Two partitions; ``records`` are their batches by partition and offset."""

    def __init__(self, records: dict[tuple[int, int], bytes]) -> None:
        self.records = records

    def fetch(self, request: Any) -> FetchResponse_v4:
        """Return the batches at the requested offsets."""
        [(topic, partitions)] = request.topics
        found = [(number, self.records.get((number, offset), b"")) for number, offset, _ in sorted(partitions)]
        return FetchResponse_v4(0, [(topic, [(number, 0, 9, 9, None, data) for number, data in found])])


def ends(request: Any) -> OffsetResponse_v2:
    """Both partitions begin and end at 0 when the log starts."""
    return OffsetResponse_v2(
        0, [(TOPIC.name, [(number, 0, -1, 0) for _, all_of in request.topics for number, _ in all_of])]
    )


@asynccontextmanager
async def following(storage: Storage, applied: Callable[[str, bytes | None], None]) -> AsyncIterator[ScriptedKafka]:
    """Open a log that follows its topic on one broker."""
    async with ScriptedKafka({TOPIC.name: [NODE, NODE]}, answers(storage)) as kafka, opened(applied, kafka):
        yield kafka


def answers(storage: Storage) -> dict[Any, Any]:
    """Return the responses of a broker with this storage."""
    return {
        DescribeConfigsRequest_v0: lambda _: DescribeConfigsResponse_v0(0, [(0, None, 2, TOPIC.name, [])]),
        FetchRequest_v4: storage.fetch,
        OffsetRequest_v2: ends,
        InitProducerIdRequest_v0: lambda _: InitProducerIdResponse_v0(0, 0, 5, 0),
    }


@asynccontextmanager
async def opened(applied: Callable[[str, bytes | None], None], *brokers: ScriptedKafka) -> AsyncIterator[KafkaLog]:
    """Open a log that is configured with these brokers."""
    servers = ",".join(broker.bootstrap_servers for broker in brokers)
    log = KafkaLog(TOPIC, {"bootstrap_servers": servers, "metadata_max_age_ms": 50, "retry_backoff_ms": 1})
    await log.start(applied)
    try:
        yield log
    finally:
        await log.close()


def test_a_topic_that_brokers_do_not_list_for_a_moment() -> None:
    """A topic that is missing in the metadata for a while is continued at its position, not read from the start."""

    async def scenario() -> None:
        seen = list[str]()
        storage = Storage({(0, 0): batch(0, (b"a", b"1"), (b"b", b"2"))})
        async with following(storage, lambda key, _: seen.append(key)) as kafka:
            await eventually(lambda: len(seen) == 2)
            listed, kafka.topics = kafka.topics, {}
            asked = kafka.asked["MetadataRequest_v1"]
            await eventually(lambda: kafka.asked["MetadataRequest_v1"] > asked + 1)
            kafka.topics = listed
            storage.records[0, 2] = batch(2, (b"c", b"3"))
            await eventually(lambda: "c" in seen)
        assert seen == ["a", "b", "c"]

    asyncio.run(scenario())


def test_a_batch_that_arrives_broken_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log fetches a batch with a wrong CRC again and applies every record once."""

    async def scenario() -> None:
        seen = list[str]()
        good = batch(0, (b"b", b"2"))
        broken = good[:-1] + bytes([good[-1] ^ 1])
        storage = Storage({(0, 0): batch(0, (b"a", b"1")), (1, 0): broken})
        async with following(storage, lambda key, _: seen.append(key)):
            await eventually(lambda: "failed and is retried: CorruptRecordException" in caplog.text)
            storage.records[1, 0] = good
            await eventually(lambda: "b" in seen)
        assert seen == ["a", "b"]

    asyncio.run(scenario())


def test_a_key_that_is_no_text() -> None:
    """A key that is not UTF-8 is decoded with replacement characters, and the records after it are read."""

    async def scenario() -> None:
        seen = list[str]()
        async with following(
            Storage({(0, 0): batch(0, (b"\xff", b"1"), (b"b", b"2"))}), lambda key, _: seen.append(key)
        ):
            await eventually(lambda: "b" in seen)
        assert seen == ["\ufffd", "b"]

    asyncio.run(scenario())


def test_other_work_has_turns_while_a_large_batch_is_applied() -> None:
    """A topic of thousands of connectors arrives in a few batches; probes are answered while they are applied."""

    async def scenario() -> None:
        in_a_row = most_in_a_row = applied = 0

        def apply(key: str, value: bytes | None) -> None:
            nonlocal in_a_row, most_in_a_row, applied
            applied += 1
            in_a_row += 1
            most_in_a_row = max(most_in_a_row, in_a_row)

        async def turn() -> None:
            nonlocal in_a_row
            while True:
                in_a_row = 0
                await asyncio.sleep(0)

        turning = asyncio.create_task(turn())
        records = [(b"connector", b"{}")] * 2_000
        async with following(Storage({(0, 0): batch(0, *records)}), apply):
            await eventually(lambda: applied == 2_000)
        turning.cancel()
        assert most_in_a_row == 500

    asyncio.run(scenario())


class FailingFetchOnce(Storage):
    """Storage that answers once for a partition that was not requested: aiokafka's fetch task ends with a KeyError."""

    unrequested = False

    def fetch(self, request: Any) -> FetchResponse_v4:
        """Return the unexpected partition once if ``unrequested`` is set, else the requested batches."""
        if not self.unrequested:
            return super().fetch(request)
        self.unrequested = False
        return FetchResponse_v4(0, [(TOPIC.name, [(44, 0, 0, 0, None, b"")])])


def test_a_client_that_has_stopped_fetching(caplog: pytest.LogCaptureFixture) -> None:
    """The log starts a new client after the fetch task of aiokafka has died, and reads the later records."""

    async def scenario() -> None:
        seen = list[str]()
        storage = FailingFetchOnce({(0, 0): batch(0, (b"a", b"1"))})
        async with following(storage, lambda key, _: seen.append(key)):
            await eventually(lambda: seen == ["a"])
            storage.unrequested = True
            await eventually(lambda: "failed and is retried: KafkaError" in caplog.text)
            storage.records[0, 1] = batch(1, (b"b", b"2"))
            await eventually(lambda: "b" in seen)
        assert seen == ["a", "b"]

    asyncio.run(scenario())


def test_a_client_that_finds_no_position() -> None:
    """The start of the log fails with Retriable if the brokers return no offsets, instead of waiting without end."""

    async def scenario() -> None:
        without_ends = answers(Storage({})) | {OffsetRequest_v2: lambda _: OffsetResponse_v2(0, [])}
        async with ScriptedKafka({TOPIC.name: [NODE, NODE]}, without_ends) as kafka:
            arguments = {"bootstrap_servers": kafka.bootstrap_servers, "request_timeout_ms": 100}
            with pytest.raises(Retriable):
                await KafkaLog(TOPIC, arguments).start(lambda *_: None)

    asyncio.run(scenario())


def test_brokers_that_have_all_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log connects to the configured bootstrap servers again if no known broker answers; aiokafka does not."""

    async def scenario() -> None:
        monkeypatch.setattr(aiokafka_patches, "UNHEARD_SECONDS", 0.1)
        seen = list[str]()
        storage = Storage({(0, 0): batch(0, (b"a", b"1"))})
        topics = {TOPIC.name: [NODE, NODE]}
        async with (
            ScriptedKafka(topics, answers(storage)) as one,
            ScriptedKafka(topics, answers(storage)) as other,
            opened(lambda key, _: seen.append(key), one, other),
        ):
            await eventually(lambda: seen == ["a"])
            (one if one.asked["FetchRequest_v4"] else other).vanish()
            storage.records[0, 1] = batch(1, (b"b", b"2"))
            await eventually(lambda: seen == ["a", "b"])

    asyncio.run(scenario())
