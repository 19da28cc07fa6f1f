"""Tombstones block stale upserts while a topic is read, and read again (``merge.md`` section 3)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from support.records.change_events import version

from headrace.core.merge.tombstones import Tombstones
from headrace.core.model.events import RowVersion, Versions
from headrace.core.model.keys import FLOOR_KEY
from headrace_dev.memory.lakehouse import MemoryEntries


def batch(topic: str, *coordinates: tuple[int, int]) -> Versions:
    """Return a batch's versions by (partition, offset), in the order of arrival."""
    partitions, offsets = zip(*coordinates, strict=True)
    count = len(coordinates)
    return Versions(
        topic,
        np.zeros(count, "S26"),
        np.array(partitions, np.int32),
        np.array(offsets, np.int64),
        np.zeros(count, np.int64),
    )


def deleted_at(offset: int, partition: int = 0) -> RowVersion:
    """Return the version of a delete."""
    return version(offset, offset, partition=partition)


TOPIC = deleted_at(0).topic


KEYS = pa.array(["=1", "=2", "=3", "-onto:7:=1"])


def read(entries: Mapping[str, RowVersion]) -> MemoryEntries:
    """Return a ledger that was read with these entries."""
    ledger = MemoryEntries()
    for key, entry in entries.items():
        ledger.record(key, entry)
    return ledger


def test_a_tombstone_ahead_does_not_block_until_its_delete_is_durable_again() -> None:
    """After a crash between ledger and commit, upserts before the delete apply again until the delete is durable."""
    tombstones = Tombstones(read({"=1": deleted_at(7)}))
    tombstones.begin(batch(TOPIC, (0, 5), (0, 6)), KEYS)
    assert tombstones.entries == {}
    assert tombstones.ends("=1", deleted_at(6))
    assert not tombstones.ends("=1", deleted_at(8))
    tombstones.end(batch(TOPIC, (0, 5), (0, 6)))
    tombstones.begin(batch(TOPIC, (0, 7), (0, 8)), KEYS)
    assert tombstones.entries == {}
    tombstones.end(batch(TOPIC, (0, 7), (0, 8)))
    tombstones.begin(batch(TOPIC, (0, 9)), KEYS)
    assert tombstones.entries == {"=1": deleted_at(7)}


def test_tombstones_behind_or_of_another_partition_block() -> None:
    """A tombstone behind the first offset that is read, or of a partition that is not read, blocks at once."""
    behind, other_partition, floor = deleted_at(4), deleted_at(9, partition=1), deleted_at(9)
    tombstones = Tombstones(read({"=1": behind, "=2": other_partition, FLOOR_KEY: floor}))
    tombstones.begin(batch(TOPIC, (0, 5)), KEYS)
    assert tombstones.entries == {"=1": behind, "=2": other_partition, FLOOR_KEY: floor}
    tombstones.begin(batch("another", (1, 5)), KEYS)
    assert "=2" in tombstones.entries
    tombstones.begin(batch(TOPIC, (1, 5)), KEYS)
    assert tombstones.entries == {"=1": behind, FLOOR_KEY: floor}


def test_only_the_keys_of_a_batch_are_searched() -> None:
    """Between batches the entries are those of the table: floor, defaults, origins and restarts."""
    of_table = {FLOOR_KEY: deleted_at(1), '+["a", "text", "b"]': deleted_at(2), '*["read", ["a"]]': deleted_at(3)}
    tombstones = Tombstones(read({**of_table, "=1": deleted_at(4), "=2": deleted_at(4)}))
    assert tombstones.entries == of_table
    tombstones.begin(batch(TOPIC, (0, 5)), pa.array(["=1", "=1"]))
    assert tombstones.entries == {**of_table, "=1": deleted_at(4)}
    tombstones.end(batch(TOPIC, (0, 5)))
    assert tombstones.entries == of_table


def test_a_key_that_a_row_lost_is_known_wherever_reading_began() -> None:
    """The entries of taken keys apply at once: the state that they record cannot be read again."""
    tombstones = Tombstones(read({"-onto:7:=1": deleted_at(9), "=1": deleted_at(9)}))
    tombstones.begin(batch(TOPIC, (0, 5)), KEYS)
    assert tombstones.entries == {"-onto:7:=1": deleted_at(9)}


def test_a_tombstone_that_another_worker_adds_blocks_at_once() -> None:
    """A tombstone that is added while this worker reads blocks, although its delete lies ahead."""
    ledger = read({"=1": deleted_at(7)})
    tombstones = Tombstones(ledger)
    tombstones.begin(batch(TOPIC, (0, 5)), KEYS)
    added = {"=2": deleted_at(9), "=3": deleted_at(9, partition=1)}
    ledger.stored = {"=1": deleted_at(7), "=4": deleted_at(9), **added}
    tombstones.learn()
    assert tombstones.entries == tombstones.learned == added
    tombstones.begin(batch(TOPIC, (1, 5)), KEYS)
    assert tombstones.entries == tombstones.learned == added


def test_an_entry_of_this_worker_is_not_learned() -> None:
    """What this worker has recorded is among what the ledger contains in addition, and so may be older entries."""
    ledger = read({"=1": deleted_at(7), "=2": deleted_at(3)})
    tombstones = Tombstones(ledger)
    tombstones.begin(batch(TOPIC, (0, 5)), KEYS)
    ledger.stored = {"=1": deleted_at(8), "=2": deleted_at(2)}
    tombstones.entries["=1"] = deleted_at(8)
    tombstones.learn()
    assert tombstones.learned == {}
    assert tombstones.entries == {"=1": deleted_at(8), "=2": deleted_at(3)}


def test_a_partition_begins_once() -> None:
    """A tombstone that this worker wrote blocks, also if a batch with lower offsets follows."""
    ledger = read({})
    tombstones = Tombstones(ledger)
    tombstones.begin(batch(TOPIC, (0, 5), (0, 9)), KEYS)
    ledger.record("=1", deleted_at(9))
    tombstones.end(batch(TOPIC, (0, 5), (0, 9)))
    tombstones.begin(batch(TOPIC, (0, 6)), KEYS)
    assert tombstones.entries == {"=1": deleted_at(9)}


def test_reading_begins_at_the_first_record_in_the_order_of_arrival() -> None:
    """The first record of a batch is the start of reading, also if a replayed record has a lower offset."""
    tombstones = Tombstones(read({"=1": deleted_at(7)}))
    tombstones.begin(batch(TOPIC, (0, 9), (0, 2)), KEYS)
    assert tombstones.entries == {"=1": deleted_at(7)}


def test_a_delete_that_is_read_again_does_not_lower_a_tombstone() -> None:
    """A later tombstone of the same key replaces the one that did not block yet."""
    ledger = read({"=1": deleted_at(7)})
    tombstones = Tombstones(ledger)
    tombstones.begin(batch(TOPIC, (0, 5), (0, 8)), KEYS)
    ledger.record("=1", deleted_at(8))
    tombstones.end(batch(TOPIC, (0, 5), (0, 8)))
    tombstones.begin(batch(TOPIC, (0, 9)), KEYS)
    assert tombstones.entries == {"=1": deleted_at(8)}
