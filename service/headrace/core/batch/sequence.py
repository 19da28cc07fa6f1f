"""The sequence check: chunks must arrive without a gap (``kafka-client.md`` section 2.4).

Whatever goes wrong between the consumer and the task (a dropped chunk, a restart behind our back) shows as a gap in the
sequence or in a partition's offsets. Then nothing more is committed and the task fails, so that nothing is ever lost.
"""

from __future__ import annotations

from collections.abc import Hashable

from headrace.core.model.errors import Fatal


class ChunkSequence:
    """Follows the chunks of one assignment after the other."""

    def __init__(self) -> None:
        self.epoch = -1
        self._next = 0
        self._ends: dict[Hashable, int] = {}

    def begin(self, epoch: int) -> None:
        """A new assignment: sequence numbers start again at 0, offsets wherever the group stands."""
        self.epoch, self._next = epoch, 0
        self._ends.clear()

    def admit(self, epoch: int, sequence: int, partition: Hashable, begin: int, end: int) -> bool:
        """Whether the chunk belongs to the current assignment. Raises Fatal at a gap."""
        if epoch != self.epoch:
            return False
        expected = self._ends.get(partition, begin)
        if sequence != self._next or begin != expected or end < begin:
            raise Fatal(
                f"a gap in what was fetched: chunk {sequence} of {partition} covers offsets {begin} to {end}, but "
                f"chunk {self._next} from offset {expected} was due; nothing was committed, restart the task"
            )
        self._next += 1
        self._ends[partition] = end
        return True
