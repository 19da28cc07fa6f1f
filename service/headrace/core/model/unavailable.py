"""The unavailable value placeholder, which a connector writes instead of an unchanged value that it does not have.

Debezium writes one configured text in a dozen forms, depending on the column's type and the handling modes
(``reselect.md`` section 2, measured in ``tests/fixtures/postgres/placeholders.json``), and for other types a null.
``Placeholder.mask`` finds the forms in a column of decoded values. ``hides_value`` returns whether a null may replace
an unchanged value.

Columns are tested as Arrow arrays. Texts are compared only if their length is that of a form, so that a column without
a placeholder costs one pass over its offsets.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.arrow_columns import FEW, byte_lengths
from headrace.core.model.catalog import CatalogColumn, HandlingModes, SqlType
from headrace.core.model.errors import ConfigError
from headrace.core.model.inferred_types import INFERRED, UNCERTAIN_NULL_TYPES
from headrace.core.model.schema import Schema

DEFAULT_PLACEHOLDER = "__debezium_unavailable_value"
KEY = "unavailable.value.placeholder"
SHORTEST_TELLING_CUT = 8
"""The shortest prefix of a placeholder, after ``column.truncate.to.N.chars``, that counts as a placeholder."""

Mask = npt.NDArray[np.bool_]


class Placeholder:
    """All forms of one connector's ``unavailable.value.placeholder`` in events (``reselect.md`` section 2.1).

    ``text`` is the configured value. After the prefix ``hex:`` it contains bytes, which are decoded as Java decodes
    UTF-8, with U+FFFD for malformed bytes. Raises ConfigError for invalid hexadecimal digits.
    """

    def __init__(self, text: str = DEFAULT_PLACEHOLDER) -> None:
        self.encoded = text.encode()
        if text.startswith("hex:"):
            try:
                self.encoded = bytes.fromhex(text.removeprefix("hex:"))
            except ValueError as error:
                raise ConfigError(
                    f"{KEY}: 'hex:' must be followed by an even number of hexadecimal digits", KEY
                ) from error
        self.text = self.encoded.decode("utf-8", "replace")
        standard = base64.b64encode(self.encoded).decode()
        url_safe = base64.urlsafe_b64encode(self.encoded).decode()
        digest = hashlib.md5(self.encoded, usedforsecurity=False).digest()
        self.uuid = str(uuid.UUID(bytes=digest, version=3))  # as Java's ``UUID.nameUUIDFromBytes``
        self.map_json = json.dumps({self.text: self.text}, ensure_ascii=False, separators=(",", ":"))
        self.signed = np.frombuffer(self.encoded, dtype=np.int8).astype(np.int64)
        self._texts = _Forms([self.text, standard, url_safe, self.encoded.hex()], pa.string())
        self._json_texts = _Forms([self.text, standard, url_safe, self.encoded.hex(), self.map_json], pa.string())
        # proven: S18
        self._element_texts = _Forms([self.text, standard, url_safe, self.encoded.hex(), self.uuid], pa.string())
        self._raw = _Forms([self.encoded], pa.binary())
        forms = (self.text, standard, url_safe, self.encoded.hex(), self.map_json, self.uuid)
        self._form_lengths = frozenset(map(len, forms))

    def mask(self, schema: Schema, values: pa.Array, *, embedded: bool = True) -> Mask | None:
        """Return which cells of a column are the placeholder, or None if no cell is.

        ``schema`` is the column's Connect schema, ``values`` are its decoded cells (``core/model/arrow_columns.py``).
        ``embedded`` is False for JSON without schemas, where binary values and maps arrive as text in any column.
        """
        kind = values.type
        if pa.types.is_null(kind) or len(values) == 0:
            return None
        if _is_text(kind):
            cut = _truncation(schema)
            if cut is not None and cut < len(self.text):  # proven: N10
                return _Forms([self.text[:cut]], pa.string()).mask(values) if cut >= SHORTEST_TELLING_CUT else None
            is_json = schema.name is not None and schema.name.endswith(".Json")
            return (self._json_texts if is_json or not embedded else self._texts).mask(values)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return self._raw.mask(values)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return self._list_mask(schema, values, embedded)
        if pa.types.is_map(kind) and _is_text(kind.key_type) and _is_text(kind.item_type):
            return self._map_mask(values)
        return None

    def ambiguous(self, schema: Schema, values: pa.Array) -> Mask | None:
        """Return which cells may be a placeholder that was truncated to 1 to 7 characters (``truncateLength``)."""
        cut = _truncation(schema)
        if cut is None or not 0 < cut < SHORTEST_TELLING_CUT or not _is_text(values.type):
            return None
        return _Forms([self.text[:cut]], pa.string()).mask(values)

    def is_form(self, value: object) -> bool:
        """Return whether a Connect value is any form of the placeholder, in any column (the cache rejects these)."""
        if isinstance(value, str):
            return len(value) in self._form_lengths and (value in self._json_texts or value == self.uuid)
        if isinstance(value, bytes):
            return value == self.encoded
        if isinstance(value, dict):
            return value == {self.text: self.text}
        if isinstance(value, list):
            return value == self.signed.tolist() or any(self.is_form(element) for element in value)
        return False

    def _list_mask(self, schema: Schema, values: pa.Array, embedded: bool) -> Mask | None:
        elements = values.flatten()
        if pa.types.is_integer(elements.type) or pa.types.is_date32(elements.type):
            # The placeholder's bytes as signed numbers; in a ``date[]`` as epoch days.
            width = len(self.signed)
            rows = np.flatnonzero(_equals(pc.list_value_length(values), width))
            if len(rows) == 0 or width == 0:
                return None
            elements = values.take(pa.array(rows)).flatten()
            numbers = elements.cast(pa.int32()) if pa.types.is_date32(elements.type) else elements
            valid = np.asarray(numbers.is_valid()).reshape(-1, width)
            equal = np.asarray(numbers.fill_null(0)).reshape(-1, width) == self.signed
            return _mask_of(rows[(valid & equal).all(axis=1)], len(values))
        if _is_text(elements.type):
            mask = self._element_texts.mask(elements)
        elif schema.items is None:
            return None
        else:
            mask = self.mask(schema.items, elements, embedded=embedded)
        if mask is None:
            return None
        parents = np.asarray(pc.list_parent_indices(values))
        return _mask_of(parents[mask], len(values))

    def _map_mask(self, values: pa.MapArray) -> Mask | None:
        offsets = np.asarray(values.offsets)
        rows = np.flatnonzero((np.diff(offsets) == 1) & np.asarray(values.is_valid()))
        if len(rows) == 0:
            return None
        first = pa.array(offsets[rows])
        named = _equals(values.keys.take(first), self.text)
        filled = _equals(values.items.take(first), self.text)
        return _mask_of(rows[named & filled], len(values))


class _Forms:
    """A few texts or byte strings to search for, by length first."""

    def __init__(self, forms: Iterable[str | bytes], arrow_type: pa.DataType) -> None:
        self._forms = frozenset(forms)
        self._set = pa.array(sorted(self._forms), arrow_type)
        self._lengths = sorted({len(form.encode() if isinstance(form, str) else form) for form in self._forms})

    def __contains__(self, value: object) -> bool:
        return value in self._forms

    def mask(self, values: pa.Array) -> Mask | None:
        if len(values) <= FEW:
            return _mask_of([place for place, value in enumerate(values.to_pylist()) if value in self], len(values))
        lengths = byte_lengths(values)
        candidates = lengths == self._lengths[0]
        for length in self._lengths[1:]:
            candidates |= lengths == length
        rows = np.flatnonzero(candidates)
        if len(rows) == 0:
            return None
        # None of the forms is null, so that a null equals none, whatever its length.
        equal = pc.is_in(values.take(pa.array(rows)), value_set=self._set.cast(values.type))
        return _mask_of(rows[np.asarray(equal)], len(values))


def hides_value(schema: Schema, column: CatalogColumn | None, modes: HandlingModes) -> bool:
    """Return whether a null in an update may replace an unchanged value of this column (``reselect.md`` section 2.2).

    The result is exact with a catalog column. Without one, the event's schema and the configured modes decide, and an
    uncertain case is True. A null of plain text is a null, unless the binary mode writes ``bytea`` as text.
    """
    if schema.parameters == INFERRED:
        return schema.type in UNCERTAIN_NULL_TYPES
    if column is None:
        return _schema_loses_value(schema, modes)
    domain, typmod = column.type, column.typmod
    while typmod < 0 and domain.base is not None:  # a domain stores the modifier of its column in its type
        domain, typmod = domain.base, domain.typmod
    return column.omittable and _type_loses_value(column.type.base_type(), typmod, modes)


LARGEST_INLINE_PRECISION = 28
"""Digits of a ``numeric`` that always fit into 24 bytes: values of this size are never stored out of line."""
LARGEST_INLINE_BITS = 96
"""The same for ``bit(n)`` and ``bit varying(n)``."""

_TELLING_TYPES = frozenset(
    {
        "text",
        "varchar",
        "bpchar",
        "char",
        "name",
        "citext",
        "json",
        "jsonb",
        "xml",
        "uuid",
        "ltree",
        "tsvector",
        "hstore",
    }
    | {"inet", "cidr", "macaddr", "macaddr8", "isbn"}
    | {"int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"}
)
"""Types (and below, types of array elements) whose unavailable value has a placeholder in every mode."""
_TELLING_ELEMENTS = frozenset({"text", "varchar", "bpchar", "json", "jsonb", "int4", "int8", "uuid"})
_DATES_AS_DAYS = frozenset({"adaptive", "adaptive_time_microseconds", "microseconds", "nanoseconds"})
_LOSING_STRUCTS = frozenset(
    {"VariableScaleDecimal", "Geometry", "Geography", "DoubleVector", "FloatVector", "SparseDoubleVector"}
)


def _type_loses_value(sql_type: SqlType, typmod: int, modes: HandlingModes) -> bool:
    if (element := sql_type.element) is not None:
        if element.name == "bytea":
            return modes.binary != "bytes"
        if element.name == "date":
            return modes.time_precision not in _DATES_AS_DAYS
        return element.name not in _TELLING_ELEMENTS
    if sql_type.name == "bytea":
        return modes.binary.startswith("base64")
    if sql_type.name == "numeric":
        precision = ((typmod - 4) >> 16) & 0xFFFF if typmod >= 4 else -1
        return modes.decimal != "string" and not 0 <= precision <= LARGEST_INLINE_PRECISION
    if sql_type.name in ("bit", "varbit"):
        return not 0 < typmod <= LARGEST_INLINE_BITS
    return sql_type.kind != "e" and sql_type.name not in _TELLING_TYPES


def _schema_loses_value(schema: Schema, modes: HandlingModes) -> bool:
    if schema.type == "array":
        if (items := schema.items) is None:
            return True
        if items.semantic:
            return items.semantic not in ("Uuid", "Date") or items.name == "org.apache.kafka.connect.data.Date"
        return not (items.type == "int32" or (items.type == "bytes" and modes.binary == "bytes"))
    if schema.type == "string":
        return schema.name is None and modes.binary.startswith("base64")
    if schema.type == "bytes":
        if schema.semantic == "Decimal":
            return int(schema.parameter("connect.decimal.precision") or 1000) > LARGEST_INLINE_PRECISION
        return schema.semantic == "Bits" and int(schema.parameter("length") or 1000) > LARGEST_INLINE_BITS
    if schema.type == "double":
        return modes.decimal == "double"
    return schema.type == "struct" and schema.semantic in _LOSING_STRUCTS


def _truncation(schema: Schema) -> int | None:
    cut = schema.parameter("truncateLength") if schema.parameters else None
    return int(cut) if cut is not None else None


def _is_text(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type))


def _equals(values: pa.Array, wanted: int | str) -> Mask:
    return np.asarray(pc.equal(values, pa.scalar(wanted, values.type)).fill_null(False))


def _mask_of(rows: Sequence[int] | npt.NDArray[np.int64], length: int) -> Mask | None:
    if len(rows) == 0:
        return None
    mask = np.zeros(length, dtype=np.bool_)
    mask[rows] = True
    return mask
