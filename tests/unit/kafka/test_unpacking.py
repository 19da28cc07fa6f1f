"""Compressed batches as aiokafka reads them: all codecs, and what is too large."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from headrace.core.model.errors import Fatal
from headrace_connectors.kafka import unpacking

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NAMED = r"t-3 at offset 40: the compressed batch is larger than 0 MiB .* \(PATCH /connectors/NAME/offsets\)"


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """A small limit, so that the tests need little memory."""
    monkeypatch.setattr(unpacking, "LIMIT", 200_000)
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


def records(content: bytes, offset: int = 40) -> list[Any]:
    """The values as a consumer gets them."""
    found = PartitionRecords(TopicPartition("t", 3), MemoryRecords(content), [], offset, None, None, True, 0)
    return [record.value for record in found]


@pytest.mark.parametrize("codec", [0, *CODECS.values()])
@pytest.mark.parametrize("size", [10, 3_000, 30_000])
def test_batches_are_read_whole(codec: int, size: int, limit: int) -> None:
    """Random content, which does not become smaller, and zeros, which are a thousandth."""
    values = [random.Random(size).randbytes(size), bytes(size)]
    assert records(batch(codec, *values)) == values
    if codec != CODECS["zstd"]:
        assert records(old_batch(codec, *values), 0) == values


@pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))
def test_a_batch_that_is_too_large_is_named(codec: int, limit: int) -> None:
    """It is not unpacked further than the limit. The same batch without a few bytes is read."""
    with pytest.raises(Fatal, match=NAMED):
        records(batch(codec, bytes(limit + 1)))
    if codec != CODECS["zstd"]:
        with pytest.raises(Fatal, match="at offset 0: the compressed batch"):
            records(old_batch(codec, bytes(limit + 1)), 0)
    assert records(batch(codec, bytes(limit - 100))) == [bytes(limit - 100)]


def test_records_before_the_batch_are_delivered(limit: int) -> None:
    """The fetch ends in front of it. The next one begins with it, and raises the error."""
    good, large = batch(CODECS["zstd"], b"a", b"b"), bytearray(batch(CODECS["zstd"], bytes(limit + 1)))
    large[0:8] = (42).to_bytes(8, "big")
    fetched = PartitionRecords(TopicPartition("t", 3), MemoryRecords(good + bytes(large)), [], 40, None, None, True, 0)
    assert [record.offset for record in fetched] == [40, 41]
    assert fetched.next_fetch_offset == 42
    with pytest.raises(Fatal, match="t-3 at offset 42: "):
        records(bytes(large), 42)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "content", [b"", b"x", bytes(40), b"\x82SNAPPY\x00" + bytes(7) + b"\x01\xff\xff\xff\xff", b"\x1f\x8b\x08"]
)
def test_other_content_is_no_batch(codec: str, content: bytes) -> None:
    """It raises the same error, or is nothing, as an empty content may be."""
    with suppress(unpacking.Unpackable):
        assert getattr(unpacking, f"{codec}_decode")(content) == b""
