"""The decoding of the envelopes of one value schema to columns.

A codec is compiled once per schema: a msgspec type with only the fields that are used, and the schema of each column.
Rows are tuples in the order of the columns. Rows of JSON without schemas are dicts, whose types come from the
database's catalog or from the values.

Tests: ``tests/unit/core/decode/test_envelope.py``, ``test_header_keys.py``, ``test_schemaless_rows.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.decode.column_rows import Cells, ColumnRows
from headrace.core.decode.json_converter import parse_plain, row_type
from headrace.core.decode.payload import Payload, PayloadDecoder, in_one, one_each
from headrace.core.model.arrow_columns import build_array, cut_instants
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage
from headrace.core.model.events import OWN_PREFIX, Column
from headrace.core.model.inferred_types import infer_schema
from headrace.core.model.keys import canonical_keys
from headrace.core.model.notes import Note
from headrace.core.model.schema import Field, Schema

_encoder = msgspec.json.Encoder(decimal_format="number")

_UNREADABLE = (ValueError, ArithmeticError, RecursionError, OverflowError, BadRecord)  # proven: unreadable-headers
"""The errors that the libraries raise for documents and values that are not a key."""


class HeaderKeys:
    """Parse the key documents in headers as keys of one table."""

    def __init__(self, names: Sequence[str], schemas: Sequence[Schema]) -> None:
        self._schemas = schemas
        row = Schema("struct", fields=tuple(map(Field, names, schemas)))
        # Decimals are base64, or numbers.
        # proven: decimal-header
        key_types = (row_type(row, names, numeric_decimals=numeric) for numeric in (False, True))
        self._decoders = [msgspec.json.Decoder[Any](key_type) for key_type in key_types]

    def texts(self, documents: Mapping[int, bytes]) -> dict[int, str]:
        """Return the canonical text of each document that can be parsed, by its index."""
        rows = {index: row for index, document in documents.items() if (row := self._row(document)) is not None}
        try:
            return self._canonical(rows)
        except _UNREADABLE:  # a value does not fit: convert the rows one by one
            texts: dict[int, str] = {}
            for index, row in rows.items():
                with suppress(*_UNREADABLE):
                    texts |= self._canonical({index: row})
            return texts

    def _row(self, document: bytes) -> tuple[Any, ...] | None:
        """Return the values of the key's columns; None if the document does not have all of them."""
        try:
            # Encode the key without its schema. Numbers keep all digits, because they are parsed as Decimal.
            plain = json.loads(document, strict=False, parse_int=Decimal, parse_float=Decimal, parse_constant=str)
            if isinstance(plain, dict) and plain.keys() == {"schema", "payload"} and isinstance(plain["payload"], dict):
                plain = plain["payload"]
            payload = _encoder.encode(plain)
            for decoder in self._decoders:
                try:
                    row: tuple[Any, ...] = msgspec.structs.astuple(decoder.decode(payload))
                except msgspec.ValidationError:
                    continue
                return None if None in row else row
        except _UNREADABLE:
            pass
        return None

    def _canonical(self, rows: Mapping[int, tuple[Any, ...]]) -> dict[int, str]:
        if not rows:
            return {}
        columns = zip(*rows.values(), strict=True)
        arrays = [build_array(schema, values) for schema, values in zip(self._schemas, columns, strict=True)]
        return dict(zip(rows, canonical_keys(arrays).to_pylist(), strict=True))


CUT_DIGITS_NOTE = "timestamps with a time zone have digits beyond the microsecond, which are cut (docs/types.md)"
MAP_NOTE = (
    "objects with different members are a map; in JSON without schemas it becomes a STRUCT with a member for every key "
    "that is ever seen. Write JSON with schemas, configure reselect.database.* for the type in the catalog, or set "
    "hstore.handling.mode=json at the source"
)

Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


SOURCE_NAMES = ("name", "connector", "db", "schema", "table")
Names = tuple[str | None, ...]
"""The values of SOURCE_NAMES, which all events of one table share."""


class Source(msgspec.Struct, gc=False, frozen=True):
    """The fields of Debezium's source block that are used, of every connector (``core/model/positions.py``)."""

    name: str = ""
    connector: str = ""
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    txId: Number | str | None = None  # noqa: N815 - the wire's own spelling
    ts_ms: Number | None = None
    ts_us: Number | None = None
    lsn: Number | None = None
    file: str | None = None
    pos: Number | None = None
    row: Number | None = None
    server_id: Number | None = None
    gtid: str | None = None
    commit_scn: str | int | None = None
    txSeq: Number | None = None  # noqa: N815 - the wire's own spelling
    commit_lsn: str | None = None
    change_lsn: str | None = None
    event_serial_no: Number | None = None
    snapshot: str | bool | None = None

    @property
    def names(self) -> Names:
        """The values of SOURCE_NAMES."""
        return self.name, self.connector, self.db, self.schema, self.table


class Before(msgspec.Struct, gc=False, frozen=True):
    """An envelope's ``before``: only its presence is used (``reselect.md`` section 1.2)."""


NO_BEFORE = Before()
"""The ``before`` of an envelope without this field."""

ORDERING = "ordering"
"""The attribute for a field of the source block in ``ordering.field`` that ``Source`` does not have."""


def ordering_attribute(field: str) -> str:
    """Return the attribute of a source with ``field``, if its type is ``source_with`` this field."""
    return field if field in Source.__struct_fields__ else ORDERING


def source_with(field: str) -> type[Source]:
    """Return the type of sources with an additional ``field``."""
    if field in Source.__struct_fields__:
        return Source
    members = [(ORDERING, Any, None)]
    ordered = msgspec.defstruct(
        "OrderedSource", members, bases=(Source,), rename={ORDERING: field}, gc=False, frozen=True
    )
    return cast(type[Source], ordered)


@dataclass(frozen=True, slots=True)
class ColumnCells:
    """The cells of a column. ``absent`` marks rows without a schema that do not have it; None where all have it.

    Only the row itself determines whether it has a column, and not the rows that are decoded with it.
    """

    name: str
    schema: Schema
    values: pa.Array
    absent: npt.NDArray[np.bool_] | None = None


class Codec:
    """The decoder of the events of one value schema to columns. ``after`` is None for JSON without schemas."""

    def __init__(
        self,
        after: Schema | None,
        key_schema: Schema | None,
        key_fields: tuple[str, ...],
        source: type[Source] = Source,
    ) -> None:
        self.key_fields = key_fields
        self.source = source
        self.schemaless = after is None
        self._fields = () if after is None else tuple(after.fields)
        self.names = tuple(member.name for member in self._fields)
        _refuse_own_names(self.names)
        self._decimals_as_numbers = False
        self._after = after
        # The row's type of a key column has priority over the key's, so that keys and rows have equal values.
        schemas = [schema for schema in (after, key_schema) if schema is not None]
        self._key_types = [next(filter(None, (schema.field(name) for schema in schemas)), None) for name in key_fields]
        self._decoder = self._make_decoder()
        self._last_table: tuple[Names, PayloadDecoder[Any]] | None = None
        """The names of the table whose events were decoded last, and a decoder of its events only."""
        self._key_decoder: PayloadDecoder[Any] | None = None
        typed = [key_type for key_type in self._key_types if key_type is not None]
        if typed and len(typed) == len(key_fields):
            fields = tuple(Field(name, key_type) for name, key_type in zip(key_fields, typed, strict=True))
            self._key_decoder = PayloadDecoder(row_type(Schema("struct", fields=fields), key_fields))
        self.notes: set[Note] = set()
        """Notes on differences between the tables of this schema and the events."""
        self._header_keys: tuple[tuple[Schema, ...], HeaderKeys] | None = None
        self.key_indexes = [
            next((i for i, member in enumerate(self._fields) if member.name == name), -1) for name in key_fields
        ]
        """The index of each key column in a row; -1 if rows do not have it."""
        self.row: Callable[[Any], Any] = (lambda row: row) if self.schemaless else msgspec.structs.astuple

    def _make_decoder(self, source: type[Source] | None = None) -> PayloadDecoder[Any]:
        source = source or self.source
        row: Any = dict[str, Any]
        if self._after is not None:
            row = row_type(self._after, self.names, numeric_decimals=self._decimals_as_numbers, strict=True)
        envelope = msgspec.defstruct(
            "Envelope",
            [
                ("op", str | None, None),
                ("source", source | None, None),
                ("after", row | None, None),
                ("before", Before | None, NO_BEFORE),
            ],
            gc=False,
        )
        return PayloadDecoder(list[envelope])  # type: ignore[valid-type] # built at run time

    def decode_all(self, payloads: Sequence[Payload]) -> tuple[list[Any], Names | None]:
        """Decode all payloads in one call. Return their envelopes, and the names of their sources.

        The names are those that all sources have. They are None if the sources differ, and at first for a table, whose
        names are compared here for the next call. Raises msgspec.DecodeError if any payload is bad.
        """
        document = in_one(payloads)
        if self._last_table is not None:
            names, decoder = self._last_table
            try:
                return one_each(decoder.decode(document), payloads), names
            except msgspec.ValidationError:
                self._last_table = None  # another table, or a bad envelope: the general decoder distinguishes them
        envelopes = one_each(self._decode(document), payloads)
        sources = [envelope.source for envelope in envelopes]
        if all(sources) and len(names_in_sources := {source.names for source in sources}) == 1:
            # The next events are likely to be of the same table: decode them to a type of sources with exactly these
            # names, which are compared without creating texts. Decoding another source fails.
            (common,) = names_in_sources
            members: list[Any] = []
            for name, constant in zip(SOURCE_NAMES, common, strict=True):
                name_type = None if constant is None else Literal[constant]
                is_default = constant == getattr(Source(), name)
                members.append((name, name_type, constant) if is_default else (name, name_type))
            table_source = msgspec.defstruct(
                "TableSource", members, bases=(self.source,), kw_only=True, gc=False, frozen=True
            )
            self._last_table = common, self._make_decoder(cast(type[Source], table_source))
        return envelopes, None

    def decode(self, payload: Payload) -> Any:
        """Return the envelope of one payload. Raises msgspec.DecodeError."""
        return one_each(self._decode(in_one([payload])), [payload])[0]

    def _decode(self, document: Payload) -> list[Any]:
        try:
            return self._decoder.decode(document)  # type: ignore[no-any-return] # the type was built at run time
        except msgspec.ValidationError:
            if self._decimals_as_numbers or self._after is None:
                raise
        # Decimals may be numbers (decimal.format=NUMERIC). Decode all later documents like this one, but only if this
        # attempt succeeds: the document may be bad for another reason.
        self._decimals_as_numbers = True
        numeric = self._make_decoder()
        self._decimals_as_numbers = False
        envelopes: list[Any] = numeric.decode(document)
        self._decoder, self._decimals_as_numbers = numeric, True
        return envelopes

    def key_row(self, payload: Payload) -> Sequence[object]:
        """Return a row with only the key's values. Raises BadRecord (stage KEY_CONVERTER)."""
        strict = True
        if (
            isinstance(payload, SchemaAndValue) and not isinstance(payload.value, dict) and len(self.key_fields) == 1
        ):  # a single value is that of the only key column; a number may be a text
            payload, strict = SchemaAndValue(None, {self.key_fields[0]: payload.value}), False
        values: Sequence[Any]
        if self._key_decoder is not None:
            try:
                values = msgspec.structs.astuple(self._key_decoder.decode(payload, strict=strict))
            except msgspec.DecodeError as error:
                raise BadRecord(
                    f"the record's key does not fit its table: {error}", stage=Stage.KEY_CONVERTER
                ) from error
        else:
            plain = parse_plain(payload)
            if not isinstance(plain, dict):
                raise BadRecord("the record's key is not a struct", stage=Stage.KEY_CONVERTER)
            values = [plain.get(name) for name in self.key_fields]
        if self.schemaless:
            return dict(zip(self.key_fields, values, strict=True))  # type: ignore[return-value] # schemaless rows are dicts
        row: list[Any] = [None] * len(self._fields)
        for index, value in zip(self.key_indexes, values, strict=True):
            if index >= 0:  # ChangesBuilder rejects the events of rows without a key column
                row[index] = value
        return row

    def columns(self, rows: Sequence[Any] | ColumnRows, catalog_schema: Schema | None) -> Iterator[ColumnCells]:
        """Yield the cells of each column; ``catalog_schema`` is the table's schema for rows that come without one.

        Raises BadRecord with the index of a row that does not fit.
        """
        if isinstance(rows, ColumnRows):
            cells: Iterable[Any] = (rows.columns[name] for name in self.names)
        elif self.schemaless:
            yield from self._infer_columns(rows, catalog_schema)
            return
        else:
            cells = zip(*rows, strict=True)
        for member, values in zip(self._fields, cells, strict=True):
            yield ColumnCells(member.name, member.schema, self._column(member.name, member.schema, values))

    def _infer_columns(self, rows: Sequence[dict[str, Any]], catalog_schema: Schema | None) -> Iterator[ColumnCells]:
        names = list(dict.fromkeys(name for row in rows for name in row))
        if any(name.startswith(OWN_PREFIX) for name in names):
            for index, row in enumerate(rows):  # the error contains the index of the row
                _refuse_own_names(row, index)
        for name in names:
            values = [row.get(name) for row in rows]
            schema = catalog_schema.field(name) if catalog_schema is not None else None
            if schema is None and name in self.key_fields:
                schema = self._key_types[self.key_fields.index(name)]
            if schema is None:
                try:
                    schema = infer_schema(values)
                except BadRecord as error:
                    raise BadRecord(f"column {name!r}: {error}", index=error.index, also=error.also) from error
                if len({frozenset(value) for value in values if isinstance(value, dict)}) > 1:
                    self.notes.add(Note(MAP_NOTE, name))
            elif schema.type in _ENCODED:
                values = [_from_plain(schema, value, i) for i, value in enumerate(values)]
            present = np.fromiter((name in row for row in rows), np.bool_, len(rows))
            yield ColumnCells(name, schema, self._column(name, schema, values), None if present.all() else ~present)

    def _column(self, name: str, schema: Schema, values: Sequence[Any] | Cells) -> pa.Array:
        try:
            column = build_array(schema, values)
        except BadRecord as error:
            raise BadRecord(f"column {name!r}: {error}", index=error.index) from error
        cut = cut_instants(schema, values)
        if cut is not None and name in self.key_fields:
            problem = "digits beyond the microsecond in a key, without which two rows could be one"
            raise BadRecord(f"column {name!r}: {problem}", index=int(cut.argmax()))
        if cut is not None:
            self.notes.add(Note(CUT_DIGITS_NOTE, name))
        return column

    def canonical(self, documents: Mapping[int, bytes], columns: Mapping[str, Column]) -> dict[int, str]:
        """Return the canonical texts of key documents in headers, by index, without those that cannot be parsed."""
        if not documents or not self.key_fields:
            return {}
        schemas = tuple(columns[name].schema for name in self.key_fields)
        if self._header_keys is None or self._header_keys[0] != schemas:
            self._header_keys = schemas, HeaderKeys(self.key_fields, schemas)
        return self._header_keys[1].texts(documents)


_ENCODED = frozenset({"bytes", "struct", "array", "map"})
"""The types of which JSON without schemas does not contain the Connect value."""


def _from_plain(schema: Schema, value: object, index: int) -> object:
    """Convert a schemaless JSON value to the Connect value of a schema from the catalog."""
    if value is None:
        return None
    try:
        row = msgspec.convert({"v": value}, row_type(Schema("struct", fields=(Field("v", schema),)), ["v"]))
    except msgspec.ValidationError as error:
        raise BadRecord("a value does not fit the type of its database column", index=index) from error
    return msgspec.structs.astuple(row)[0]


def _refuse_own_names(names: Iterable[str], index: int | None = None) -> None:
    for name in names:
        if name.startswith(OWN_PREFIX):
            raise BadRecord(f"column {name!r}: the prefix {OWN_PREFIX} is reserved for Headrace", index=index)
