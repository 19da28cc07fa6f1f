"""Compare two changes of one key: ``merge.md`` section 2, for single versions.

The fold applies the same rules to whole columns and the writers inside their MERGE; this is the plain form that both
are tested against, and the one that ledgers and memory tables use.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.core.model.events import NO_POSITION, RowVersion

UNVERSIONED = RowVersion(NO_POSITION, "", -1, -1, -(2**63))
"""The version of a row that Headrace has not written: every change outranks it."""


def arrived_later(new: RowVersion, old: RowVersion) -> bool:
    """Return whether ``new`` came after ``old``: by offset within a partition, by source time across partitions."""
    if (new.topic, new.partition) == (old.topic, old.partition):
        return new.offset > old.offset
    return new.source_time > old.source_time


def outranks(new: RowVersion, old: RowVersion) -> bool:
    """Return whether ``new`` applies to a row with version ``old``: by position if it has one, else by arrival."""
    if new.position == NO_POSITION:
        return arrived_later(new, old)
    return new.position > old.position


def succeed(new: RowVersion, old: RowVersion | None) -> RowVersion:
    """Return the version of a row after ``new`` was applied to ``old``; a stored position never decreases."""
    if old is None:
        return new
    if not outranks(new, old):
        return old
    return replace(new, position=max(new.position, old.position))
