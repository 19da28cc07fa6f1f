"""The smaller records of aiokafka's consumers, the limit of unpacked batches, and the numbering of chunks."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cramjam
import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from headrace import ports
from headrace.core.batch.offsets import ChunkSequence
from headrace.core.model.errors import Fatal
from headrace_connectors.kafka import records
from headrace_connectors.kafka.records import CHUNK_BYTES, ChunkNumbering, PollSize
from headrace_dev.memory import MemoryRecord

READ = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
AIOKAFKA, AIOKAFKAS_BATCHES = fetcher.PartitionRecords, fetcher.MemoryRecords


def fetched(kind: type[Any], value_deserializer: Callable[[bytes | None], Any] | None = None) -> list[Any]:
    """Return the records of two batches as ``kind`` parses them; the first record is below the fetch offset."""
    batches = b""
    for base in (10, 12):
        builder = DefaultRecordBatchBuilder(2, 3, 0, -1, -1, -1, 1 << 20)
        builder.append(0, 1_700_000_000_000 + base, b"key", b"value of %d" % base, [("h", b"1"), ("h", b"2")])
        builder.append(1, 1_700_000_000_001, None, None, [])
        batch = builder.build()
        batch[:8] = base.to_bytes(8, "big")
        batch[12:16] = (base // 2).to_bytes(4, "big")
        batches += bytes(batch)
    return list(
        kind(TopicPartition("t", 3), records.FetchedBatches(batches), [], 11, None, value_deserializer, True, 0)
    )


@pytest.mark.parametrize("deserializer", [None, lambda value: (value, "deserialized")])
def test_fetched_records_equal_consumer_records(deserializer: Callable[[bytes | None], Any] | None) -> None:
    """Each field equals that of aiokafka's record, with and without key, value and headers."""
    lean, own = fetched(records.FetchedPartition, deserializer), fetched(AIOKAFKA, deserializer)
    assert [(each.offset, each.leader_epoch) for each in lean] == [(11, 5), (12, 6), (13, 6)]
    for mine, theirs in zip(lean, own, strict=True):
        assert isinstance(mine, records.FetchedRecord)
        expected = {name: getattr(theirs, name) for name in READ} | {"headers": list(theirs.headers)}
        assert {name: getattr(mine, name) for name in READ} == expected


def test_consumers_return_fetched_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """``use_fetched_records`` replaces the classes that aiokafka's fetcher uses."""
    monkeypatch.setattr(fetcher, "PartitionRecords", AIOKAFKA)
    monkeypatch.setattr(fetcher, "MemoryRecords", AIOKAFKAS_BATCHES)
    records.use_fetched_records()
    assert {"PartitionRecords", "MemoryRecords"} <= {*fetcher.Fetcher._proc_fetch_request.__code__.co_names}
    assert (fetcher.PartitionRecords, fetcher.MemoryRecords) == (records.FetchedPartition, records.FetchedBatches)


@pytest.mark.timeout(10)
def test_a_length_that_is_wrong_ends_the_search_for_epochs() -> None:
    """A damaged batch must not keep the consumer thread in a loop; aiokafka itself finds no batch in it."""
    batches = records.FetchedBatches(bytes(8) + (-12).to_bytes(4, "big", signed=True) + bytes(80))
    assert batches.epochs == [(0, -1)]


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("version", [1, 2])
def test_a_batch_with_another_checksum_is_corrupt(version: int, checks: bool) -> None:
    """With ``check.crcs``, the records before it are delivered, and the next fetch begins with it."""
    make = batch if version == 2 else old_batch
    content, damaged = make(0, b"sound"), bytearray(make(0, b"damaged"))
    damaged[:8] = (41).to_bytes(8, "big")
    damaged[-2] ^= 1
    partition = TopicPartition("t", 3)
    batches = records.FetchedBatches(content + bytes(damaged))
    found = records.FetchedPartition(partition, batches, [], 0, None, None, checks, 0)
    assert next(found).value == b"sound"
    offset = found.next_fetch_offset
    if checks:
        with pytest.raises(CorruptRecordException, match="t-3 at offset 41: "):
            next(found)
        assert found.next_fetch_offset == offset
    else:
        assert next(found).value is not None


CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NAMED = r"t-3 at offset 40: the compressed batch is larger than 0 MiB .* \(PATCH /connectors/NAME/offsets\)"


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """A small limit, so that the tests need little memory."""
    monkeypatch.setattr(records, "LIMIT", 200_000)
    return 200_000


def batch(codec: int, *values: bytes) -> bytes:
    """A batch from offset 40 on, in the format of Kafka 0.11 and later."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 10_000_000)
    for number, value in enumerate(values):
        assert builder.append(number, 1000, b"k", value, []) is not None
    content = bytearray(builder.build())
    content[0:8] = (40).to_bytes(8, "big")  # the base offset, which the checksum does not cover
    return bytes(content)


def old_batch(codec: int, *values: bytes) -> bytes:
    """A batch in the format before that."""
    builder = LegacyRecordBatchBuilder(1, codec, 10_000_000)
    for number, value in enumerate(values):
        builder.append(number, 1000, b"k", value)
    return bytes(builder.build())


def unpacked_values(content: bytes, offset: int = 40) -> list[Any]:
    """The values as a consumer gets them."""
    found = PartitionRecords(TopicPartition("t", 3), MemoryRecords(content), [], offset, None, None, True, 0)
    return [record.value for record in found]


@pytest.mark.parametrize("codec", [0, *CODECS.values()])
@pytest.mark.parametrize("size", [10, 3_000, 30_000])
def test_batches_are_read_whole(codec: int, size: int, limit: int) -> None:
    """Random content, which does not become smaller, and zeros, which are a thousandth."""
    values = [random.Random(size).randbytes(size), bytes(size)]
    assert unpacked_values(batch(codec, *values)) == values
    if codec != CODECS["zstd"]:
        assert unpacked_values(old_batch(codec, *values), 0) == values


@pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))
def test_a_batch_beyond_the_first_buffer_is_read_whole(codec: int) -> None:
    """Three megabytes, which are a few kilobytes while they are compressed."""
    assert unpacked_values(batch(codec, bytes(3 << 20))) == [bytes(3 << 20)]


@pytest.mark.parametrize(("packed", "size"), [(30_000, 1_200_000), (500_000, 20_000_000), (100, 1 << 20)])
def test_a_batch_is_unpacked_once(packed: int, size: int) -> None:
    """Also JSON with schemas, which zstd packs to a fortieth, and any request of a producer with the default limit."""
    buffers = []

    def unpack(_: bytes, target: Any) -> int:
        buffers.append(len(target))
        if len(target) < size:
            raise cramjam.DecompressionError
        return size

    assert len(records._decompress(bytes(packed), unpack)) == size
    assert len(buffers) == 1


@pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))
def test_a_batch_that_is_too_large_is_named(codec: int, limit: int) -> None:
    """It is not unpacked further than the limit. The same batch without a few bytes is read."""
    with pytest.raises(Fatal, match=NAMED):
        unpacked_values(batch(codec, bytes(limit + 1)))
    if codec != CODECS["zstd"]:
        with pytest.raises(Fatal, match="at offset 0: the compressed batch"):
            unpacked_values(old_batch(codec, bytes(limit + 1)), 0)
    assert unpacked_values(batch(codec, bytes(limit - 100))) == [bytes(limit - 100)]


def test_records_before_the_batch_are_delivered(limit: int) -> None:
    """The fetch ends in front of it. The next one begins with it, and raises the error."""
    good, large = batch(CODECS["zstd"], b"a", b"b"), bytearray(batch(CODECS["zstd"], bytes(limit + 1)))
    large[0:8] = (42).to_bytes(8, "big")
    fetched = PartitionRecords(TopicPartition("t", 3), MemoryRecords(good + bytes(large)), [], 40, None, None, True, 0)
    assert [record.offset for record in fetched] == [40, 41]
    assert fetched.next_fetch_offset == 42
    with pytest.raises(Fatal, match="t-3 at offset 42: "):
        unpacked_values(bytes(large), 42)


def test_a_poll_ends_with_the_bytes_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However well records are compressed. The next poll of the fetch continues behind them."""
    monkeypatch.setattr(records, "CHUNK_BYTES", 2_500)
    content = batch(CODECS["lz4"], *[bytes(1_000)] * 8)
    partition = TopicPartition("t", 3)
    found = PartitionRecords(partition, MemoryRecords(content), [], 40, None, None, True, 0)
    fetched = fetcher.FetchResult(partition, assignment=_Assignment(), partition_records=found, backoff=0)
    polls = [[record.offset for record in fetched.getall(limit)] for limit in (500, 2, 500, None)]
    assert polls == [[40, 41, 42], [43, 44], [45, 46, 47], []]
    assert not fetched.has_more()


class _Assignment:
    """A partition that is assigned, and read from where the fetch begins."""

    active, paused = True, False

    def __init__(self) -> None:
        self.has_valid_position = True
        self.position = 40

    def state_value(self, partition: object) -> _Assignment:
        """The state of any partition."""
        return self

    def consumed_to(self, position: int) -> None:
        """The next position."""
        self.position = position


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "content", [b"", b"x", bytes(40), b"\x82SNAPPY\x00" + bytes(7) + b"\x01\xff\xff\xff\xff", b"\x1f\x8b\x08"]
)
def test_other_content_is_no_batch(codec: str, content: bytes) -> None:
    """It raises the same error, or is nothing, as an empty content may be."""
    with suppress(records.Unpackable):
        assert getattr(records, f"{codec}_decode")(content) == b""


A, B = ports.TopicPartition("a", 0), ports.TopicPartition("b", 0)


def records_at(offset: int, size: int = 10) -> list[MemoryRecord]:
    """Return one record of topic a at ``offset``."""
    return [MemoryRecord("a", 0, offset, 0, None, b"x" * size)]


def test_chunks_pass_the_sink_task_s_check() -> None:
    """Chunks are numbered over all partitions from 0 in every epoch, and their offsets have no gap per partition."""
    numbering = ChunkNumbering()
    for epoch in (1, 2):
        numbering.next_epoch()
        check = ChunkSequence()
        made = [
            numbering.chunk(A, records_at(5), 6),
            numbering.chunk(B, records_at(0), 1),
            numbering.chunk(A, records_at(9), 12),  # behind a gap, with a marker at its end
        ]
        assert [chunk.sequence for chunk in made] == [0, 1, 2]
        assert [(chunk.begin, chunk.end) for chunk in made] == [(5, 6), (0, 1), (6, 12)]
        assert {chunk.epoch for chunk in made} == {epoch}
        for chunk in made:
            check.admit(chunk.sequence, chunk.partition, chunk.begin, chunk.end)


def test_wide_records_make_small_polls() -> None:
    """A poll fetches about the bytes of one chunk: at least one record, at most the configured number."""
    size = PollSize(4_000)
    size.observe(records_at(0, 100_000))
    assert size.records * 100_000 <= CHUNK_BYTES
    size.observe(records_at(0, 2 * CHUNK_BYTES))
    assert size.records == 1
    for _ in range(40):
        size.observe(records_at(0, 100))
    assert size.records == 4_000
