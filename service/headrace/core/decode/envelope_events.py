"""The content of Debezium's envelopes in lists, the step between bytes and columns.

Nearly every run of records contains only valid row changes of one table. Such a run is read list by list. Any other run
is read record by record, which classifies each record or reports its error.

Tests: ``tests/unit/core/decode/test_envelope.py``, ``test_hostile_records.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from headrace.core.decode.codec import NO_BEFORE, Before, Codec, Names, Source
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.json_converter import JsonConverter, parse_plain
from headrace.core.decode.payload import Payload
from headrace.core.decode.records import Errant, KafkaRecord
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage
from headrace.core.model.events import Operation
from headrace.core.model.schema import Schema

NO_SOURCE = Source()
"""The source of an event without one: a tombstone."""

OLD_KEY_HEADER = "__debezium.oldkey"
"""The header of the second half of a key change, with the key of the first."""

KEYLESS = (
    "a record without a key, which names no row: give the table a primary key, or name its key columns in "
    "message.key.columns at the source; or read the topic with a connector of its own, with primary.key.fields, or "
    "with insert.mode=insert, which appends every event: both options apply to all tables of a connector"
)

_UPSERTS = {"c": Operation.CREATE, "u": Operation.UPDATE, "r": Operation.READ}
WITH_ROW = frozenset(_UPSERTS.values())
ROW_CHANGES: dict[Any, Operation] = {**_UPSERTS, "d": Operation.DELETE, Operation.TOMBSTONE: Operation.TOMBSTONE}


@dataclass(frozen=True, slots=True)
class _Tombstone:
    """The type of ``TOMBSTONE``, which is used in lists of envelopes."""

    op: Operation = Operation.TOMBSTONE
    source: Source = NO_SOURCE
    after: None = None
    before: Before = NO_BEFORE


TOMBSTONE = _Tombstone()
"""The envelope of a record without a value."""


@dataclass(slots=True)
class Run:
    """Indexes and payloads of consecutive records with one schema; the payload of a tombstone is None.

    ``errant`` are records among them that have no payload, because their documents are damaged.
    """

    indexes: list[int] = field(default_factory=list)
    payloads: list[Payload | None] = field(default_factory=list)
    errant: list[Errant] = field(default_factory=list)

    def add(self, index: int, payload: Payload | None) -> None:
        self.indexes.append(index)
        self.payloads.append(payload)

    def extend(self, other: Run) -> None:
        self.indexes += other.indexes
        self.payloads += other.payloads

    def clear(self) -> None:
        self.indexes, self.payloads = [], []

    def leading_tombstones(self, named: Collection[int] = ()) -> Run:
        """Remove and return the tombstones before the first value, or before a record at an index in ``named``."""
        pairs = enumerate(zip(self.indexes, self.payloads, strict=True))
        ends = (at for at, (index, payload) in pairs if payload is not None or index in named)
        count = next(ends, len(self.payloads))
        leading = Run(self.indexes[:count], self.payloads[:count])
        self.indexes, self.payloads = self.indexes[count:], self.payloads[count:]
        return leading

    def tombstones(self) -> Run:
        places = [index for index, payload in zip(self.indexes, self.payloads, strict=True) if payload is None]
        return Run(places, [None] * len(places))

    @property
    def values(self) -> list[int]:
        return [index for index, payload in zip(self.indexes, self.payloads, strict=True) if payload is not None]

    @property
    def only_tombstones(self) -> bool:
        return not any(payload is not None for payload in self.payloads)


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a run: their records, operations, sources, and values in the order of the codec's columns.

    Of a delete or a tombstone the values are the key's, otherwise None. ``rows`` is a list, or ColumnRows. ``before``
    is False for those whose ``before`` is null. ``common`` are the names in all sources, or None if they may differ.
    """

    indexes: list[int] = field(default_factory=list)
    records: list[KafkaRecord] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    rows: Any = field(default_factory=list)
    before: list[bool] = field(default_factory=list)
    common: Names | None = None

    def __len__(self) -> int:
        return len(self.indexes)

    def add(
        self, index: int, record: KafkaRecord, operation: Operation, source: Source, row: Any, *, before: bool = True
    ) -> None:
        self.indexes.append(index)
        self.records.append(record)
        self.operations.append(operation)
        self.sources.append(source)
        self.rows.append(row)
        self.before.append(before)

    @property
    def of_one_table(self) -> bool:
        """Whether all events are of the same table. A tombstone does not contain its table."""
        return self.common is not None or len({source.names for source in self.sources}) <= 1

    def followed_by(self, others: Events) -> Events:
        """Append ``others`` to these events. Neither may be used afterwards."""
        if not len(self):
            return others
        self.indexes.extend(others.indexes)
        self.records.extend(others.records)
        self.operations.extend(others.operations)
        self.sources.extend(others.sources)
        self.rows.extend(others.rows)
        self.before.extend(others.before)
        return replace(self, common=self.common if self.common == others.common else None)

    def slice(self, begin: int, end: int) -> Events:
        """The events from ``begin`` to before ``end``."""
        if (begin, end) == (0, len(self)):
            return self
        cut = slice(begin, end)
        return Events(
            self.indexes[cut],
            self.records[cut],
            self.operations[cut],
            self.sources[cut],
            self.rows[cut],
            self.before[cut],
            self.common,
        )

    def remove(self, index: int) -> int:
        """Remove one event and return its record's index."""
        for part in (self.records, self.operations, self.sources, self.rows, self.before):
            del part[index]
        return self.indexes.pop(index)


class EventReader:
    """Read the runs of one topic: return their events, and their bad and skipped records.

    ``rows_have_keys`` is whether key columns were named, so that an event with a row may come without a key.
    """

    def __init__(self, key_schemas: bool, keyless: bool = False, rows_have_keys: bool = False) -> None:
        self._keyless = keyless
        self._rows_have_keys = rows_have_keys or keyless
        self._keys = JsonConverter(key_schemas)

    def key_schema_name(self, record: KafkaRecord) -> str | None:
        """The name of the schema of a record's key."""
        try:
            schema = None if record.key is None else self._keys.split(record.key)[0]
        except BadRecord:
            return None  # reported when the key is decoded
        return None if schema is None else schema.name

    def key_shape(self, records: Iterable[KafkaRecord]) -> tuple[Schema | None, tuple[str, ...]]:
        """The schema and the field names of the first key that is a struct; nothing without such a key."""
        for record in records:
            try:
                schema, payload = (None, b"null") if record.key is None else self._keys.split(record.key)
                plain = None if schema is not None else parse_plain(payload)
            except BadRecord:
                continue  # reported when the key is decoded
            if schema is not None and schema.type == "struct":
                return schema, tuple(member.name for member in schema.fields)
            if isinstance(plain, dict):
                return None, tuple(plain)
        return None, ()

    def read(self, codec: Codec, records: Sequence[KafkaRecord], run: Run) -> tuple[Events, Decoded]:
        """Return the events of a run, in order of arrival, and its other records."""
        try:
            envelopes, common = codec.decode_all([payload for payload in run.payloads if payload is not None])
        except msgspec.DecodeError:
            envelopes, errant = self._envelopes_one_by_one(codec, run)
            return self._one_by_one(codec, records, run, envelopes, errant)
        if len(envelopes) < len(run.payloads):
            remaining = iter(envelopes)
            envelopes = [TOMBSTONE if payload is None else next(remaining) for payload in run.payloads]
        events = self._row_changes(codec, records, run, envelopes, common)
        return (events, Decoded()) if events else self._one_by_one(codec, records, run, envelopes)

    # -- list by list -----------------------------------------------------------------------------------------

    def _row_changes(
        self, codec: Codec, records: Sequence[KafkaRecord], run: Run, envelopes: Sequence[Any], common: Names | None
    ) -> Events | None:
        """The events of a run in which every record is a valid change of a row; None for any other run."""
        run_records = [records[index] for index in run.indexes]
        operations: list[Any] = [ROW_CHANGES.get(envelope.op) for envelope in envelopes]
        rows = [None if envelope.after is None else codec.row(envelope.after) for envelope in envelopes]
        without_row = [place for place, row in enumerate(rows) if row is None]
        sources = [envelope.source for envelope in envelopes]
        keys = [record.key for record in run_records]
        are_changes = all(operations) and all(sources) and all(keys)
        removals = operations.count(Operation.DELETE) + operations.count(Operation.TOMBSTONE)
        if not are_changes or run.payloads[0] is None or removals != len(without_row):
            return None
        if any(operations[place] in WITH_ROW for place in without_row):
            return None
        try:
            for place in without_row:
                rows[place] = self._key_row(codec, run_records[place])
        except BadRecord:
            return None
        before = [envelope.before is not None for envelope in envelopes]
        return Events(run.indexes, run_records, operations, sources, rows, before, common)

    # -- record by record -------------------------------------------------------------------------------------

    def _one_by_one(
        self,
        codec: Codec,
        records: Sequence[KafkaRecord],
        run: Run,
        envelopes: Sequence[Any],
        errant: Sequence[Errant] = (),
    ) -> tuple[Events, Decoded]:
        """Return the events of envelopes, which are None for the records in ``errant``, and the other records."""
        events, others = Events(), Decoded(errant=list(errant))
        for index, envelope in zip(run.indexes, envelopes, strict=True):
            if envelope is None:
                continue
            record = records[index]
            try:
                change = self._row_change(codec, record, envelope)
            except BadRecord as error:
                others.errant.append(Errant(index, error.stage or Stage.TASK_PUT, error))
                continue
            if change is None:
                others.skipped += 1
            else:
                operation, row = change
                source = envelope.source or NO_SOURCE
                knows_before = operation not in WITH_ROW or envelope.before is not None
                events.add(index, record, operation, source, row, before=knows_before)
        return events, others

    def _row_change(self, codec: Codec, record: KafkaRecord, envelope: Any) -> tuple[Operation, Any] | None:
        """Return operation and row of an envelope, None for a record that is not a change. Raises BadRecord."""
        operation = envelope.op
        if operation is Operation.TOMBSTONE:
            if record.key is None and self._keyless:
                return None  # MariaDB's connector sends such a record after a delete
            return Operation.TOMBSTONE, self._key_row(codec, record)
        if operation is None or operation == "m":
            return None
        if operation == "d":
            return Operation.DELETE, self._key_row(codec, record)
        if operation == "t":
            return Operation.TRUNCATE, ()
        if operation not in _UPSERTS:
            raise BadRecord(f"the change event has an unknown operation {str(operation)[:20]!r}")
        if envelope.after is None:
            raise BadRecord(f"the change event with op={operation} has no 'after'")
        if record.key is None and not self._rows_have_keys:  # even if other records show the key columns
            raise BadRecord(KEYLESS)
        return _UPSERTS[operation], codec.row(envelope.after)

    def _envelopes_one_by_one(self, codec: Codec, run: Run) -> tuple[list[Any], list[Errant]]:
        """Return the envelope of each payload, None for one that does not match its schema; and these records."""
        envelopes: list[Any] = []
        errant: list[Errant] = []
        for index, payload in zip(run.indexes, run.payloads, strict=True):
            try:
                envelopes.append(TOMBSTONE if payload is None else codec.decode(payload))
            except msgspec.DecodeError as error:
                message = f"Converting byte[] to Kafka Connect data failed due to serialization error: {error}"
                errant.append(Errant(index, Stage.VALUE_CONVERTER, BadRecord(message)))
                envelopes.append(None)
        return envelopes, errant

    def _key_row(self, codec: Codec, record: KafkaRecord) -> Sequence[Any]:
        if record.key is None and not self._keyless:
            raise BadRecord(KEYLESS)
        return codec.key_row(b"{}") if record.key is None else self.key_row(codec, record.key)

    def key_row(self, codec: Codec, key: bytes | SchemaAndValue) -> Sequence[Any]:
        """A row with only a key's values. Raises BadRecord."""
        try:
            _, payload = self._keys.split(key)
        except BadRecord as error:
            error.stage = Stage.KEY_CONVERTER
            raise
        return codec.key_row(payload)
