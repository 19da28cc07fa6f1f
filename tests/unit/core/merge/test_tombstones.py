"""Tombstones block stale upserts while a topic is read, and read again (``merge.md`` section 3)."""

from __future__ import annotations

import numpy as np
from support.records.change_events import version

from headrace.core.merge.tombstones import Tombstones
from headrace.core.model.events import RowVersion, Versions
from headrace.core.model.keys import FLOOR_KEY


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


def test_a_tombstone_ahead_does_not_block_until_its_delete_is_durable_again() -> None:
    """After a crash between ledger and commit, upserts before the delete apply again until the delete is durable."""
    tombstones = Tombstones({"=1": deleted_at(7)})
    tombstones.begin(batch(TOPIC, (0, 5), (0, 6)))
    assert tombstones.entries == {}
    tombstones.end(batch(TOPIC, (0, 5), (0, 6)))
    assert tombstones.entries == {}
    tombstones.begin(batch(TOPIC, (0, 7), (0, 8)))
    tombstones.end(batch(TOPIC, (0, 7), (0, 8)))
    assert tombstones.entries == {"=1": deleted_at(7)}


def test_tombstones_behind_or_of_another_partition_block() -> None:
    """A tombstone behind the first offset that is read, or of a partition that is not read, blocks at once."""
    behind, other_partition, floor = deleted_at(4), deleted_at(9, partition=1), deleted_at(9)
    tombstones = Tombstones({"=1": behind, "=2": other_partition, FLOOR_KEY: floor})
    tombstones.begin(batch(TOPIC, (0, 5)))
    assert tombstones.entries == {"=1": behind, "=2": other_partition, FLOOR_KEY: floor}
    tombstones.begin(batch("another", (1, 5)))
    assert "=2" in tombstones.entries
    tombstones.begin(batch(TOPIC, (1, 5)))
    assert "=2" not in tombstones.entries


def test_a_tombstone_that_another_worker_adds_blocks_at_once() -> None:
    """A tombstone that is added while this worker reads blocks, although its delete lies ahead."""
    tombstones = Tombstones({"=1": deleted_at(7)})
    tombstones.begin(batch(TOPIC, (0, 5)))
    tombstones.learn({"=1": deleted_at(7), "=2": deleted_at(9), "=3": deleted_at(9, partition=1)})
    added = {"=2": deleted_at(9), "=3": deleted_at(9, partition=1)}
    assert tombstones.entries == tombstones.learned == added
    tombstones.begin(batch(TOPIC, (1, 5)))
    assert tombstones.entries == added


def test_a_partition_begins_once() -> None:
    """A tombstone that this worker wrote blocks, also if a batch with lower offsets follows."""
    tombstones = Tombstones({})
    tombstones.begin(batch(TOPIC, (0, 5), (0, 9)))
    tombstones.entries["=1"] = deleted_at(9)
    tombstones.end(batch(TOPIC, (0, 5), (0, 9)))
    tombstones.begin(batch(TOPIC, (0, 6)))
    assert tombstones.entries == {"=1": deleted_at(9)}


def test_reading_begins_at_the_first_record_in_the_order_of_arrival() -> None:
    """The first record of a batch is the start of reading, also if a replayed record has a lower offset."""
    tombstones = Tombstones({"=1": deleted_at(7)})
    tombstones.begin(batch(TOPIC, (0, 9), (0, 2)))
    assert tombstones.entries == {"=1": deleted_at(7)}


def test_a_delete_that_is_read_again_does_not_lower_a_tombstone() -> None:
    """A later tombstone of the same key replaces the one that did not block yet."""
    tombstones = Tombstones({"=1": deleted_at(7)})
    tombstones.begin(batch(TOPIC, (0, 5), (0, 8)))
    tombstones.entries["=1"] = deleted_at(8)
    tombstones.end(batch(TOPIC, (0, 5), (0, 8)))
    assert tombstones.entries == {"=1": deleted_at(8)}
