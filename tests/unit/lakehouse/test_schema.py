"""Column types of lake tables, and which type a column may be widened to."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from headrace.core.model.errors import Fatal
from headrace_connectors.lakehouse.schema import (
    apply_evolution,
    column_list,
    evolution,
    lake_schema,
    lake_type,
    quoted,
    sql_type,
)


def test_small_integers_become_int_at_any_depth() -> None:
    """Iceberg has no integer type below 32 bits."""
    kind = pa.struct([("a", pa.list_(pa.int8())), ("b", pa.map_(pa.large_string(), pa.int16()))])
    expected = pa.struct([("a", pa.list_(pa.int32())), ("b", pa.map_(pa.string(), pa.int32()))])
    assert lake_type(kind) == expected


@pytest.mark.parametrize("event_type", [pa.int8(), pa.int16(), pa.int32()])
@pytest.mark.parametrize("stored", [pa.int32(), pa.int64()])
def test_an_integer_column_takes_a_smaller_type(event_type: pa.DataType, stored: pa.DataType) -> None:
    """``tinyint`` is int16 from Debezium before 3.7 and int8 since: the column that exists stays as it is."""
    wanted = lake_schema("shop.item", pa.schema([("flag", event_type)]))
    assert not evolution("shop.item", pa.schema([("flag", stored)]), wanted)


@pytest.mark.parametrize("kind", [pa.uint32(), pa.time64("us"), pa.timestamp("ns"), pa.decimal256(50, 2), pa.null()])
def test_types_without_a_lake_type_are_refused_by_name(kind: pa.DataType) -> None:
    """The error names the column and the type."""
    with pytest.raises(Fatal, match=r"shop\.item: column 'x' has type"):
        lake_schema("shop.item", pa.schema([("x", kind)]))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.decimal128(12, 2), "DECIMAL(12, 2)"),
        (pa.timestamp("us"), "TIMESTAMP_NTZ"),
        (pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
        (pa.list_(pa.map_(pa.string(), pa.date32())), "ARRAY<MAP<STRING, DATE>>"),
        (pa.struct([("a b", pa.binary()), ("c", pa.float32())]), "STRUCT<`a b`: BINARY, `c`: FLOAT>"),
    ],
)
def test_names_of_types_in_sql(kind: pa.DataType, name: str) -> None:
    """``sql_type`` returns the name of a type with those of its nested types."""
    assert sql_type(kind) == name


def test_identifiers_are_escaped() -> None:
    """A backtick in a name is doubled."""
    assert quoted("a`; DROP TABLE b") == "`a``; DROP TABLE b`"
    assert column_list(pa.schema([("a.b", pa.int64())])) == "`a.b` BIGINT"


def test_a_missing_key_column_is_refused() -> None:
    """The message names the option that decides the key."""
    with pytest.raises(Fatal, match=r"primary\.key\.fields"):
        lake_schema("shop.item", pa.schema([("a", pa.int64())]), ["id"])


def test_a_column_that_occurs_twice_is_refused() -> None:
    """Arrow allows such a schema, a table does not."""
    with pytest.raises(Fatal, match="'a' occurs twice"):
        lake_schema("shop.item", pa.schema([("a", pa.int64()), ("a", pa.string())]))


def test_a_name_that_spark_takes_for_a_variable_is_refused() -> None:
    """Spark passes column names through Hadoop's settings, which replace ``${…}`` by a value."""
    with pytest.raises(Fatal, match=r"'of \$.spark.app.name.'.*exclude"):
        lake_schema("shop.item", pa.schema([("of ${spark.app.name}", pa.int64())]))


def test_evolution_adds_and_widens_columns_and_narrows_none() -> None:
    """A narrower type of an event fits the stored one, and a column that events lack is kept."""
    stored = pa.schema([("a", pa.int32()), ("b", pa.int64()), ("c", pa.decimal128(5, 2)), ("d", pa.string())])
    wanted = pa.schema([("a", pa.int64()), ("b", pa.int32()), ("c", pa.decimal128(9, 2)), ("e", pa.bool_())])
    change = evolution("t", stored, wanted)
    assert [column.name for column in change.added] == ["e"]
    assert [column.name for column in change.widened] == ["a", "c"]
    assert apply_evolution(stored, change) == pa.schema(
        [("a", pa.int64()), ("b", pa.int64()), ("c", pa.decimal128(9, 2)), ("d", pa.string()), ("e", pa.bool_())]
    )
    assert not evolution("t", apply_evolution(stored, change), wanted)


def test_new_members_of_structs() -> None:
    """DDL names a new member by its path; a member with another type is refused as a column is."""
    stored = pa.struct([("a", pa.int64()), ("s", pa.struct([("b", pa.int64())]))])
    wanted = pa.struct(
        [("a", pa.int64()), ("s", pa.struct([("b", pa.int64()), ("c", pa.string())])), ("d", pa.bool_())]
    )
    change = evolution("t", pa.schema([("x", stored)]), pa.schema([("x", wanted), ("y", pa.date32())]))
    assert change.additions == "`y` DATE, `x`.`s`.`c` STRING, `x`.`d` BOOLEAN"
    assert apply_evolution(pa.schema([("x", stored)]), change) == pa.schema([("x", wanted), ("y", pa.date32())])
    for other in (pa.struct([("a", pa.string()), ("d", pa.bool_())]), pa.struct([("s", pa.int64())]), pa.int64()):
        with pytest.raises(Fatal, match="cannot be widened"):
            evolution("t", pa.schema([("x", stored)]), pa.schema([("x", other)]))


def test_structs_of_an_older_schema() -> None:
    """They need no change unless they have another member; the table keeps its order and its wider types."""
    inner = pa.struct([("b", pa.int64()), ("c", pa.string())])
    stored = pa.schema([("x", pa.struct([("a", pa.int64()), ("s", inner)]))])
    for older in (
        pa.struct([("a", pa.int64())]),
        pa.struct([("s", pa.struct([("c", pa.string())])), ("a", pa.int32())]),
    ):
        assert not evolution("t", stored, pa.schema([("x", older)]))
    change = evolution("t", stored, pa.schema([("x", pa.struct([("s", pa.struct([("z", pa.date32())]))]))]))
    assert change.additions == "`x`.`s`.`z` DATE"
    extended = pa.struct([("a", pa.int64()), ("s", pa.struct([*inner, ("z", pa.date32())]))])
    assert apply_evolution(stored, change) == pa.schema([("x", extended)])


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.int64(), pa.float64()),
        (pa.date32(), pa.timestamp("us")),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
    ],
)
def test_other_changes_of_a_type_are_refused(stored: pa.DataType, wanted: pa.DataType) -> None:
    """Evolution refuses the change in both directions."""
    for one, other in ((stored, wanted), (wanted, stored)):
        with pytest.raises(Fatal, match=r"cannot be widened to one another; exclude the column \(field.exclude.list\)"):
            evolution("t", pa.schema([("x", one)]), pa.schema([("x", other)]))


@pytest.mark.parametrize("wrapped", [lambda kind: kind, pa.list_, lambda kind: pa.struct([("in", pa.list_(kind))])])
def test_members_that_differ_only_in_case_are_refused(wrapped: Callable[[pa.DataType], pa.DataType]) -> None:
    """No engine distinguishes them, so they are refused in a new table and in an existing one, at any depth."""
    members = [("id", pa.int64()), ("ID", pa.int64())]
    wanted = pa.schema([("doc", wrapped(pa.struct(members)))])
    with pytest.raises(Fatal, match="column 'doc': member 'ID' differs from 'id' only in case"):
        lake_schema("t", wanted)
    with pytest.raises(Fatal, match="column 'doc': member 'ID' differs from 'id' only in case"):
        evolution("t", pa.schema([("doc", wrapped(pa.struct(members[:1])))]), wanted)
