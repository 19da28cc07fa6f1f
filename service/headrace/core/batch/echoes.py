"""Tombstones that come in a later fetch than the delete that they repeat (``merge.md`` section 2.3).

Debezium sends ``d`` and a tombstone for Kafka's compaction. The tombstone is that ``d``, and stale where that is stale;
on its own it would be a delete without a position, which removes whatever row it finds. Within a batch the fold sees
both; here is who remembers the ``d`` where a fetch ends between them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from headrace.core.batch.combine import split
from headrace.core.model.events import Changes, Operation


class Echoes:
    """The keys of the deletes that came last to a table, by partition."""

    def __init__(self) -> None:
        self._deleted: dict[Hashable, str] = {}

    def without(self, partition: Hashable, piece: Changes) -> Changes | None:
        """The next changes of a partition without the tombstone of the delete before them; None if that is all."""
        deleted = self._deleted.pop(partition, None)
        if piece.operation[-1] == Operation.DELETE:
            self._deleted[partition] = piece.key[-1].as_py()
        if deleted is None or piece.operation[0] != Operation.TOMBSTONE or piece.key[0].as_py() != deleted:
            return piece
        return split(piece, 1)[1] if len(piece) > 1 else None


def resumable(end: int, pieces: Sequence[object], behind: int) -> int:
    """The offset that may be committed for a fetch that reaches up to ``end``: never between a ``d`` and its tombstone.

    Whoever begins there does not know of the ``d``. Nothing is held back where nothing waits in Kafka: the tombstone
    is sent together with its ``d``.
    """
    last = pieces[-1] if pieces else None
    if behind and isinstance(last, Changes) and last.operation[-1] == Operation.DELETE:
        return int(last.version.offset[-1])
    return end
