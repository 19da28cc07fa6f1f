"""The cost of reading fetched batches: Headrace's classes beside aiokafka's own, without a broker.

``python -m benchmarks.fetch`` prints microseconds of CPU for each event of ``benchmarks.workload`` with its schemas, of
the best of 20 rounds, by compression. Headrace's figure contains the removal of schemas
(``JsonConverter.divide``), aiokafka's does not. Both use Headrace's functions to unpack batches.
"""

from __future__ import annotations

import time
from typing import Any

from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from benchmarks.envelope import encode
from benchmarks.workload import TOPIC, Source, Workload
from headrace.core.decode.json_converter import JsonConverter
from headrace_connectors.kafka.records import FetchedBatches, FetchedPartition

EVENTS = 4000
IN_A_BATCH = 200
ROUNDS = 20
COMPRESSIONS = {"none": 0, "lz4": 3, "zstd": 4}

_PARTITION = TopicPartition(TOPIC, 0)


def main() -> None:
    """Print the cost of each kind of record by compression."""
    events = [encode(event) for event in Source(Workload(EVENTS)).events()]
    for name, compression in COMPRESSIONS.items():
        content = _batches(events, compression)
        headrace = _cost(content, FetchedPartition, FetchedBatches, JsonConverter(True).divide)
        aiokafka = _cost(content, fetcher.PartitionRecords, MemoryRecords, None)
        size = len(content) // EVENTS
        print(
            f"{name:5} {size:5} bytes an event: Headrace {headrace:4.1f}, aiokafka {aiokafka:4.1f} us of CPU an event"
        )


def _batches(events: list[tuple[bytes, bytes]], compression: int) -> bytes:
    content = b""
    for begin in range(0, EVENTS, IN_A_BATCH):
        builder = DefaultRecordBatchBuilder(2, compression, False, -1, -1, -1, 1 << 24)
        for number, (key, value) in enumerate(events[begin : begin + IN_A_BATCH]):
            builder.append(number, 1000, key, value, [])
        batch = bytearray(builder.build())
        batch[:8] = begin.to_bytes(8, "big")  # the base offset, which the checksum does not cover
        content += batch
    return content


def _cost(content: bytes, partition: Any, batches: Any, divide: Any) -> float:
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        found = partition(_PARTITION, batches(content), [], 0, None, divide, True, 0)
        assert sum(1 for _ in found._records_iterator) == EVENTS
        rounds.append(time.process_time() - began)
    return min(rounds) / EVENTS * 1e6


if __name__ == "__main__":
    main()
