"""Which tombstones block upserts while a topic is read, and read again (``merge.md`` section 3)."""

from __future__ import annotations

import numpy as np
from change_events import version

from headrace.core.merge.tombstones import Tombstones
from headrace.core.model.events import RowVersion, Versions
from headrace.core.model.keys import FLOOR_KEY


def batch(topic: str, *places: tuple[int, int]) -> Versions:
    """A batch's records by (partition, offset), in the order of arrival."""
    partitions, offsets = zip(*places, strict=True)
    count = len(places)
    return Versions(
        topic,
        np.zeros(count, "S26"),
        np.array(partitions, np.int32),
        np.array(offsets, np.int64),
        np.zeros(count, np.int64),
    )


def deleted_at(offset: int, partition: int = 0) -> RowVersion:
    """The version of a delete."""
    return version(offset, offset, partition=partition)


TOPIC = deleted_at(0).topic


def test_a_tombstone_that_lies_ahead_does_not_count_until_its_delete_is_durable_again() -> None:
    """The worker died after the ledger; what comes before the delete must meet the row as it was then."""
    tombstones = Tombstones({"=1": deleted_at(7)})
    tombstones.begin(batch(TOPIC, (0, 5), (0, 6)))
    assert tombstones.known == {}
    tombstones.end(batch(TOPIC, (0, 5), (0, 6)))
    assert tombstones.known == {}
    tombstones.begin(batch(TOPIC, (0, 7), (0, 8)))
    tombstones.end(batch(TOPIC, (0, 7), (0, 8)))
    assert tombstones.known == {"=1": deleted_at(7)}


def test_what_lies_behind_or_elsewhere_counts() -> None:
    """Only of the partition that is read, and only from where reading began."""
    behind, elsewhere, floor = deleted_at(4), deleted_at(9, partition=1), deleted_at(9)
    tombstones = Tombstones({"=1": behind, "=2": elsewhere, FLOOR_KEY: floor})
    tombstones.begin(batch(TOPIC, (0, 5)))
    assert tombstones.known == {"=1": behind, "=2": elsewhere, FLOOR_KEY: floor}
    tombstones.begin(batch("another", (1, 5)))
    assert "=2" in tombstones.known
    tombstones.begin(batch(TOPIC, (1, 5)))
    assert "=2" not in tombstones.known


def test_a_partition_begins_once() -> None:
    """What this worker itself wrote into the ledger is behind, whatever comes again under lower offsets."""
    tombstones = Tombstones({})
    tombstones.begin(batch(TOPIC, (0, 5), (0, 9)))
    tombstones.known["=1"] = deleted_at(9)
    tombstones.end(batch(TOPIC, (0, 5), (0, 9)))
    tombstones.begin(batch(TOPIC, (0, 6)))
    assert tombstones.known == {"=1": deleted_at(9)}


def test_reading_begins_at_the_first_record_in_the_order_of_arrival() -> None:
    """A replayed record has the coordinates that it had: lower ones than where reading goes on."""
    tombstones = Tombstones({"=1": deleted_at(7)})
    tombstones.begin(batch(TOPIC, (0, 9), (0, 2)))
    assert tombstones.known == {"=1": deleted_at(7)}


def test_a_delete_that_came_again_does_not_lower_what_stands() -> None:
    """A later delete of the same key, meanwhile known, wins over the one that was set aside."""
    tombstones = Tombstones({"=1": deleted_at(7)})
    tombstones.begin(batch(TOPIC, (0, 5), (0, 8)))
    tombstones.known["=1"] = deleted_at(8)
    tombstones.end(batch(TOPIC, (0, 5), (0, 8)))
    assert tombstones.known == {"=1": deleted_at(8)}
