"""One table's ledger, as its pipeline knows it: read once, added to, heeded where others have added to it.

It holds deletes, the floor of the last truncate and the defaults of columns that were added, all of which must be
durable before the table follows (``merge.md`` section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.core.merge.tombstones import Tombstones
from headrace.core.model.column_defaults import ColumnDefault, remembered
from headrace.core.model.events import RowVersion
from headrace.core.model.ranking import succeed
from headrace.ports import Ledger

_HOUR = 3_600_000_000


class TableLedger:
    """``now`` tells the time in microseconds, in which ``retention`` is as well.

    ``defaults`` are those of columns that were added, ``to_fill`` those that rows which stand may still lack.
    """

    def __init__(self, table: Ledger, now: Callable[[], int], retention: int) -> None:
        self.defaults: Mapping[ColumnDefault, RowVersion] = {}
        self.to_fill: set[ColumnDefault] = set()
        self._table = table
        self._now = now
        self._retention = retention
        self._tombstones: Tombstones | None = None
        self._read_at = 0
        self._assigned_anew = False

    @property
    def tombstones(self) -> Tombstones:
        """What blocks upserts, read from the lake where it is not known."""
        return self._read() if self._tombstones is None else self._tombstones

    @property
    def known(self) -> dict[str, RowVersion]:
        """The versions that block, by ledger key."""
        return self.tombstones.known

    def prepare(self) -> bool:
        """Read the ledger where it is not known; whether that was so."""
        if self._assigned_anew:
            self._assigned_anew = False
            self.forget()
        if self._tombstones is not None:
            return False
        self._read()
        return True

    def assigned(self) -> None:
        """Another assignment begins: what is known of the ledger may be old."""
        self._assigned_anew = True

    def forget(self) -> None:
        """Read it again before it is used: it may hold more than is known here."""
        self._tombstones = None

    def forget_expired(self) -> None:
        """Read it again, without what has expired, now and then: memory holds the deletes of two retentions at most."""
        if self._now() - self._read_at > max(self._retention, _HOUR):
            self.forget()

    def heed_others(self) -> None:
        """Learn what somebody else has added since it was read: a successor, if this worker was overtaken."""
        if self._table.ledger_moved():
            self.tombstones.learn(self._table.ledger())
            self.defaults = remembered(self.known)

    def record(self, new: Mapping[str, RowVersion]) -> None:
        """Add to the ledger, durably, also of a table that does not exist yet."""
        self._table.record_tombstones(new, self._now())
        self.known.update(new)

    def remember_defaults(self, defaults: Sequence[ColumnDefault], version: RowVersion) -> None:
        """Rows may still come that are older than the columns, and so may these defaults: ranks decide."""
        keys = [default.ledger_key for default in defaults]
        self.record({key: succeed(version, self.known.get(key)) for key in keys})
        self._know_defaults()

    def _read(self) -> Tombstones:
        self._tombstones, self._read_at = Tombstones(dict(self._table.ledger())), self._now()
        self._know_defaults()
        return self._tombstones

    def _know_defaults(self) -> None:
        self.defaults = remembered(self.known)
        self.to_fill = set(self.defaults)
