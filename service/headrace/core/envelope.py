"""Debezium envelopes become change events in columns: the only place that knows before, after, op, source and ts_ms.

``TopicDecoder.decode`` takes the records of one partition in order and returns, in the same order, ``Changes`` and
``Truncate``; what cannot be decoded comes back by index with its stage, and everything else goes on. Records are
decoded in runs that share a schema, one msgspec call and one Arrow build per column and run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.arrays import build_array
from headrace.core.catalog import CatalogTable, HandlingModes
from headrace.core.converter import JsonConverter, parse_plain, row_type
from headrace.core.errors import BadRecord, Stage
from headrace.core.events import (
    NO_POSITION,
    OWN_PREFIX,
    CellState,
    Changes,
    Column,
    Operation,
    TableId,
    Truncate,
    Versions,
)
from headrace.core.inference import infer_schema
from headrace.core.keys import canonical_keys
from headrace.core.positions import position_format, positions
from headrace.core.schema import Field, Schema
from headrace.core.unavailable import Placeholder, hides_value

OLD_KEY_HEADER = "__debezium.oldkey"
NEW_KEY_HEADER = "__debezium.newkey"

_OPERATIONS = {
    "c": Operation.CREATE,
    "u": Operation.UPDATE,
    "d": Operation.DELETE,
    "r": Operation.READ,
    "t": Operation.TRUNCATE,
}
_UPSERTS = frozenset({Operation.CREATE, Operation.UPDATE, Operation.READ})
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


class Source(msgspec.Struct, gc=False):
    """The fields of Debezium's source block that are used."""

    name: str = ""
    connector: str = ""
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    txId: int | str | None = None  # noqa: N815 - the wire's own spelling
    ts_ms: int | None = None
    ts_us: int | None = None
    lsn: int | None = None


@dataclass(frozen=True, slots=True)
class _Event:
    """One decoded record of a run. ``row`` holds the values of the codec's columns (None except keys for a delete)."""

    index: int
    operation: Operation
    source: Source | None
    row: Sequence[Any]


class TopicDecoder:
    """Decodes the records of one topic. Remembers schemas from call to call; one thread at a time."""

    def __init__(self, topic: str, options: EnvelopeOptions, catalog: Catalog | None = None) -> None:
        self._topic = topic
        self._options = options
        self._catalog = catalog or NoCatalog()
        self._keys = JsonConverter(options.key_schemas)
        self._values = JsonConverter(options.value_schemas)
        self._codecs: dict[int, tuple[Schema | None, _Codec | None]] = {}
        self._last: _Codec | None = None
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

    def _codec(self, schema: Schema | None, records: Sequence[KafkaRecord], run: _Run, out: Decoded) -> _Codec | None:
        if schema is None and self._options.value_schemas and run.only_tombstones:
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
            self._codecs[key] = (schema, compiled)  # holding the schema keeps its id its own
        codec = self._codecs[key][1]
        if codec is None:
            out.skipped += len(run.indexes)
        else:
            self._last = codec
        return codec

    def _compile(self, schema: Schema | None, records: Sequence[KafkaRecord], run: _Run) -> _Codec:
        after = None if schema is None else schema.field("after")
        key_schema, names = self._key_shape(records[run.indexes[0]])
        return _Codec(after, key_schema, self._options.key_fields or names)

    def _key_shape(self, record: KafkaRecord) -> tuple[Schema | None, tuple[str, ...]]:
        if record.key is None:
            return None, ()
        schema, payload = self._keys.split(record.key)
        if schema is not None and schema.type == "struct":
            return schema, tuple(member.name for member in schema.fields)
        plain = parse_plain(payload)
        return None, tuple(plain) if isinstance(plain, dict) else ()

    # -- one run --------------------------------------------------------------------------------------------

    def _decode_run(self, codec: _Codec, records: Sequence[KafkaRecord], run: _Run, out: Decoded) -> None:
        events = self._events(codec, records, run, out)
        for truncates, group in groupby(events, key=lambda event: event.operation is Operation.TRUNCATE):
            if truncates:
                out.pieces += [self._truncate(event, records) for event in group]
            else:
                self._changes_by_table(codec, records, list(group), out)

    def _events(self, codec: _Codec, records: Sequence[KafkaRecord], run: _Run, out: Decoded) -> list[_Event]:
        envelopes = iter(self._envelopes(codec, run, out))
        events = []
        for index, payload in zip(run.indexes, run.payloads, strict=True):
            envelope = None if payload is None else next(envelopes)
            try:
                event = self._event(codec, records[index], index, payload is None, envelope)
            except BadRecord as error:
                out.errant.append(Errant(index, error.stage or Stage.TASK_PUT, error))
                continue
            if event is None:
                out.skipped += 1 if payload is None or envelope is not None else 0
            else:
                events.append(event)
        return events

    def _envelopes(self, codec: _Codec, run: _Run, out: Decoded) -> list[Any]:
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

    def _one_envelope(self, codec: _Codec, payload: bytes, index: int, out: Decoded) -> Any:
        try:
            return codec.decode_all([payload])[0]
        except msgspec.DecodeError as error:
            message = f"Converting byte[] to Kafka Connect data failed due to serialization error: {error}"
            out.errant.append(Errant(index, Stage.VALUE_CONVERTER, BadRecord(message)))
            return None

    def _event(self, codec: _Codec, record: KafkaRecord, index: int, tombstone: bool, envelope: Any) -> _Event | None:
        if tombstone:
            return _Event(index, Operation.TOMBSTONE, None, self._key_row(codec, record))
        if envelope is None or envelope.op == "m" or envelope.op is None:
            return None
        operation = _OPERATIONS.get(envelope.op)
        if operation is None:
            raise BadRecord(f"unknown operation {envelope.op!r} in a change event")
        if operation is Operation.TRUNCATE:
            return _Event(index, operation, envelope.source, ())
        if operation is Operation.DELETE:
            return _Event(index, operation, envelope.source, self._key_row(codec, record))
        return _Event(index, operation, envelope.source, self._after_row(codec, record, envelope))

    @staticmethod
    def _after_row(codec: _Codec, record: KafkaRecord, envelope: Any) -> Sequence[Any]:
        if envelope.after is None:
            raise BadRecord(f"a change event with op={envelope.op} and no 'after'")
        if record.key is None and not codec.key_fields:
            raise BadRecord(_KEYLESS)
        return envelope.after if codec.schemaless else msgspec.structs.astuple(envelope.after)

    def _key_row(self, codec: _Codec, record: KafkaRecord) -> Sequence[Any]:
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

    def _truncate(self, event: _Event, records: Sequence[KafkaRecord]) -> Truncate:
        self._note_table(event.source)
        return Truncate(self._table, self._versions([event], records).row(0))

    def _changes_by_table(
        self, codec: _Codec, records: Sequence[KafkaRecord], events: list[_Event], out: Decoded
    ) -> None:
        for _, group in groupby(events, key=self._note_table_of):
            members = list(group)
            table = self._table
            while members:
                try:
                    out.pieces.append(self._changes(codec, table, records, members))
                    break
                except BadRecord as error:
                    culprit = members.pop(error.index or 0)
                    out.errant.append(Errant(culprit.index, Stage.TASK_PUT, error))

    def _note_table_of(self, event: _Event) -> TableId:
        self._note_table(event.source)
        return self._table

    def _note_table(self, source: Source | None) -> None:
        """Remember the table of an event; a tombstone has no source and belongs to the last one."""
        last = self._table
        if source is None or (
            source.table == last.table
            and source.schema == last.schema
            and source.db == last.database
            and source.name == last.name
        ):
            return
        self._table = TableId(source.name, source.db or "", source.schema or "", source.table or "")

    def _changes(self, codec: _Codec, table: TableId, records: Sequence[KafkaRecord], events: list[_Event]) -> Changes:
        operations = np.array([event.operation for event in events], np.uint8)
        old_keys, moved = self._key_changes(events, records)
        arrays = codec.columns(table, [event.row for event in events], self._catalog)
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
            transaction=np.array([_transaction(event.source) for event in events], np.int64),
            columns=columns,
            old_key=codec.canonical(old_keys, by_name),
            moved=moved,
        )

    def _versions(self, events: list[_Event], records: Sequence[KafkaRecord]) -> Versions:
        own = [records[event.index] for event in events]
        sources = [event.source for event in events]
        return Versions(
            topic=self._topic,
            position=self._positions(events),
            partition=np.array([record.partition for record in own], np.int32),
            offset=np.array([record.offset for record in own], np.int64),
            source_time=np.array(
                [_source_time(s, record.timestamp) for s, record in zip(sources, own, strict=True)], np.int64
            ),
        )

    def _positions(self, events: list[_Event]) -> npt.NDArray[np.bytes_]:
        """Positions of streamed events. Snapshot reads and tombstones have none (``merge.md`` section 2.2, 2.3)."""
        connector = next((event.source.connector for event in events if event.source is not None), None)
        if connector is None:
            return np.array([NO_POSITION] * len(events), "S1")
        form = position_format(connector)
        missing = (None,) * len(form.fields)
        read = Operation.READ
        parts = [
            missing if e.source is None or e.operation is read else [getattr(e.source, name) for name in form.fields]
            for e in events
        ]
        return positions(form, self._options.position_epoch, parts)

    @staticmethod
    def _key_changes(events: list[_Event], records: Sequence[KafkaRecord]) -> tuple[dict[int, bytes], frozenset[int]]:
        """Second halves of key changes with the old key's document, and the first halves (``merge.md`` section 6)."""
        old_keys: dict[int, bytes] = {}
        moved: list[int] = []
        for position, event in enumerate(events):
            for name, value in records[event.index].headers:
                if name == OLD_KEY_HEADER and event.operation is Operation.CREATE:
                    old_keys[position] = value
                elif name == NEW_KEY_HEADER:
                    moved.append(position)
        return old_keys, frozenset(moved)

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
    only_tombstones: bool = True

    def add(self, index: int, payload: bytes | None) -> None:
        self.indexes.append(index)
        self.payloads.append(payload)
        if payload is not None:
            self.only_tombstones = False


class _Codec:
    """How the events of one value schema are decoded and laid out in columns.

    Without a schema rows are dicts, and the columns' types come from the database's catalog or from the values.
    """

    def __init__(self, after: Schema | None, key_schema: Schema | None, key_fields: tuple[str, ...]) -> None:
        self.key_fields = key_fields
        self.schemaless = after is None
        self._fields = () if after is None else tuple(member for member in after.fields)
        _refuse_own_names([member.name for member in self._fields])
        self._decimals_as_numbers = False
        self._after = after
        self._key_types = [_key_type(name, after, key_schema) for name in key_fields]
        self._decoder = self._make_decoder()
        self._key_decoder = self._make_key_decoder()
        self._key_places = [self._place(name) for name in key_fields]

    def _place(self, name: str) -> int:
        return next((i for i, member in enumerate(self._fields) if member.name == name), -1)

    def _make_decoder(self) -> msgspec.json.Decoder[Any]:
        row: Any = dict[str, Any]
        if self._after is not None:
            names = [member.name for member in self._fields]
            row = row_type(self._after, names, numeric_decimals=self._decimals_as_numbers)
        envelope = msgspec.defstruct(
            "Envelope",
            [("op", str | None, None), ("source", Source | None, None), ("after", row | None, None)],
            gc=False,
        )
        return msgspec.json.Decoder(list[envelope])  # type: ignore[valid-type] # built at run time

    def _make_key_decoder(self) -> msgspec.json.Decoder[Any] | None:
        typed = [kind for kind in self._key_types if kind is not None]
        if not typed or len(typed) < len(self.key_fields):
            return None
        fields = tuple(Field(name, kind) for name, kind in zip(self.key_fields, typed, strict=True))
        return msgspec.json.Decoder(row_type(Schema("struct", fields=fields), self.key_fields))

    def decode_all(self, payloads: Sequence[bytes]) -> list[Any]:
        """The envelopes of all payloads, in one call. Raises msgspec.DecodeError if any of them is bad."""
        document = b"[" + b",".join(payloads) + b"]"
        try:
            return self._decoder.decode(document)  # type: ignore[no-any-return] # the type was built at run time
        except msgspec.ValidationError:
            if self._decimals_as_numbers or self._after is None:
                raise
        return self._decode_with_numeric_decimals(document)

    def _decode_with_numeric_decimals(self, document: bytes) -> list[Any]:
        self._decimals_as_numbers = True
        numeric = self._make_decoder()
        self._decimals_as_numbers = False
        envelopes: list[Any] = numeric.decode(document)
        self._decoder, self._decimals_as_numbers = numeric, True
        return envelopes

    def key_row(self, payload: bytes) -> Sequence[Any]:
        """A row that holds the key's values and nothing else. Raises BadRecord (stage KEY_CONVERTER)."""
        values = self._key_values(payload)
        if self.schemaless:
            return dict(zip(self.key_fields, values, strict=True))  # type: ignore[return-value] # schemaless rows are dicts
        row: list[Any] = [None] * len(self._fields)
        for place, value in zip(self._key_places, values, strict=True):
            row[place] = value
        return row

    def _key_values(self, payload: bytes) -> Sequence[Any]:
        if self._key_decoder is not None:
            try:
                return msgspec.structs.astuple(self._key_decoder.decode(payload))
            except msgspec.DecodeError as error:
                raise BadRecord(
                    f"the record's key does not fit its table: {error}", stage=Stage.KEY_CONVERTER
                ) from error
        plain = parse_plain(payload)
        if not isinstance(plain, dict):
            raise BadRecord("the record's key is not a struct", stage=Stage.KEY_CONVERTER)
        return [plain.get(name) for name in self.key_fields]

    def columns(self, table: TableId, rows: Sequence[Any], catalog: Catalog) -> Iterator[tuple[str, Schema, pa.Array]]:
        """Name, schema and values of each column. Raises BadRecord with the index of a row that does not fit."""
        if self.schemaless:
            yield from self._inferred(rows, catalog.schema(table))
            return
        for member, values in zip(self._fields, zip(*rows, strict=True), strict=True):
            yield member.name, member.schema, _column(member.name, member.schema, values)

    def _inferred(self, rows: Sequence[dict[str, Any]], known: Schema | None) -> Iterator[tuple[str, Schema, pa.Array]]:
        names = list(dict.fromkeys(name for row in rows for name in row))
        _refuse_own_names(names)
        for name in names:
            values = [row.get(name) for row in rows]
            schema = (known.field(name) if known is not None else None) or self._key_type_of(name)
            if schema is None:
                schema = infer_schema(values)
            elif schema.type in _ENCODED:
                values = [_from_plain(schema, value, i) for i, value in enumerate(values)]
            yield name, schema, _column(name, schema, values)

    def _key_type_of(self, name: str) -> Schema | None:
        return self._key_types[self.key_fields.index(name)] if name in self.key_fields else None

    def canonical(self, documents: dict[int, bytes], columns: dict[str, Column]) -> dict[int, str]:
        """The canonical text of key documents from headers, typed as the key columns are."""
        if not documents:
            return {}
        rows = [self._key_values(_payload_of(document)) for document in documents.values()]
        arrays = [
            build_array(columns[name].schema, values)
            for name, values in zip(self.key_fields, zip(*rows, strict=True), strict=True)
        ]
        return dict(zip(documents, canonical_keys(arrays).to_pylist(), strict=True))


_ENCODED = frozenset({"bytes", "struct", "array", "map"})  # types whose JSON form is not the Connect value yet


def _from_plain(schema: Schema, value: Any, index: int) -> Any:
    """A schemaless JSON value as the Connect value of a schema that the catalog gave."""
    if value is None:
        return None
    try:
        row = msgspec.convert({"v": value}, row_type(Schema("struct", fields=(Field("v", schema),)), ["v"]))
    except msgspec.ValidationError as error:
        raise BadRecord("a value does not fit the type of its database column", index=index) from error
    return msgspec.structs.astuple(row)[0]


def _payload_of(document: bytes) -> bytes:
    """The payload of a header's JSON, which may carry its schema."""
    plain = parse_plain(document)
    if isinstance(plain, dict) and plain.keys() == {"schema", "payload"}:
        return msgspec.json.encode(plain["payload"])
    return document


def _key_type(name: str, after: Schema | None, key_schema: Schema | None) -> Schema | None:
    """The type of a key column: the event's own where there is one, so that both halves of a row agree."""
    if after is not None and after.field(name) is not None:
        return after.field(name)
    return None if key_schema is None else key_schema.field(name)


def _column(name: str, schema: Schema, values: Sequence[Any]) -> pa.Array:
    try:
        return build_array(schema, values)
    except BadRecord as error:
        raise BadRecord(f"column {name!r}: {error}", index=error.index) from error


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


def _refuse_own_names(names: Iterable[str]) -> None:
    for name in names:
        if name.startswith(OWN_PREFIX):
            raise BadRecord(f"column {name!r}: names that start with {OWN_PREFIX} are Headrace's own")


def _refuse_null_keys(key: pa.StringArray) -> None:
    if key.null_count:
        index = int(np.flatnonzero(np.asarray(key.is_null()))[0])
        raise BadRecord("a key column is null", index=index, stage=Stage.TASK_PUT)


def _transaction(source: Source | None) -> int:
    return source.txId if source is not None and isinstance(source.txId, int) else -1


def _source_time(source: Source | None, timestamp: int) -> int:
    """Microseconds since the epoch of the source's commit, of the record where the event does not say."""
    if source is None:
        return timestamp * 1000
    if source.ts_us is not None:
        return source.ts_us
    return (source.ts_ms if source.ts_ms is not None else timestamp) * 1000
