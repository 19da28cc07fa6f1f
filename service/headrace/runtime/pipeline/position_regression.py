"""Source positions that restart, after a failover or a restore, fail the table (``merge.md`` section 2.6).

The events after the restart have lower positions than the stored rows. Without this check they would be treated as
late, and be dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.core.model.errors import Fatal
from headrace.core.model.events import Changes, RowVersion, Truncate
from headrace.core.model.keys import FLOOR_KEY


class PositionRegression:
    """Refuses events of one table that are outranked although they are newer by more than ``limit`` microseconds."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit

    def refuse(self, changes: Changes, versions: Mapping[str, RowVersion], what: str = "the stored row") -> None:
        """Raise Fatal for an event whose key has a higher position in ``versions`` although that is much older."""
        for index, key in enumerate(changes.key.to_pylist() if versions else ()):
            if (version := versions.get(key)) is not None:
                self._refuse_event(changes.version.row(index), version, what)

    def refuse_blocked(self, changes: Changes, keys: Collection[str], known: Mapping[str, RowVersion]) -> None:
        """As ``refuse``, for keys of which the ledger, ``known``, blocks every event, so that no merge shows it."""
        self.refuse(changes, {key: known[key] for key in keys if key in known}, "the row's delete")
        if FLOOR_KEY in known:
            self.refuse(changes, dict.fromkeys(keys, known[FLOOR_KEY]), "the table's last truncate")

    def refuse_truncate(self, truncate: Truncate, known: RowVersion | None) -> None:
        """As ``refuse``, for a truncate that does not raise the table's floor, ``known``."""
        if known is not None:
            self._refuse_event(truncate.version, known, "the table's last truncate")

    def _refuse_event(self, event: RowVersion, higher: RowVersion, what: str) -> None:
        if not event.position or event.position >= higher.position:
            return
        if (event.topic, event.partition) == (higher.topic, higher.partition) and event.offset <= higher.offset:
            return  # a record that is read again; in a long statement it may have a later time than its successors
        if event.source_time - higher.source_time > self._limit:
            raise Fatal(
                f"{self._name}: {record_name(event)} has position {event.position.decode()}, {what} has "
                f"{higher.position.decode()} although it is older by "
                f"{(event.source_time - higher.source_time) // 1_000_000} s: the source's positions seem to have "
                "started again; after a failover or restore raise source.position.epoch by one, otherwise raise "
                "source.position.regression.ms"
            )


def record_name(event: RowVersion) -> str:
    """Return the name of the event's record in messages."""
    return f"{event.topic}-{event.partition} at offset {event.offset}"
