"""The source blocks of different databases' connectors: position, transaction and time of a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from properties.source_database.database import Change, Snapshot, Transaction
from properties.source_database.servers import FIRST_FILES, identity

EPOCH = 1_700_000_000_000
Source = dict[str, Any]


class Dialect:
    """PostgreSQL's connector; the others override what differs.

    ``omits``: unchanged large values are unavailable, with ``omits_nulls`` also those that are null.
    ``key_change_headers``: both halves of a key change contain the other key. ``logs_old_rows``: the log contains the
    complete old row. ``together``: how the log shows keys that one statement exchanges (``Database``).
    """

    connector = "postgresql"
    omits = True
    omits_nulls = False
    key_change_headers = True
    logs_old_rows = False
    together = "moves"
    names: Mapping[str, str] = {"schema": "public"}

    def source(self, transaction: Transaction, change: Change, number: int) -> Source:
        """The source block of a change, without the names of its table; ``number`` counts within the transaction."""
        return self._common(transaction.time, "false") | {"txId": transaction.id, "lsn": change.position}

    def read_source(self, snapshot: Snapshot, mark: str) -> Source:
        """The source block of a row that a snapshot read."""
        return self._common(snapshot.time, mark) | {"txId": 1, "lsn": 1}

    def second_half(self, source: Source) -> Source:
        """The changed fields for the insert of a key change that is logged as a delete and an insert."""
        return {}

    def position_text(self, source: Mapping[str, Any]) -> str:
        """The position as text, for reports."""
        shown = ("txId", "lsn", "file", "pos", "row", "commit_scn", "txSeq", "commit_lsn", "change_lsn", "gtid")
        if source["snapshot"] != "false":
            return "read"
        return " ".join(f"{name} {source[name]}" for name in shown if name in source)

    def _common(self, time: int, mark: str) -> Source:
        return {
            "version": "3.7.0.Final",
            "connector": self.connector,
            "ts_ms": EPOCH + time,
            "ts_us": (EPOCH + time) * 1000,
            "snapshot": mark,
        }


class MySql(Dialect):
    """MySQL checks keys row by row, so a statement moves the highest key first.

    ``row`` counts within a binlog event.
    """

    connector = "mysql"
    omits = False
    logs_old_rows = True
    together = "descending"
    names: Mapping[str, str] = {}

    def source(self, transaction: Transaction, change: Change, number: int) -> Source:
        row = self._row(transaction, number)
        return self._at(transaction, number - row, row)

    def read_source(self, snapshot: Snapshot, mark: str) -> Source:
        no_server = {"server_id": 0, "gtid": None}
        return self._common(snapshot.time, mark) | {"file": "mysql-bin.000001", "pos": 4, "row": 0} | no_server

    def _row(self, transaction: Transaction, number: int) -> int:
        """The index of a change within its statement: only keys that are moved together share one."""
        row = 0
        while row < number:
            before, change = transaction.changes[number - row - 1 : number - row + 1]
            together = before.statement == change.statement and before.what == change.what == "move"
            if not together or change.key == before.new_key:
                break
            row += 1
        return row

    def _at(self, transaction: Transaction, number: int, row: int) -> Source:
        """The source block of a change; a transaction is written into the log when it is committed."""
        position = 1_000 * (transaction.id - 500) + 10 * number
        file = f"mysql-bin.{FIRST_FILES[transaction.log] + position // 5_000:06d}"
        server = identity(self.connector, transaction.server, transaction.id)
        return self._common(transaction.time, "false") | {"file": file, "pos": position, "row": row} | server


class MariaDb(MySql):
    """Its GTIDs have another form."""

    connector = "mariadb"


class CompressedMySql(MySql):
    """With ``binlog_transaction_compression=ON`` every event of a transaction has the position of its commit."""

    def source(self, transaction: Transaction, change: Change, number: int) -> Source:
        return self._at(transaction, len(transaction.changes), self._row(transaction, number))


class Oracle(Dialect):
    """With ``lob.enabled=true`` a LOB that a statement does not set is unavailable, null or not."""

    connector = "oracle"
    omits_nulls = True
    logs_old_rows = True
    names: Mapping[str, str] = {"schema": "public"}

    def source(self, transaction: Transaction, change: Change, number: int) -> Source:
        scn, commit = change.position, 10_000 + transaction.id
        ids = {"scn": str(scn), "commit_scn": str(commit), "txId": f"{transaction.id:016x}", "txSeq": number + 1}
        return self._common(transaction.time, "false") | ids

    def read_source(self, snapshot: Snapshot, mark: str) -> Source:
        return self._common(snapshot.time, mark) | {"scn": "10000"}


class SqlServer(Dialect):
    """A key change is a delete and an insert; keys that one statement exchanges are updates of the other columns."""

    connector = "sqlserver"
    omits = False
    key_change_headers = False
    logs_old_rows = True
    together = "collapsed"
    names: Mapping[str, str] = {"schema": "public"}

    def source(self, transaction: Transaction, change: Change, number: int) -> Source:
        commit = f"00000025:{transaction.changes[-1].position:08x}:0005"
        lsn = f"00000025:{change.position:08x}:0002"
        serial = 2 if change.what == "update" else 1
        return self._common(transaction.time, "false") | {
            "commit_lsn": commit,
            "change_lsn": lsn,
            "event_serial_no": serial,
        }

    def read_source(self, snapshot: Snapshot, mark: str) -> Source:
        return self._common(snapshot.time, mark) | {"commit_lsn": "00000025:00000010:0005"}

    def second_half(self, source: Source) -> Source:
        return {"event_serial_no": 2}


DIALECTS: Mapping[str, Dialect] = {
    "postgresql": Dialect(),
    "mysql": MySql(),
    "mariadb": MariaDb(),
    "mysql, compressed": CompressedMySql(),
    "oracle": Oracle(),
    "sqlserver": SqlServer(),
}
