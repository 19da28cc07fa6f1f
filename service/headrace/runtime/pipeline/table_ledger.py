"""The ledger of one table in its pipeline: read once, and searched for the keys of each batch.

It contains deletes, the floor of the last truncate, the defaults of added columns and the origins of columns. All of
them must be durable before the table is written (``merge.md`` section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from headrace.core.merge.key_changes import taken_entry_keys
from headrace.core.merge.position_restarts import Restart, recorded_restarts, recorded_truncates, truncate_key
from headrace.core.merge.tombstones import Tombstones
from headrace.core.model.absent_columns import ColumnDefault, ColumnOrigins, recorded_defaults, recorded_origins
from headrace.core.model.events import Changes, RowVersion, succeed
from headrace.core.model.log_progress import Place, Progress
from headrace.ports import Ledger

_HOUR = 3_600_000_000


class TableLedger:
    """What a table's ledger contains for the current batch.

    ``now`` returns the time in microseconds, the unit of ``retention``.
    ``defaults`` are those of columns that were added, ``to_fill`` those that stored rows may still lack. ``origins``
    are the columns that reads and streamed events contained. ``restarts`` are the records at which the source's
    positions start again, ``truncate_progress`` is how far the source's logs had been read with truncates before the
    table's first row.
    """

    def __init__(self, table: Ledger, now: Callable[[], int], retention: int, *, reads_on: bool = True) -> None:
        self.defaults: Mapping[ColumnDefault, RowVersion] = {}
        self.to_fill: set[ColumnDefault] = set()
        self.origins = ColumnOrigins()
        self.restarts: Sequence[Restart] = ()
        self.truncate_progress: Progress = {}
        self._table = table
        self._now = now
        self._retention = retention
        self._reads_on = reads_on
        self._tombstones: Tombstones | None = None
        self._read_at = 0
        self._assigned_anew = False

    @property
    def tombstones(self) -> Tombstones:
        """The versions that block upserts. Reads the ledger if necessary."""
        return self._read() if self._tombstones is None else self._tombstones

    @property
    def entries(self) -> dict[str, RowVersion]:
        """The entries that apply, by ledger key: those of the table, and within a batch those of its keys."""
        return self.tombstones.entries

    def prepare(self) -> bool:
        """Read the ledger if necessary, and return whether it was read."""
        if self._assigned_anew:
            self._assigned_anew = False
            self.reset()
        if self._tombstones is not None:
            return False
        self._read()
        return True

    def begin_assignment(self) -> None:
        """Begin an assignment: what was read of the ledger may be outdated."""
        self._assigned_anew = True  # proven: ledger-of-assignment

    def reset(self) -> None:
        """Read the ledger again before its next use: it may contain more than was read and recorded."""
        self._tombstones = None

    def reset_expired(self) -> None:
        """Read the ledger again after a retention, without expired entries: they apply for two retentions at most."""
        if self._now() - self._read_at > max(self._retention, _HOUR):
            self.reset()

    def begin_batch(self, changes: Changes) -> None:
        """Search the entries of a batch's keys; they apply until ``end_batch``."""
        taken = pa.array(taken_entry_keys(changes), pa.string())
        self.tombstones.begin(changes.version, pa.concat_arrays([changes.key, taken]))

    def end_batch(self, changes: Changes) -> None:
        """End a batch that is durable."""
        self.tombstones.end(changes.version)

    def refresh(self) -> None:
        """Add the entries of other workers since the last read: of a successor, if this worker was overtaken."""
        if self._table.ledger_moved():  # proven: ledger-of-others
            self._table.update_ledger()
            self.tombstones.learn()
            self.origins = recorded_origins(self.entries)
            self._derive()

    def record(self, new: Mapping[str, RowVersion]) -> None:
        """Add durable entries to the ledger, also of a table that does not exist yet."""
        self._table.record_tombstones(new, self._now())
        self.entries.update(new)  # proven: ledger-recorded
        self.origins |= recorded_origins(new)

    def record_restarts(self, restarts: Sequence[Restart]) -> None:
        new = {restart.ledger_key: restart.version for restart in restarts if restart.ledger_key not in self.entries}
        if new:
            self.record(new)
            self._derive()

    def record_truncate(self, progress: Progress, place: Place, version: RowVersion) -> None:
        """Record how far the source's logs had been read with a truncate, which is at ``place``."""
        self.record({truncate_key(progress, place): version})
        self._derive()

    def record_defaults(self, defaults: Sequence[ColumnDefault], version: RowVersion) -> None:
        """Record the defaults of added columns: rows that are older than the columns may still arrive.

        The defaults may be older than recorded ones; ``succeed`` then keeps these.
        """
        keys = [default.ledger_key for default in defaults]
        self.record({key: succeed(version, self.entries.get(key)) for key in keys})
        self._derive()
        self.to_fill = set(self.defaults)

    def _read(self) -> Tombstones:
        self._tombstones, self._read_at = Tombstones(self._table.ledger(), reads_on=self._reads_on), self._now()
        self.origins = recorded_origins(self.entries)
        self._derive()
        self.to_fill = set(self.defaults)
        return self._tombstones

    def _derive(self) -> None:
        self.defaults = recorded_defaults(self.entries)
        self.restarts = recorded_restarts(self.entries)
        self.truncate_progress = recorded_truncates(self.entries)
