"""Source positions that have started again, after a failover or a restore, stop the task (``merge.md`` section 2.6).

What comes after has lower positions than what the table holds, so it would count as late, and be dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.core.model.errors import Fatal
from headrace.core.model.events import Changes, RowVersion, Truncate
from headrace.core.model.keys import FLOOR_KEY


class PositionRegression:
    """Refuses events of one table that are newer by more than ``limit`` (microseconds) than what outranks them."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit

    def refuse(self, changes: Changes, standing: Mapping[str, RowVersion], what: str = "the stored row") -> None:
        """Raise Fatal for an event whose key has a higher position in ``standing`` although it is far older."""
        for index, key in enumerate(changes.key.to_pylist() if standing else ()):
            if (version := standing.get(key)) is not None:
                self._refuse_event(changes.version.row(index), version, what)

    def refuse_blocked(self, changes: Changes, keys: Collection[str], known: Mapping[str, RowVersion]) -> None:
        """The same for keys of which the ledger, ``known``, lets nothing pass: no merge will tell of them."""
        self.refuse(changes, {key: known[key] for key in keys if key in known}, "the row's delete")
        if FLOOR_KEY in known:
            self.refuse(changes, dict.fromkeys(keys, known[FLOOR_KEY]), "the table's last truncate")

    def refuse_truncate(self, truncate: Truncate, known: RowVersion | None) -> None:
        """The same for a truncate that does not raise the table's floor, ``known``."""
        if known is not None:
            self._refuse_event(truncate.version, known, "the table's last truncate")

    def _refuse_event(self, event: RowVersion, standing: RowVersion, what: str) -> None:
        """A record that is read again is no such event: a long statement dates from its start."""
        if not event.position or event.position >= standing.position or _is_read_again(event, standing):
            return
        if event.source_time - standing.source_time > self._limit:
            raise Fatal(
                f"{self._name}: {place(event)} has position {event.position.decode()}, {what} has "
                f"{standing.position.decode()} although it is older by "
                f"{(event.source_time - standing.source_time) // 1_000_000} s: the source's positions seem to have "
                "started again; after a failover or restore raise source.position.epoch by one, otherwise raise "
                "source.position.regression.ms"
            )


def _is_read_again(event: RowVersion, standing: RowVersion) -> bool:
    """Whether the record stood before the one that outranks it, in the same partition, or is that one."""
    return (event.topic, event.partition) == (standing.topic, standing.partition) and event.offset <= standing.offset


def place(event: RowVersion) -> str:
    """The event's record, as messages name it."""
    return f"{event.topic}-{event.partition} at offset {event.offset}"
