"""The files of a lake table, as its newest commit counts them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of one snapshot of a table.

    ``deletes`` are delete files and deletion vectors. ``size`` is that of all files, in bytes. ``rows`` are the rows in
    the data files, of which deletes hide ``deleted_rows``.
    """

    data: int
    deletes: int
    size: int
    rows: int
    deleted_rows: int

    @property
    def count(self) -> int:
        return self.data + self.deletes

    @property
    def deleted_share(self) -> float:
        """The share of the rows that deletes hide, 0 to 1."""
        return self.deleted_rows / max(1, self.rows)
