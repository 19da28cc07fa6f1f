"""Column types of lake tables: Arrow, Spark SQL, and the allowed changes of types (``merge.md`` section 8). Pure.

The types in a table are the *lake types*: Iceberg has no integers below 32 bits, so int8 and int16 become int32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.core.model.errors import Fatal
from headrace.core.model.events import OWN_PREFIX
from headrace.core.model.lake_types import TYPE_NAMES, type_name
from headrace.core.model.versioned_writes import CELL_VERSIONS

VERSION_COLUMNS = pa.schema(
    [
        (f"{OWN_PREFIX}position", pa.string()),
        (f"{OWN_PREFIX}topic", pa.string()),
        (f"{OWN_PREFIX}partition", pa.int32()),
        (f"{OWN_PREFIX}offset", pa.int64()),
        (f"{OWN_PREFIX}source_time", pa.timestamp("us", tz="UTC")),
    ]
)
"""Headrace's own columns of every table: the version of the change that the row reflects."""

DELETED = f"{OWN_PREFIX}deleted"
SOFT_COLUMNS = pa.schema([*VERSION_COLUMNS, (DELETED, pa.bool_())])
"""The additional own column of a table that keeps deleted rows: whether the row is deleted."""

HISTORY_COLUMNS = pa.schema(
    [*VERSION_COLUMNS, (f"{OWN_PREFIX}operation", pa.string()), (f"{OWN_PREFIX}unavailable", pa.list_(pa.string()))]
)
"""The own columns of a history: also the operation, and the names of columns with unavailable values."""

_LAKE_TYPES = {
    **{data_type: data_type for data_type in TYPE_NAMES},
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}
_WIDER = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


@dataclass(frozen=True, slots=True)
class Member:
    """A field inside a struct column, by the names that lead to it."""

    path: tuple[str, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Evolution:
    """The alterations after which a table accepts a schema.

    ``added`` are new columns, ``widened`` columns with a wider type; ``grown`` are struct columns that get ``members``.
    """

    added: tuple[pa.Field, ...] = ()
    widened: tuple[pa.Field, ...] = ()
    grown: tuple[pa.Field, ...] = ()
    members: tuple[Member, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.widened or self.grown)

    @property
    def additions(self) -> str:
        """Return new columns and new members of structs as DDL for ADD COLUMNS; empty if there are none."""
        members = (f"{'.'.join(map(quoted, member.path))} {sql_type(member.type)}" for member in self.members)
        return ", ".join(filter(None, (column_list(self.added), *members)))


def quoted(name: str) -> str:
    """Quote a Spark SQL identifier, which may contain any text, dots included."""
    return "`" + name.replace("`", "``") + "`"


def lake_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of a lake column for ``data_type``. Raises TypeError if there is none."""
    if data_type in _LAKE_TYPES:
        return _LAKE_TYPES[data_type]
    if pa.types.is_decimal128(data_type):
        return data_type
    if pa.types.is_list(data_type):
        return pa.list_(lake_type(data_type.value_type))
    if pa.types.is_map(data_type):
        return pa.map_(lake_type(data_type.key_type), lake_type(data_type.item_type))
    if pa.types.is_struct(data_type):
        return pa.struct([(member.name, lake_type(member.type)) for member in data_type])
    raise TypeError(f"no lake type for {data_type}")


def sql_type(data_type: pa.DataType) -> str:
    """Return the Spark SQL name of a lake type."""
    return type_name(data_type, quoted)


def column_list(schema: Iterable[pa.Field]) -> str:
    return ", ".join(f"{quoted(column.name)} {sql_type(column.type)}" for column in schema)


def lake_schema(table: str, schema: pa.Schema, key_fields: Sequence[str] = ()) -> pa.Schema:
    """Return ``schema`` in lake types, with nullable columns. Raises Fatal for a name or type that is not supported."""
    _refuse_names(table, schema.names)
    for name in key_fields:
        if name not in schema.names:
            raise Fatal(f"{table}: key column {name!r} is not among the columns of the events; set primary.key.fields")
    return pa.schema([_lake_field(table, column) for column in schema])


def data_schema(table: str, stored: pa.Schema) -> pa.Schema:
    """Return the data columns of a table in lake types. Raises Fatal for a type that Headrace does not write."""
    return pa.schema([_lake_field(table, column) for column in stored if not column.name.startswith(OWN_PREFIX)])


def _refuse_names(table: str, names: Sequence[str]) -> None:
    _refuse_alike(table, "column", names)
    for name in names:
        if name.lower().startswith(OWN_PREFIX) and name != CELL_VERSIONS:
            raise Fatal(f"{table}: column {name!r} starts with {OWN_PREFIX}, which is reserved; rename or exclude it")


def _refuse_alike(table: str, what: str, names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if "${" in name:
            raise Fatal(f"{table}: {what} {name!r}: Spark treats ${{}} in a name as a variable; rename or exclude it")
        other = seen.get(name.lower())
        if other is not None:
            how = "occurs twice" if other == name else f"differs from {other!r} only in case"
            raise Fatal(f"{table}: {what} {name!r} {how}; lake engines cannot distinguish them; exclude one of them")
        seen[name.lower()] = name


def _refuse_members(table: str, column: str, data_type: pa.DataType) -> None:
    """Members of structs at any depth have the same rules for their names."""
    if pa.types.is_struct(data_type):
        _refuse_alike(table, f"column {column!r}: member", [member.name for member in data_type])
    for index in range(data_type.num_fields):
        _refuse_members(table, column, data_type.field(index).type)


def _lake_field(table: str, column: pa.Field) -> pa.Field:
    _refuse_members(table, column.name, column.type)
    try:
        return pa.field(column.name, lake_type(column.type))
    except TypeError as error:
        raise Fatal(f"{table}: column {column.name!r} has type {column.type}, which no lake table has") from error


def evolution(table: str, stored: pa.Schema, wanted: pa.Schema) -> Evolution:
    """Return the alterations after which ``stored`` accepts values of ``wanted`` (both in lake types).

    Raises Fatal, with table, column and both types, for anything except new columns, wider types and new members.
    """
    _refuse_names(table, [*stored.names, *(name for name in wanted.names if name not in stored.names)])
    added, widened, grown, members = [], [], [], []
    for column in wanted:
        if column.name not in stored.names:
            added.append(column)
            continue
        data_type = stored.field(column.name).type
        _refuse_members(table, column.name, column.type)
        whole = _with_new_members(data_type, column.type)
        if whole is None:
            if not fits(data_type, column.type):
                raise Fatal(
                    f"{table}: column {column.name!r} is {sql_type(data_type)} in the table and "
                    f"{sql_type(column.type)} in the events, which cannot be widened to one another; exclude the "
                    "column (field.exclude.list), or move the table away, so that a new one is created"
                )
            widened.append(column)
        elif whole != data_type:
            _refuse_members(table, column.name, whole)
            grown.append(column.with_type(whole))
            members += _new_members((column.name,), data_type, whole)
    return Evolution(tuple(added), tuple(widened), tuple(grown), tuple(members))


def _with_new_members(stored: pa.DataType, wanted: pa.DataType) -> pa.DataType | None:
    """``stored`` with the additional members of structs in ``wanted``; None if it does not accept values of ``wanted``.

    Names identify members. Members that ``wanted`` lacks are null: its schema may be older.
    """
    if fits(wanted, stored):
        return stored
    if not (pa.types.is_struct(wanted) and pa.types.is_struct(stored)):
        return None
    news = {member.name: member for member in wanted}
    members: list[pa.Field] = []
    for member in stored:
        new = news.pop(member.name, member)
        whole = _with_new_members(member.type, new.type)
        if whole is None:
            return None
        members.append(member.with_type(whole))
    return pa.struct([*members, *news.values()])


def _new_members(path: tuple[str, ...], stored: pa.DataType, whole: pa.DataType) -> list[Member]:
    """The members that ``whole``, which is ``stored`` with new members, has in addition."""
    members: list[Member] = []
    for index, member in enumerate(whole if stored != whole else ()):
        inner = (*path, member.name)
        if index < stored.num_fields:
            members += _new_members(inner, stored[index].type, member.type)
        else:
            members.append(Member(inner, member.type))
    return members


def fits(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether the formats' type promotion converts every value of ``narrow`` to ``wide`` without loss."""
    if narrow == wide or (narrow, wide) in _WIDER:
        return True
    if pa.types.is_decimal128(narrow) and pa.types.is_decimal128(wide):
        return bool(narrow.scale == wide.scale and narrow.precision <= wide.precision)
    return False


def apply_evolution(stored: pa.Schema, change: Evolution) -> pa.Schema:
    wider = {column.name: column for column in (*change.widened, *change.grown)}
    return pa.schema([*(wider.get(column.name, column) for column in stored), *change.added])
