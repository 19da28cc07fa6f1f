"""What the connectors of different databases tell of a change: its position, transaction and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from properties.source_database.database import Change, Snapshot, Transaction

EPOCH = 1_700_000_000_000
Source = dict[str, Any]


@dataclass(frozen=True)
class Dialect:
    """PostgreSQL's connector; the others override what differs.

    ``omits``: unchanged large values are left out. ``key_change_headers``: both halves of a key change name the other
    key. ``logs_old_rows``: the log has every row as it was.
    """

    connector: str = "postgresql"
    omits: bool = True
    key_change_headers: bool = True
    logs_old_rows: bool = False
    names: Mapping[str, str] = field(default_factory=lambda: {"schema": "public"})

    def source(self, transaction: Transaction, change: Change, number: int) -> Source:
        """The source block of a change, without the names of its table; ``number`` counts within the transaction."""
        return self._common(transaction.time, "false") | {"txId": transaction.id, "lsn": change.position}

    def read_source(self, snapshot: Snapshot, mark: str) -> Source:
        """That of a row that a snapshot has read."""
        return self._common(snapshot.time, mark) | {"txId": 1, "lsn": 1}

    def second_half(self, source: Source) -> Source:
        """What differs in the insert of a key change that is logged as a delete and an insert."""
        return {}

    def position_text(self, source: Mapping[str, Any]) -> str:
        """The position for a reader."""
        return f"lsn {source['lsn']} tx {source['txId']}" if source.get("snapshot") == "false" else "read"

    def _common(self, time: int, mark: str) -> Source:
        return {
            "version": "3.7.0.Final",
            "connector": self.connector,
            "ts_ms": EPOCH + time,
            "ts_us": (EPOCH + time) * 1000,
            "snapshot": mark,
        }


DIALECTS: Mapping[str, Dialect] = {"postgresql": Dialect()}
