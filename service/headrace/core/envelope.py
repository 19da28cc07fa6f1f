"""Debezium envelopes become change events in columns: the only place that knows before, after, op, source and ts_ms.

``TopicDecoder.decode`` takes the records of one partition in order and returns, in the same order, ``Changes`` and
``Truncate``; what cannot be decoded comes back by index with its stage, and everything else goes on. Records are
decoded in runs that share a schema, one msgspec call and one Arrow build per column and run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.catalog import CatalogTable, HandlingModes
from headrace.core.codec import Codec, Source
from headrace.core.converter import JsonConverter, parse_plain
from headrace.core.errors import BadRecord, Stage
from headrace.core.events import (
    CellState,
    Changes,
    Column,
    Operation,
    TableId,
    Truncate,
    Versions,
)
from headrace.core.keys import canonical_keys
from headrace.core.positions import NO_FORMAT, position_format, positions
from headrace.core.schema import Schema
from headrace.core.unavailable import Placeholder, hides_value

OLD_KEY_HEADER = "__debezium.oldkey"
NEW_KEY_HEADER = "__debezium.newkey"

_UPSERTS = {"c": Operation.CREATE, "u": Operation.UPDATE, "r": Operation.READ}
_NOT_ROWS = ("Heartbeat", "TransactionMetadataValue", "Notification", "SchemaChangeValue", "MessageValue")


class KafkaRecord(Protocol):
    """What the decoder reads of a record; ``timestamp`` in milliseconds."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class EnvelopeOptions:
    """What a connector says about its envelopes. ``key_fields`` overrides the record key's field names."""

    key_schemas: bool = True
    value_schemas: bool = True
    placeholder: Placeholder = field(default_factory=Placeholder)
    modes: HandlingModes = field(default_factory=HandlingModes)
    position_epoch: int = 0
    key_fields: tuple[str, ...] = ()


class Catalog(Protocol):
    """What the source database says, when one is configured."""

    def table(self, table: TableId) -> CatalogTable | None:
        """The table's catalog entry, or None when there is no database or no such table."""

    def schema(self, table: TableId) -> Schema | None:
        """The ``after`` schema that Debezium would send for the table, or None."""


class NoCatalog:
    """The catalog of a connector without a database."""

    def table(self, table: TableId) -> CatalogTable | None:
        """Nothing is known."""
        return None

    def schema(self, table: TableId) -> Schema | None:
        """Nothing is known."""
        return None


@dataclass(frozen=True, slots=True)
class Errant:
    """A record that could not be decoded, by its index in the records given."""

    index: int
    stage: Stage
    error: BadRecord


@dataclass(slots=True)
class Decoded:
    """What a run of records holds. ``skipped`` counts records that are no row changes (heartbeats, messages…)."""

    pieces: list[Changes | Truncate] = field(default_factory=list)
    errant: list[Errant] = field(default_factory=list)
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class _Events:
    """The decoded records of a run, in lists: nothing is made per record that does not end in a column.

    ``rows`` hold the values of the codec's columns (for a delete: the key's, otherwise None).
    """

    indexes: list[int] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    sources: list[Source | None] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.indexes)

    def add(self, index: int, operation: Operation, source: Source | None, row: Any) -> None:
        self.indexes.append(index)
        self.operations.append(operation)
        self.sources.append(source)
        self.rows.append(row)

    @property
    def of_one_table(self) -> bool:
        """Whether all events that tell their table tell the same."""
        return len({(s.table, s.schema, s.db, s.name) for s in self.sources if s is not None}) <= 1

    def slice(self, begin: int, end: int) -> _Events:
        return _Events(
            self.indexes[begin:end], self.operations[begin:end], self.sources[begin:end], self.rows[begin:end]
        )

    def remove(self, place: int) -> int:
        """Take one event out and return its record's index."""
        for part in (self.operations, self.sources, self.rows):
            del part[place]
        return self.indexes.pop(place)


class TopicDecoder:
    """Decodes the records of one topic. Remembers schemas from call to call; one thread at a time."""

    def __init__(self, topic: str, options: EnvelopeOptions, catalog: Catalog | None = None) -> None:
        self._topic = topic
        self._options = options
        self._catalog = catalog or NoCatalog()
        self._keys = JsonConverter(options.key_schemas)
        self._values = JsonConverter(options.value_schemas)
        self._codecs: dict[int, tuple[Schema | None, Codec | None]] = {}
        self._last: Codec | None = None
        self._deleted: dict[int, tuple[int, bytes | None]] = {}  # by partition: offset and key of the last delete
        self._table = TableId("", "", "", topic)

    def decode(self, records: Sequence[KafkaRecord]) -> Decoded:
        """Decode records of one partition, in order of arrival. Never raises for a bad record: it reports it."""
        out = Decoded()
        for schema, run in self._runs(records, out):
            codec = self._codec(schema, records, run, out)
            if codec is not None:
                self._decode_run(codec, records, run, out)
        out.errant.sort(key=lambda errant: errant.index)
        return out

    # -- runs of one schema ---------------------------------------------------------------------------------

    def _runs(self, records: Sequence[KafkaRecord], out: Decoded) -> Iterator[tuple[Schema | None, _Run]]:
        """Split into runs of one value schema. A tombstone, having none, belongs to the run that it follows."""
        run, current, begun = _Run(), None, False
        for index, record in enumerate(records):
            if record.value is None:
                run.add(index, None)
                continue
            try:
                schema, payload = self._values.split(record.value)
            except BadRecord as error:
                out.errant.append(Errant(index, Stage.VALUE_CONVERTER, error))
                continue
            if begun and schema is not current:
                yield current, run
                run = _Run()
            current, begun = schema, True
            run.add(index, payload)
        if run.indexes:
            yield current, run

    def _codec(self, schema: Schema | None, records: Sequence[KafkaRecord], run: _Run, out: Decoded) -> Codec | None:
        if schema is None and self._options.value_schemas and run.only_tombstones:
            if self._last is None and not self._options.key_schemas:
                # Nothing says of which types these keys are. They repeat deletes that were applied before a restart.
                out.skipped += len(run.indexes)
                return None
            return self._last or self._compile(None, records, run)
        key = id(schema)
        if key not in self._codecs:
            if schema is not None and (schema.name or "").endswith(_NOT_ROWS):
                compiled = None
            elif schema is not None and schema.field("op") is None:
                raise_for = BadRecord(f"a value of schema {schema.name!r} is no Debezium change event")
                out.errant += [Errant(index, Stage.TASK_PUT, raise_for) for index in run.indexes]
                return None
            else:
                try:
                    compiled = self._compile(schema, records, run)
                except BadRecord as error:
                    out.errant += [Errant(index, Stage.TASK_PUT, error) for index in run.indexes]
                    return None
                if not compiled.key_fields:  # only truncates so far, perhaps: a later record may tell
                    return compiled
            self._codecs[key] = (schema, compiled)  # holding the schema keeps its id its own
        codec = self._codecs[key][1]
        if codec is None:
            out.skipped += len(run.indexes)
        else:
            self._last = codec
        return codec

    def _compile(self, schema: Schema | None, records: Sequence[KafkaRecord], run: _Run) -> Codec:
        after = None if schema is None else schema.field("after")
        key_schema, names = self._key_shape(records[index] for index in run.indexes)
        return Codec(after, key_schema, self._options.key_fields or names)

    def _key_shape(self, records: Iterable[KafkaRecord]) -> tuple[Schema | None, tuple[str, ...]]:
        """Schema and field names of the first key that is a struct; nothing where no record has such a key."""
        for record in records:
            try:
                schema, payload = (None, b"null") if record.key is None else self._keys.split(record.key)
                plain = None if schema is not None else parse_plain(payload)
            except BadRecord:
                continue  # reported where the key is needed
            if schema is not None and schema.type == "struct":
                return schema, tuple(member.name for member in schema.fields)
            if isinstance(plain, dict):
                return None, tuple(plain)
        return None, ()

    # -- one run --------------------------------------------------------------------------------------------

    def _decode_run(self, codec: Codec, records: Sequence[KafkaRecord], run: _Run, out: Decoded) -> None:
        events = self._events(codec, records, run, out)
        begin = 0
        while begin < len(events):
            end = self._end_of_piece(events, begin)
            if events.operations[begin] is Operation.TRUNCATE:
                version = self._versions(events.slice(begin, end), records).row(0)
                out.pieces.append(Truncate(self._table, version))
            else:
                self._add_changes(codec, records, events.slice(begin, end), out)
            begin = end

    def _end_of_piece(self, events: _Events, begin: int) -> int:
        """Where the next truncate or another source table begins. Notes the table of the piece."""
        self._note_table(events.sources[begin])
        if events.operations[begin] is Operation.TRUNCATE:
            return begin + 1
        if events.of_one_table and Operation.TRUNCATE not in events.operations:
            return len(events)
        table = self._table
        for place in range(begin + 1, len(events)):
            source = events.sources[place]
            if source is not None and not source.is_of(table):
                return place
            if events.operations[place] is Operation.TRUNCATE:
                return place
        return len(events)

    def _note_table(self, source: Source | None) -> None:
        """Remember the table of an event; a tombstone has no source and belongs to the last one."""
        if source is not None and not source.is_of(self._table):
            self._table = TableId(source.name, source.db or "", source.schema or "", source.table or "")

    def _events(self, codec: Codec, records: Sequence[KafkaRecord], run: _Run, out: Decoded) -> _Events:
        envelopes = iter(self._envelopes(codec, run, out))
        events = _Events()
        for index, payload in zip(run.indexes, run.payloads, strict=True):
            envelope: Any = None if payload is None else next(envelopes)
            operation = None if envelope is None else _UPSERTS.get(envelope.op)
            if operation is not None and envelope.after is not None and records[index].key is not None:
                events.add(index, operation, envelope.source, codec.row(envelope.after))
                continue
            try:
                added = self._add_other(events, codec, records[index], index, payload is None, envelope)
            except BadRecord as error:
                out.errant.append(Errant(index, error.stage or Stage.TASK_PUT, error))
            else:
                out.skipped += 0 if added or (envelope is None and payload is not None) else 1
        return events

    def _add_other(
        self, events: _Events, codec: Codec, record: KafkaRecord, index: int, tombstone: bool, envelope: Any
    ) -> bool:
        """Add what is no plain upsert. False for records that are no row change, or were reported already."""
        if tombstone:
            if index == 0 and self._deleted.get(record.partition) == (record.offset - 1, record.key):
                return False  # that delete itself, which ended the records before; within a batch the fold sees it
            events.add(index, Operation.TOMBSTONE, None, self._key_row(codec, record))
        elif envelope is None or envelope.op is None or envelope.op == "m":
            return False
        elif envelope.op == "d":
            events.add(index, Operation.DELETE, envelope.source, self._key_row(codec, record))
            self._deleted[record.partition] = (record.offset, record.key)
        elif envelope.op == "t":
            events.add(index, Operation.TRUNCATE, envelope.source, ())
        elif envelope.op not in _UPSERTS:
            raise BadRecord(f"unknown operation {envelope.op!r} in a change event")
        elif envelope.after is None:
            raise BadRecord(f"a change event with op={envelope.op} and no 'after'")
        elif not codec.key_fields:
            raise BadRecord(_KEYLESS)
        else:
            events.add(index, _UPSERTS[envelope.op], envelope.source, codec.row(envelope.after))
        return True

    def _envelopes(self, codec: Codec, run: _Run, out: Decoded) -> list[Any]:
        """The decoded envelope per payload, None (and reported) where a payload is not what its schema says."""
        payloads = [payload for payload in run.payloads if payload is not None]
        try:
            return codec.decode_all(payloads)
        except msgspec.DecodeError:
            pass
        envelopes = []
        for index, payload in zip(run.indexes, run.payloads, strict=True):
            if payload is not None:
                envelopes.append(self._one_envelope(codec, payload, index, out))
        return envelopes

    def _one_envelope(self, codec: Codec, payload: bytes, index: int, out: Decoded) -> Any:
        try:
            return codec.decode_all([payload])[0]
        except msgspec.DecodeError as error:
            message = f"Converting byte[] to Kafka Connect data failed due to serialization error: {error}"
            out.errant.append(Errant(index, Stage.VALUE_CONVERTER, BadRecord(message)))
            return None

    def _key_row(self, codec: Codec, record: KafkaRecord) -> Sequence[Any]:
        if record.key is None:
            raise BadRecord(_KEYLESS)
        _, payload = self._split_key(record.key)
        return codec.key_row(payload)

    def _split_key(self, key: bytes) -> tuple[Schema | None, bytes]:
        try:
            return self._keys.split(key)
        except BadRecord as error:
            error.stage = Stage.KEY_CONVERTER
            raise

    # -- columns --------------------------------------------------------------------------------------------

    def _add_changes(self, codec: Codec, records: Sequence[KafkaRecord], events: _Events, out: Decoded) -> None:
        while len(events):
            try:
                out.pieces.append(self._changes(codec, records, events))
                return
            except BadRecord as error:
                out.errant.append(Errant(events.remove(error.index or 0), Stage.TASK_PUT, error))

    def _changes(self, codec: Codec, records: Sequence[KafkaRecord], events: _Events) -> Changes:
        table = self._table
        operations = np.array(events.operations, np.uint8)
        old_keys, moved = _key_changes(events, records)
        arrays = codec.columns(events.rows, self._catalog.schema(table) if codec.schemaless else None)
        columns = self._classify(table, arrays, operations, list(old_keys))
        by_name = {column.name: column for column in columns}
        if not codec.key_fields or not all(name in by_name for name in codec.key_fields):
            raise BadRecord(f"the key column(s) {', '.join(codec.key_fields) or '(none)'} are not in the event")
        key = canonical_keys([by_name[name].values for name in codec.key_fields])
        _refuse_null_keys(key)
        return Changes(
            table=table,
            key_fields=codec.key_fields,
            operation=operations,
            key=key,
            version=self._versions(events, records),
            transaction=np.array([_transaction(source) for source in events.sources], np.int64),
            columns=columns,
            old_key=codec.canonical(old_keys, by_name),
            moved=moved,
        )

    def _versions(self, events: _Events, records: Sequence[KafkaRecord]) -> Versions:
        own = [records[index] for index in events.indexes]
        times = [_source_time(source, record) for source, record in zip(events.sources, own, strict=True)]
        return Versions(
            topic=self._topic,
            position=self._positions(events),
            partition=np.full(len(own), own[0].partition, np.int32),
            offset=np.array([record.offset for record in own], np.int64),
            source_time=np.array(times, np.int64),
        )

    def _positions(self, events: _Events) -> npt.NDArray[np.bytes_]:
        """Positions of streamed events. Snapshot reads and tombstones have none (``merge.md`` section 2.2, 2.3)."""
        connector = next((source.connector for source in events.sources if source is not None), None)
        form = position_format(connector) if connector is not None else NO_FORMAT
        read, without = Operation.READ, Source()
        streamed = [
            without if source is None or operation is read else source
            for source, operation in zip(events.sources, events.operations, strict=True)
        ]
        parts = [pa.array([getattr(source, name) for source in streamed], pa.int64()) for name in form.fields]
        return positions(form, self._options.position_epoch, parts, len(events))

    def _classify(
        self,
        table: TableId,
        arrays: Iterable[tuple[str, Schema, pa.Array]],
        operations: npt.NDArray[np.uint8],
        key_changes: list[int],
    ) -> tuple[Column, ...]:
        entry = self._catalog.table(table)
        by_name = {} if entry is None else {column.name: column for column in entry.columns}
        # Snapshot reads too: there the placeholder is the row's own value, which looks just the same.
        may_omit = (operations != Operation.DELETE) & (operations != Operation.TOMBSTONE)
        may_hide = operations == Operation.UPDATE
        may_hide[key_changes] = True
        columns = []
        for name, schema, values in arrays:
            placeholders = self._options.placeholder.mask(schema, values, embedded=self._options.value_schemas)
            if placeholders is not None:
                placeholders &= may_omit
            hides = hides_value(schema, by_name.get(name), self._options.modes)
            columns.append(_with_states(name, schema, values, placeholders, may_hide if hides else None))
        return tuple(columns)


_KEYLESS = (
    "a record without a key: the table is append-only, which needs insert.mode=insert; "
    "give the table a primary key, or name its key columns in primary.key.fields"
)


@dataclass(slots=True)
class _Run:
    """Indexes and payloads of consecutive records with one schema; the payload of a tombstone is None."""

    indexes: list[int] = field(default_factory=list)
    payloads: list[bytes | None] = field(default_factory=list)

    def add(self, index: int, payload: bytes | None) -> None:
        self.indexes.append(index)
        self.payloads.append(payload)

    @property
    def only_tombstones(self) -> bool:
        return not any(payload is not None for payload in self.payloads)


def _with_states(
    name: str,
    schema: Schema,
    values: pa.Array,
    placeholders: npt.NDArray[np.bool_] | None,
    may_hide: npt.NDArray[np.bool_] | None,
) -> Column:
    hidden = None
    if may_hide is not None and values.null_count:
        hidden = may_hide & np.asarray(values.is_null())
    if (placeholders is None or not placeholders.any()) and (hidden is None or not hidden.any()):
        return Column(name, schema, values)
    states = np.where(np.asarray(values.is_valid()), CellState.VALUE, CellState.NULL).astype(np.uint8)
    if hidden is not None:
        states[hidden] = CellState.UNKNOWN
    if placeholders is not None:
        states[placeholders] = CellState.UNCHANGED
        values = pc.if_else(pa.array(placeholders), pa.scalar(None, values.type), values)
    return Column(name, schema, values, states)


def _refuse_null_keys(key: pa.StringArray) -> None:
    if key.null_count:
        index = int(np.flatnonzero(np.asarray(key.is_null()))[0])
        raise BadRecord("a key column is null", index=index, stage=Stage.TASK_PUT)


def _transaction(source: Source | None) -> int:
    return source.txId if source is not None and isinstance(source.txId, int) else -1


def _source_time(source: Source | None, record: KafkaRecord) -> int:
    """Microseconds since the epoch of the source's commit, of the record where the event does not say."""
    if source is None:
        return record.timestamp * 1000
    if source.ts_us is not None:
        return source.ts_us
    return (source.ts_ms if source.ts_ms is not None else record.timestamp) * 1000


def _key_changes(events: _Events, records: Sequence[KafkaRecord]) -> tuple[dict[int, bytes], frozenset[int]]:
    """Second halves of key changes with the old key's document, and the first halves (``merge.md`` section 6)."""
    old_keys: dict[int, bytes] = {}
    moved: list[int] = []
    for place, index in enumerate(events.indexes):
        for name, value in records[index].headers:
            if name == OLD_KEY_HEADER and events.operations[place] is Operation.CREATE:
                old_keys[place] = value
            elif name == NEW_KEY_HEADER:
                moved.append(place)
    return old_keys, frozenset(moved)
