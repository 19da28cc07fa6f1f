"""Records that are made to do harm: each is a bad record, quickly and in little memory, and harms no other."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from support.records.envelopes import change, key
from support.records.hostile_records import HOSTILE

from headrace.converters.conversion import converting_decoder
from headrace.core.decode.decoded import RoutedEvents
from headrace.core.decode.envelope import EnvelopeOptions
from headrace_dev.memory.feed import MemoryRecord

TOPIC = "shop.public.items"
SECONDS, BYTES = 3.0, 64 << 20


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_record_harms_no_other(value: bytes) -> None:
    """It is a bad record with its index, within seconds and some megabytes. The records around it become events."""
    records = [
        MemoryRecord(TOPIC, 0, offset, 0, key({"id": offset}), document)
        for offset, document in enumerate((change("c", {"id": 0}, 1), value, change("c", {"id": 2}, 9)))
    ]
    decoder = converting_decoder(TOPIC, EnvelopeOptions())
    tracemalloc.start()
    begin = time.thread_time()
    decoded = decoder.decode(records)
    seconds, (_, peak) = time.thread_time() - begin, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [each.index for each in decoded.errant] == [1]
    events = [each.events for each in decoded.messages if isinstance(each, RoutedEvents)]
    offsets = [int(offset) for each in events for offset in each.version.offset]
    assert offsets == [0, 2]
    assert seconds < SECONDS
    assert peak < BYTES + 20 * len(value)
    assert len(str(decoded.errant[0].error)) < 2000
