"""A simulated Debezium connector: it reads a database's log and sends records as they are stored in Kafka."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from properties.source_database import wire
from properties.source_database.database import (
    AddedPartitions,
    Change,
    Database,
    Failover,
    Restart,
    Snapshot,
    Transaction,
)
from properties.source_database.dialects import DIALECTS, Dialect
from properties.source_database.tables import Column, Row, is_stored_out_of_line, key_columns

if TYPE_CHECKING:
    from properties.source_database.flattening import Flattening

OLD_KEY, NEW_KEY = "__debezium.oldkey", "__debezium.newkey"

Uid = tuple[int, int, int]
"""Statement, number among its records, and how often it was sent before: names a record whatever is taken out."""


@dataclass(frozen=True)
class Setup:
    """The setup of tables, connector and topics.

    ``identity`` is PostgreSQL's replica identity; ``headers`` the header converter; ``salt`` changes the partition of
    each key; ``gtids`` is whether MySQL has GTIDs; ``flattened`` are the options of ``ExtractNewRecordState``.
    ``null_arrays``: arrays are set to NULL. ``first_partitions``: the topics' partitions before some were added.
    """

    dialect: str = "postgresql"
    tables: int = 1
    shared_topic: bool = False
    partitions: int = 2
    key_kind: str = "int"
    identity: str = "default"
    arrays: bool = False
    null_arrays: bool = False
    schemas: bool = True
    headers: str = "json"
    salt: int = 0
    gtids: bool = True
    flattened: Flattening | None = None
    first_partitions: int | None = None

    def topic(self, table: int) -> str:
        """The topic of a table."""
        return "shop.public.all" if self.shared_topic else f"shop.public.t{table}"

    def partition(self, key: bytes, partitions: int | None = None) -> int:
        """The partition that a producer chooses among all ``partitions``, or as many as there were then."""
        return zlib.crc32(key, self.salt) % (partitions or self.partitions)


@dataclass(slots=True)
class SentRecord:
    """A record in Kafka.

    ``version`` is that of the database when the record was sent; ``text`` is for the reader of a report.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]
    uid: Uid
    version: int
    text: str


class Connector:
    """Sends the log of one database."""

    def __init__(self, setup: Setup, database: Database) -> None:
        self._setup = setup
        self._dialect: Dialect = DIALECTS[setup.dialect]
        self._database = database
        self._offsets: dict[tuple[str, int], int] = {}
        self._sent: dict[tuple[int, int], int] = {}
        self._records: list[SentRecord] = []
        self._partitions = setup.first_partitions or setup.partitions

    def records(self) -> Sequence[SentRecord]:
        """All records in the order in which they are sent."""
        streamed: list[Transaction] = []
        for entry in self._database.log:
            if isinstance(entry, Transaction):
                self._stream(entry)
                streamed.append(entry)
            elif isinstance(entry, Snapshot):
                self._read(entry)
                streamed.clear()  # a snapshot is not resent
            elif isinstance(entry, Restart):
                self._stream_again(streamed, entry.back)
            elif isinstance(entry, AddedPartitions):
                self._partitions = self._setup.partitions
            elif isinstance(entry, Failover) and self._setup.gtids:
                streamed = [replace(each, log=entry.log) for each in streamed]
                self._stream_again(streamed, entry.back)
            elif isinstance(entry, Failover):
                streamed.clear()  # without GTIDs, the operator lets the connector begin at a place of the new log
        return self._records

    def _stream_again(self, streamed: Sequence[Transaction], back: int) -> None:
        for transaction in streamed[len(streamed) - back :] if back < len(streamed) else streamed:
            self._stream(transaction)

    # -- streaming ----------------------------------------------------------------------------------------------------

    def _stream(self, transaction: Transaction) -> None:
        for number, change in enumerate(transaction.changes):
            self._change(transaction, change, number)

    def _change(self, transaction: Transaction, change: Change, number: int) -> None:
        source = self._dialect.source(transaction, change, number) | self._names(change.table)
        if "gtid" in source and not self._setup.gtids:
            source["gtid"] = None
        kind, old, new = self._setup.key_kind, self._key(change.key), self._key(change.new_key)
        send = _Sender(self, change, transaction, source)
        if change.what == "truncate":
            send(0, "t", None, None, None)
        elif change.what in ("insert", "update"):
            op = "c" if change.what == "insert" else "u"
            send(0, op, old, self._before(change), self._after(change))
        elif change.what == "delete":
            send(0, "d", old, self._before(change), None)
            send(1, "", old, None, None)
        elif self._dialect.key_change_headers:
            forward = [(NEW_KEY, wire.header(kind, new, self._setup.headers))]
            backward = [(OLD_KEY, wire.header(kind, old, self._setup.headers))]
            send(0, "d", old, self._before(change), None, forward)
            send(1, "", old, None, None, forward)
            send(2, "c", new, None, self._after(change), backward)
        else:
            send(0, "d", old, self._before(change), None)
            send(1, "", old, None, None)
            send.source = source | self._dialect.second_half(source)
            send(2, "c", new, None, dict(change.after))  # a row that was deleted and inserted, according to the log

    def _before(self, change: Change) -> Row | None:
        """The row before the change, as far as the database's log contains it."""
        if change.what == "insert":
            return None
        if self._setup.identity == "full" or self._dialect.logs_old_rows:
            return change.before
        if change.what == "update":
            return None
        key = self._key(change.key)
        return {name: key.get(name) for name in change.before}

    def _after(self, change: Change) -> Row:
        """The new row without the cells that the log omits."""
        row, dialect = dict(change.after), self._dialect
        if dialect.omits and self._setup.identity != "full" and change.what != "insert":
            for column in change.columns:
                value = row[column.name]
                kept = column.name in change.before and change.before[column.name] == value
                omitted = is_stored_out_of_line(column, value) or (dialect.omits_nulls and column.type == "large")
                if kept and omitted:
                    row[column.name] = wire.placeholder(column)
        return row

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _read(self, snapshot: Snapshot) -> None:
        rows = [(table, key, row) for table, each in snapshot.rows.items() for key, row in each.items()]
        for place, (table, key, row) in enumerate(rows):
            mark = "incremental" if snapshot.kind == "incremental" else _mark(place, len(rows))
            source = self._dialect.read_source(snapshot, mark) | self._names(table)
            columns = snapshot.columns[table]
            uid = (snapshot.statement, place, 0)
            self._append(uid, snapshot.version, table, columns, "r", self._key(key), None, row, source, ())

    # -- records ------------------------------------------------------------------------------------------------------

    def _names(self, table: int) -> dict[str, str]:
        return {"name": "shop", "db": "shop", "table": f"t{table}"} | self._dialect.names

    def _key(self, number: int) -> Row:
        return key_columns(self._setup.key_kind, number)

    def send_change(
        self,
        transaction: Transaction,
        change: Change,
        part: int,
        op: str,
        key: Row | None,
        before: Row | None,
        after: Row | None,
        source: dict[str, object],
        headers: Sequence[tuple[str, bytes]],
    ) -> None:
        """Append one record of a change."""
        place = (change.statement, change.serial * 3 + part)
        repetition = self._sent.get(place, 0)
        self._sent[place] = repetition + 1
        uid = (*place, repetition)
        self._append(uid, transaction.version, change.table, change.columns, op, key, before, after, source, headers)

    def _append(
        self,
        uid: Uid,
        version: int,
        table: int,
        columns: Sequence[Column],
        op: str,
        key: Row | None,
        before: Row | None,
        after: Row | None,
        source: dict[str, object],
        headers: Sequence[tuple[str, bytes]],
    ) -> None:
        setup = self._setup
        topic, value = setup.topic(table), None
        document = None if key is None else wire.key_document(setup.key_kind, key, schemas=setup.schemas)
        if setup.flattened is not None:
            flat = setup.flattened.record(op, before, after, source)
            if flat is None:
                return
            row, added = flat
            value = None if row is None else wire.flat(setup.key_kind, columns, topic, row, schemas=setup.schemas)
            headers = (*headers, *added)
        elif op:
            value = wire.envelope(
                setup.key_kind, columns, topic, op=op, before=before, after=after, source=source, schemas=setup.schemas
            )
        partition = hash((setup.salt, *uid)) % self._partitions
        if document is not None:
            partition = setup.partition(document, self._partitions)
        offset = self._offsets.get((topic, partition), 0)
        self._offsets[topic, partition] = offset + 1
        named = ", ".join(
            f"{name.removeprefix('__debezium.')}={text.decode()[-30:]}" for name, text in headers if "key" in name
        )
        where = "" if not op else f" {self._dialect.position_text(source)}"
        text = f"{op or 'tombstone'} t{table} {dict(key or {})}{where} {named} {dict(after) if after else ''}".rstrip()
        self._records.append(
            SentRecord(topic, partition, offset, int(source["ts_ms"]), document, value, headers, uid, version, text)
        )


class _Sender:
    """Sends the records of one change."""

    def __init__(
        self, connector: Connector, change: Change, transaction: Transaction, source: dict[str, object]
    ) -> None:
        self._connector = connector
        self._change = change
        self._transaction = transaction
        self.source = source

    def __call__(
        self,
        part: int,
        op: str,
        key: Row | None,
        before: Row | None,
        after: Row | None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        self._connector.send_change(self._transaction, self._change, part, op, key, before, after, self.source, headers)


def _mark(place: int, count: int) -> str:
    if place == count - 1:
        return "last"
    return "first" if place == 0 else "true"
