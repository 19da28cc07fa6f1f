"""A store of cached rows that handles the failures of another store (``reselect.md`` section 5.5).

A failed read is a miss. A failed write poisons the row, and a failed drop of a table the table: the entries that may
still be in the store are not served until a write has succeeded.
"""

from __future__ import annotations

from headrace.core.reselect.cache.rows import Row, RowKey, RowStore, StoreFailed


class GuardedRows:
    """Guards the rows of ``store``."""

    def __init__(self, store: RowStore) -> None:
        self.store = store
        self._poisoned: set[RowKey] = set()
        self._poisoned_tables: set[int | None] = set()

    @property
    def sound(self) -> bool:
        """Return whether no row is poisoned."""
        return not self._poisoned and not self._poisoned_tables

    @property
    def poisoned(self) -> int:
        """Return the number of rows that must not be served, without those of tables that could not be dropped."""
        return len(self._poisoned)

    def is_poisoned(self, key: RowKey) -> bool:
        """Return whether the row in the store must not be served."""
        if key in self._poisoned:
            return True
        return bool(self._poisoned_tables) and not self._poisoned_tables.isdisjoint((key.table, None))

    def get(self, key: RowKey) -> Row | None:
        """Return the row in the store; None if it is missing or cannot be read."""
        try:
            return self.store.get(key)
        except StoreFailed:
            return None

    def base(self, key: RowKey) -> Row | None:
        """Return the row that a change is applied to; None if it is unknown."""
        if self.is_poisoned(key):
            return {}
        try:
            return self.store.get(key) or {}
        except StoreFailed:
            return None

    def write(self, key: RowKey, row: Row) -> None:
        """Replace the row; an empty one is removed."""
        try:
            if row:
                self.store.put(key, row)
            else:
                self.store.drop(key)
        except StoreFailed:
            self._poisoned.add(key)
        else:
            self._poisoned.discard(key)

    def drop_table(self, table: int | None) -> int:
        """Remove the rows of a table, or of all tables; return their number."""
        try:
            dropped = self.store.drop_table(table)
        except StoreFailed:
            self._poisoned_tables.add(table)
            return 0
        self._poisoned_tables.discard(table)
        self._poisoned = {key for key in self._poisoned if table is not None and key.table != table}
        return dropped

    def load(self) -> bytes | None:
        """Return the state that the last process stored; None if there is none."""
        try:
            return self.store.load()
        except StoreFailed:
            return None

    def retry(self) -> None:
        """Retry the drops of tables that have failed."""
        for table in list(self._poisoned_tables):
            self.drop_table(table)
