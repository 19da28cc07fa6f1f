"""Delivers the records of a topic with several partitions in a random order, as a consumer may read them.

A consumer reads each partition in order, and the partitions in any order: one of them may be read completely before
another has delivered its first record. So the halves of a key change arrive in either order, and the next row of a key
may arrive before the key change of its old row.
"""

from __future__ import annotations

import contextlib
import random
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from recordings.records import RecordedRecord
from recordings.replay import Chunk, Killed, Replay

from headrace.core.batch.held_halves import HALF_TIMEOUT, HALF_TIMEOUT_BEHIND

PARTITIONS = 3
SIZES = (1, 3, 20, 100)
WAITS = (0.0, 0.0, 0.0, HALF_TIMEOUT / 5, HALF_TIMEOUT + 1.0, 4 * HALF_TIMEOUT)
"""Seconds between two chunks; a half waits longer than ``HALF_TIMEOUT`` if a partition has not been read to its end."""

Partitions = Mapping[int, Sequence[RecordedRecord]]


def by_partition(records: Sequence[RecordedRecord]) -> Partitions:
    """The records of a topic by partition."""
    numbers = sorted({each.partition for each in records})
    return {number: [each for each in records if each.partition == number] for number in numbers}


def distributed(records: Sequence[RecordedRecord], salt: int) -> Sequence[RecordedRecord]:
    """The records of a topic of one partition as in a topic of several: a producer chooses the partition by the key."""
    ends: Counter[int] = Counter()
    found = []
    for record in records:
        number = zlib.crc32(record.key or str(record.offset).encode(), salt) % PARTITIONS
        found.append(replace(record, partition=number, offset=ends[number]))
        ends[number] += 1
    return found


def ends_of(partitions: Partitions) -> Mapping[int, int]:
    """The offset behind the last record of each partition."""
    return {number: records[-1].offset + 1 for number, records in partitions.items()}


def deliver(
    replay: Replay,
    partitions: Partitions,
    chance: random.Random,
    *,
    kills: int = 0,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Deliver all records: partitions in any order, chunks of any size, with kills and earlier offsets.

    ``check`` is called after each chunk. The time between the first and the last chunk is less than
    ``HALF_TIMEOUT_BEHIND``, for which a half waits while there is more to read.
    """
    at, left = dict.fromkeys(partitions, 0), HALF_TIMEOUT_BEHIND
    favourite = chance.choice([None, *partitions])
    while unread := [number for number in partitions if at[number] < len(partitions[number])]:
        number = favourite if favourite in unread and chance.random() < 0.9 else chance.choice(unread)
        end = at[number] + chance.choice(SIZES)
        chunk, at[number] = partitions[number][at[number] : end], end
        wait = chance.choice([each for each in WAITS if each < left])
        left -= wait
        killed = kills > 0 and chance.random() < 0.1
        with contextlib.suppress(Killed):
            replay.deliver([Chunk(chunk, flush=chance.random() < 0.6, wait=wait)])
            check()
            if not killed:
                continue
        kills -= 1
        left = HALF_TIMEOUT_BEHIND
        at = {number: chance.randint(0, replay.committed.get(number, 0)) for number in partitions}
        replay.restart(at)
    with contextlib.suppress(Killed):
        replay.finish()
        return
    replay.restart(replay.committed)
    replay.deliver(
        [Chunk(rest) for number, records in partitions.items() if (rest := records[replay.committed.get(number, 0) :])]
    )
    replay.finish()
