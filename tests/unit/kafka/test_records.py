"""FetchedRecord has the fields of aiokafka's ConsumerRecord."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from headrace_connectors.kafka import records

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
