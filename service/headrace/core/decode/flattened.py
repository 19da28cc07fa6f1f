"""Decode flattened records: rows without an envelope, the result of Debezium's ``ExtractNewRecordState``.

The transform keeps the row and, if it is configured (``add.fields``, ``add.headers``), some fields of the envelope:
``__op``, ``__lsn`` or ``__source_lsn``, ``__table``… These are metadata of the event and not columns of the row:

- A delete is ``__deleted`` = ``"true"`` (mode *rewrite*), ``__op`` = ``d``, or a value that is null (*tombstone*,
  *delete-to-tombstone*, *none*). With *drop* it is lost.
- Without ``__op``, a change counts as an update: it creates the row if there is none, and keeps omitted cells. The
  second half of a key change is identified by its header.
- The position is that of the source's connector if all of its fields were added, and if ``__op`` or ``__snapshot``
  distinguishes a change from a snapshot read, whose position must not count (``merge.md`` section 2.2). Otherwise the
  order of arrival decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from headrace.core.decode.codec import NO_BEFORE, Before, Codec, Names, Source, source_with
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope_events import OLD_KEY_HEADER, TOMBSTONE, EventReader, Events, Run
from headrace.core.decode.json_converter import parse_plain, row_type
from headrace.core.decode.payload import Payload, PayloadDecoder, in_one, one_each, read_json
from headrace.core.decode.records import Errant, KafkaRecord
from headrace.core.decode.schema_changes import FIELDS as SCHEMA_CHANGE_FIELDS
from headrace.core.model.errors import BadRecord, Stage
from headrace.core.model.events import NO_POSITION, Changes, Operation
from headrace.core.model.notes import Note
from headrace.core.model.positions import POSITION_FORMATS
from headrace.core.model.schema import Schema

DEFAULT_PREFIX = "__"
"""``add.fields.prefix`` and ``add.headers.prefix`` of the transform."""

_ENVELOPE = ("op", "deleted", "ts_ms", "ts_us", "ts_ns")
_TRANSACTION = ("id", "total_order", "data_collection_order")
_SOURCE = (
    *("version", "connector", "name", "ts_ms", "ts_us", "ts_ns", "snapshot", "db", "sequence", "schema", "table"),
    *("txId", "lsn", "xmin"),
    *("server_id", "gtid", "file", "pos", "row", "thread", "query"),
    *("scn", "commit_scn", "lcr_position", "rs_id", "ssn", "redo_thread", "user_name", "redo_sql", "row_id"),
    *("commit_ts_ms", "start_scn", "start_ts_ms", "txSeq"),
    *("change_lsn", "commit_lsn", "event_serial_no"),
)
"""The fields of the source blocks of all connectors, which ``add.fields`` may contain."""

_USED = frozenset(Source.__struct_fields__)
_POSITIONS = frozenset(part.field for form in POSITION_FORMATS.values() for part in form.parts)


def is_flattened(schema: Schema) -> bool:
    """Return whether a value's schema is that of a row instead of an envelope."""
    if schema.type != "struct" or schema.semantic == "Envelope":
        return False
    return schema.semantic == "Value" or schema.field("op") is None


def plain_is_flattened(payload: Payload) -> bool | None:
    """Return whether a value without a schema is a row; None if it is neither row nor envelope (a heartbeat…)."""
    try:
        value = parse_plain(payload)
    except BadRecord:
        return None  # reported when it is decoded
    if not isinstance(value, dict) or not value or set(value) in _NO_ROWS or value.keys() >= SCHEMA_CHANGE_FIELDS:
        return None
    return not _is_envelope(value)


def _is_envelope(value: Mapping[str, Any]) -> bool:
    return "op" in value and ("source" in value or "after" in value or "before" in value)


_NO_ROWS = (
    {"ts_ms"},
    {"status", "id", "event_count", "data_collections", "ts_ms"},
    {"id", "type", "aggregate_type", "additional_data", "timestamp"},
)
"""Heartbeats, transaction metadata and notifications."""


NO_ORDER = Note(
    "flattened records without a position are applied in order of arrival, so that late ones count; configure "
    "ExtractNewRecordState to add op and the position of the source (add.fields=op,source.lsn for PostgreSQL)"
)


def has_no_order(changes: Changes) -> bool:
    """Return whether a change has no position. Snapshot reads and tombstones never have one, and do not count."""
    streamed = (changes.operation == Operation.CREATE) | (changes.operation == Operation.UPDATE)
    return bool((streamed & (changes.version.position == NO_POSITION)).any())


def lacks_metadata(changes: Changes) -> bool:
    """Return whether op, position or table are absent: reselect is impossible then (``reselect.md`` section 1.1)."""
    return not (changes.table.database and changes.table.table) or has_no_order(changes)


@dataclass(frozen=True, slots=True)
class EventMetadata:
    """The metadata in a flattened record. ``source`` has the fields of the source block."""

    op: str | None
    deleted: bool
    source: Mapping[str, Any]

    @property
    def connector(self) -> str | None:
        """The connector, by its name or by fields that only its source block has."""
        if self.source.get("connector"):
            return str(self.source["connector"])
        for connector, form in POSITION_FORMATS.items():
            if all(part.field in self.source for part in form.parts):
                return connector
        return None

    @property
    def operation(self) -> str:
        """The event's ``op``; an unknown one is an update."""
        if self.deleted:
            return "d"
        is_snapshot = str(self.source.get("snapshot", "false")).lower() != "false"
        return self.op or ("r" if is_snapshot else "u")

    def source_block(self, connector: str, table: str | None, names: MetadataNames) -> Source:
        """The source block with the fields of ``source``; ``table`` is the name of its table if it is not one of them.

        Raises BadRecord for a field of another type than a connector's.
        """
        ordered = self.deleted or self.op is not None or "snapshot" in self.source
        used = _USED | names.positions if ordered else _USED - _POSITIONS - names.positions
        used_fields = {name: value for name, value in self.source.items() if name in used}
        try:
            return msgspec.convert(
                {"table": table} | used_fields | {"connector": connector}, names.source, strict=False
            )
        except msgspec.ValidationError as error:
            raise BadRecord(f"a field that ExtractNewRecordState has added has another type: {error}") from error


class MetadataNames:
    """The names of the fields that ``ExtractNewRecordState`` adds to rows and to headers.

    ``ordering`` is the field of the source block in ``ordering.field``.
    """

    def __init__(
        self, fields_prefix: str = DEFAULT_PREFIX, headers_prefix: str = DEFAULT_PREFIX, ordering: str | None = None
    ) -> None:
        self.positions = frozenset({ordering} if ordering else ())
        self.source = source_with(ordering) if ordering else Source
        self.fields = _names(fields_prefix, self.positions)
        self._headers = _names(headers_prefix, self.positions)
        self.headers_prefix = headers_prefix

    def in_headers(self, headers: Sequence[tuple[str, bytes]]) -> bool:
        """Whether the transform added one of ``headers``: then a null is the delete itself, and follows no other."""
        return any(name in self._headers for name, _ in headers)

    def names_table(self, headers: Sequence[tuple[str, bytes]]) -> bool:
        """Whether the transform added ``op`` and the table to ``headers``."""
        names = {self._headers[name] for name, _ in headers if name in self._headers}
        return {"op", "source.table"} <= names

    def metadata(self, added: Mapping[str, Any], headers: Sequence[tuple[str, bytes]]) -> EventMetadata:
        """The metadata in the fields that were ``added`` to a row, and in the headers of its record."""
        fields = {self._headers[name]: _header_value(value) for name, value in headers if name in self._headers}
        fields |= {self.fields[name]: value for name, value in added.items()}
        of_source = ((name.partition("source."), value) for name, value in fields.items() if value is not None)
        source = {name: value for (_, qualified, name), value in of_source if qualified}
        op = fields.get("op") or ("c" if any(name == OLD_KEY_HEADER for name, _ in headers) else None)
        return EventMetadata(op, str(fields.get("deleted")).lower() == "true" or op == "d", source)


def _names(prefix: str, positions: Iterable[str]) -> dict[str, str]:
    """Return the envelope's fields by their names in a record. Unqualified names are the envelope's own first."""
    of_source = (*_SOURCE, *positions)
    names = {f"{prefix}{name}": f"source.{name}" for name in of_source}
    names |= {f"{prefix}source_{name}": f"source.{name}" for name in of_source}
    names |= {f"{prefix}{word}{name}": f"transaction.{name}" for name in _TRANSACTION for word in ("", "transaction_")}
    return names | {f"{prefix}{name}": name for name in _ENVELOPE}


_anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def _header_value(value: bytes | None) -> Any:
    """Parse a header of JsonConverter (with or without its schema) or SimpleHeaderConverter."""
    if not value:
        return None
    try:
        document = read_json(_anything, value)
    except msgspec.DecodeError:
        return value.decode("utf-8", "replace")
    return document["payload"] if isinstance(document, dict) and "payload" in document else document


class FlatCodec(Codec):
    """The codec of flattened records of one value schema: the row, and the fields that were added to it."""

    def __init__(
        self, value: Schema | None, key_schema: Schema | None, key_fields: tuple[str, ...], names: MetadataNames
    ) -> None:
        self._names = names
        self._added = [] if value is None else [member.name for member in value.fields if member.name in names.fields]
        columns = None
        if value is not None:
            kept = tuple(member for member in value.fields if member.name not in names.fields)
            columns = replace(value, fields=kept)
        super().__init__(columns, key_schema, key_fields)
        rename = {f"f{index}": name for index, name in enumerate(self._added)}
        members = [(field, Any, None) for field in rename]
        added: Any = msgspec.defstruct("Added", members, rename=rename)
        self._metadata = PayloadDecoder[Any](list[added])

    def _make_decoder(self, source: type[Source] | None = None) -> PayloadDecoder[Any]:
        if self._after is None:
            return PayloadDecoder(list[dict[str, Any]])
        names = [member.name for member in self._fields]
        row = row_type(self._after, names, numeric_decimals=self._decimals_as_numbers, strict=True)
        return PayloadDecoder(list[row])  # type: ignore[valid-type] # built at run time

    def decode_all(self, payloads: Sequence[Payload]) -> tuple[list[Any], Names | None]:
        """A row and its added fields, for each payload. Raises msgspec.DecodeError if any of them is bad."""
        document = in_one(payloads)
        rows = one_each(self._decode(document), payloads)
        if self.schemaless:
            names = self._names.fields.keys()
            return [(row, {name: row.pop(name) for name in row.keys() & names}) for row in rows], None
        if not self._added:
            return [(row, {}) for row in rows], None
        added = map(msgspec.structs.astuple, self._metadata.decode(document))
        return [
            (row, dict(zip(self._added, values, strict=True))) for row, values in zip(rows, added, strict=True)
        ], None

    def decode(self, payload: Payload) -> Any:
        return self.decode_all([payload])[0][0]


@dataclass(frozen=True, slots=True)
class _Event:
    """A flattened record in the form of an envelope."""

    op: str
    source: Source
    after: Any
    before: Before = NO_BEFORE


class FlattenedReader(EventReader):
    """Read runs of flattened records, in the form of envelopes."""

    def __init__(
        self, key_schemas: bool, topic: str, names: MetadataNames, keyless: bool = False, rows_have_keys: bool = False
    ) -> None:
        super().__init__(key_schemas, keyless, rows_have_keys)
        self._topic = topic
        self._names = names
        self._connector = ""

    def read(self, codec: Codec, records: Sequence[KafkaRecord], run: Run) -> tuple[Events, Decoded]:
        """Return the events of a run, in order of arrival, and its other records. ``codec`` is a FlatCodec."""
        errant: list[Errant] = []
        try:
            decoded, _ = codec.decode_all([payload for payload in run.payloads if payload is not None])
        except msgspec.DecodeError:
            rows, errant = self._envelopes_one_by_one(codec, run)
            decoded = [row for row in rows if row is not TOMBSTONE]
        remaining = iter(decoded)
        flat = [(None, {}) if payload is None else next(remaining) for payload in run.payloads]
        metadata = [
            None if row is None else self._names.metadata(row[1], records[index].headers)
            for index, row in zip(run.indexes, flat, strict=True)
        ]
        connectors = (event.connector for event in metadata if event is not None)
        self._connector = next(filter(None, connectors), self._connector)
        envelopes: list[Any] = []
        for index, row, event in zip(run.indexes, flat, metadata, strict=True):
            try:
                envelopes.append(None if event is None else self._envelope(row[0], event))
            except BadRecord as error:
                errant.append(Errant(index, Stage.TASK_PUT, error))
                envelopes.append(None)
        events = None if None in envelopes else self._row_changes(codec, records, run, envelopes, None)
        return (events, Decoded()) if events else self._one_by_one(codec, records, run, envelopes, errant)

    def _envelope(self, row: Any, metadata: EventMetadata) -> Any:
        if isinstance(row, dict) and _is_envelope(row):
            raise BadRecord("the record is a change event with an envelope, in a topic of flattened records")
        if row is None and not metadata.deleted:
            return TOMBSTONE
        if not isinstance(metadata.op, str | None):
            raise BadRecord("a field that ExtractNewRecordState has added has another type: op is not a text")
        # A null has only headers, which may lack what the fields of the topic's rows contain: TopicTables completes it.
        source = metadata.source_block(self._connector, None if row is None else self._topic, self._names)
        return _Event(metadata.operation, source, None if metadata.deleted else row)
