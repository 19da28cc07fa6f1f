"""New columns, wider and refused types, values of every type, and tables that Headrace did not create."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import cycle, islice
from typing import Any

import pyarrow as pa
import pytest
from support.lake.lake_actions import KEEP, TOPIC, Row, actions, commit, delete, text
from support.lake.lake_harness import ITEM, NOW, LakeFixtures, LakeHarness, apply, item

from headrace.core.model.errors import ConfigError, Fatal
from headrace.core.model.events import RowVersion
from headrace.core.tables.table_layout import PARTITION_BY, SORT_BY, table_layout
from headrace.ports import LakeTable

TYPES: Sequence[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int16(), [-(2**15), 2**15 - 1]),
    (pa.int32(), [-(2**31), 2**31 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.float32(), [0.5, float("inf"), float("-inf"), 1.1754943508222875e-38]),
    (pa.float64(), [-0.0, 1.7976931348623157e308, float("inf"), 5e-324]),
    (pa.decimal128(12, 2), [Decimal("-9999999999.99"), Decimal("0.01")]),
    (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal("-" + "9" * 38)]),
    (pa.decimal128(38, 38), [Decimal("0." + "9" * 38)]),
    (pa.string(), ["", "ünï 😀 \x00 \n", "x" * 100_000]),
    (pa.binary(), [b"", bytes(range(256)), b"\xff" * 100_000]),
    (pa.date32(), [-719162, 2932896, -(2**31), 2**31 - 1, -2147472691, -1000000]),
    (pa.timestamp("us"), [0, -62135596800000000, 253402300799999999, 9223372036825200000, -9223372036832400000,
                          2**63 - 1, -(2**63)]),
    (pa.timestamp("us", tz="UTC"), [1, -62135596800000000, 253402300799999999, 9223372036825200000,
                                    -9223372036832400000]),
    (pa.list_(pa.int32()), [[], [1, None, 3]]),
    (pa.list_(pa.list_(pa.string())), [[], [[], None, ["a", None]]]),
    (pa.map_(pa.string(), pa.string()), [[], [("a", "1"), ("b", None)]]),
    (pa.struct([("x", pa.float64()), ("y", pa.float64())]), [{"x": 1.5, "y": None}]),
    (pa.struct([("wkb", pa.binary()), ("srid", pa.int32())]), [{"wkb": b"\x01", "srid": None}]),
]  # fmt: skip
"""Every data_type of type, with values at the ends of its range."""

_ITEMS = pa.struct([("a", pa.decimal128(9, 3)), ("b", pa.list_(pa.timestamp("us", tz="UTC")))])
LISTS_OF_STRUCTS = [(pa.list_(_ITEMS), [[{"a": Decimal("1.250"), "b": [None]}, None]])]
"""In a table of their own: PyIceberg 0.12 reads a null one as an empty one; in the Parquet file the null is there."""


class LakeColumnsSuite(LakeFixtures):
    """Run as a part of ``LakeTableSuite``."""

    def test_a_table_that_does_not_exist(self, lake: LakeHarness, name: str) -> None:
        """A table that does not exist has no schema, and cannot be written before evolve."""
        table = lake.open(name)
        assert table.schema() is None
        with pytest.raises(Fatal, match="does not exist"):
            apply(table, item(1))

    @pytest.mark.parametrize(
        ("partition", "sort", "option"), [("name, nocolumn", "", PARTITION_BY), ("", "NAME", SORT_BY)]
    )
    def test_a_layout_with_a_column_that_the_table_does_not_have(
        self, lake: LakeHarness, name: str, partition: str, sort: str, option: str
    ) -> None:
        """The error names option, column and the table's columns, and no table exists: a later one has its layout."""
        table = lake.open(name, layout=table_layout("iceberg", partition, sort))
        wrong = "nocolumn" if partition else "NAME"
        with pytest.raises(ConfigError) as refused:
            table.evolve(ITEM, ["id"])
        assert f"{name}: {option} names column '{wrong}', which the table does not have" in str(refused.value)
        assert "the columns are id, name, note, qty, __headrace_" in str(refused.value)
        assert refused.value.key == option
        assert table.schema() is None
        assert lake.open(name).schema() is None

    def test_new_columns_are_added(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Columns are added wherever they occur in the event; stored rows have null in them."""
        wider = pa.schema([ITEM.field("id"), ("new", pa.list_(pa.int64())), *list(ITEM)[1:]])
        table.evolve(wider, ["id"])
        row = {"id": 2, "new": [1, None], "name": "x", "note": None, "qty": 3}
        table.merge(actions(wider, [Row(row, position=11)]), commit())
        assert lake.open(name).schema() == table.schema() == pa.schema([*ITEM, ("new", pa.list_(pa.int64()))])
        found = {row["id"]: row["new"] for row in lake.read(name).to_pylist()}
        assert found == {1: None, 2: [1, None]}

    def test_a_column_that_another_writer_added(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Both handles continue after one of them adds a column, with rows that lack it and then rows that have it."""
        wider = pa.schema([*ITEM, ("new", pa.string())])
        assert table.schema() == ITEM
        lake.open(name).evolve(wider, ["id"])
        assert apply(table, item(1, "u", position=11), item(2, position=12)) == (2, 0)
        table.evolve(wider, ["id"])
        row = {"id": 3, "name": "x", "note": None, "qty": 3, "new": "y"}
        table.merge(actions(wider, [Row(row, position=13)]), commit())
        assert {row["id"]: row["new"] for row in lake.read(name).to_pylist()} == {1: None, 2: None, 3: "y"}

    def test_members_are_added_to_structs(self, lake: LakeHarness, name: str) -> None:
        """Members are added at any depth. Stored structs, and later ones of the older schema, have null in them."""
        inner = pa.struct([("b", pa.int64()), ("c", pa.list_(pa.string()))])
        narrow = pa.schema([("id", pa.int64()), ("s", pa.struct([("x.y", pa.int64()), ("in", pa.struct([inner[0]]))]))])
        wide = pa.schema(
            [("id", pa.int64()), ("s", pa.struct([("x.y", pa.int64()), ("in", inner), ("z", pa.bool_())]))]
        )
        table = lake.open(name)
        table.evolve(narrow, ["id"])
        table.merge(actions(narrow, [Row({"id": 1, "s": {"x.y": 1, "in": {"b": 2}}}, position=1)]), commit())
        table.evolve(wide, ["id"])
        full = {"x.y": 3, "in": {"b": 4, "c": ["d"]}, "z": True}
        table.merge(actions(wide, [Row({"id": 2, "s": full}, position=2)]), commit())
        table.evolve(narrow, ["id"])
        table.merge(actions(narrow, [Row({"id": 3, "s": {"x.y": 5, "in": {"b": 6}}}, position=3)]), commit())
        assert lake.open(name).schema() == table.schema() == wide
        found = {row["id"]: row["s"] for row in lake.read(name).to_pylist()}
        late = {"x.y": 5, "in": {"b": 6, "c": None}, "z": None}
        assert found == {1: {"x.y": 1, "in": {"b": 2, "c": None}, "z": None}, 2: full, 3: late}

    def test_types_get_wider(self, lake: LakeHarness, name: str) -> None:
        """Integers, floats and decimals get wider; stored rows are read in the wider type, and narrow events fit."""
        narrow = pa.schema([("id", pa.int32()), ("s", pa.int16()), ("f", pa.float32()), ("d", pa.decimal128(5, 2))])
        wide = pa.schema([("id", pa.int64()), ("s", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(20, 2))])
        table = lake.open(name)
        table.evolve(narrow, ["id"])
        table.merge(actions(narrow, [Row({"id": 1, "s": -5, "f": 0.5, "d": Decimal("1.25")}, position=1)]), commit())
        table.evolve(wide, ["id"])
        big = {"id": 2**40, "s": 2**40, "f": 1e300, "d": Decimal("123456789012345678.25")}
        table.merge(actions(wide, [Row(big, position=2)]), commit())
        table.evolve(narrow, ["id"])
        table.merge(actions(narrow, [Row({"id": 1, "s": 6, "f": 0.25, "d": Decimal("2.50")}, position=3)]), commit())
        assert table.schema() == wide
        found = sorted(lake.read(name).select(wide.names).to_pylist(), key=lambda row: row["id"])
        assert found == [{"id": 1, "s": 6, "f": 0.25, "d": Decimal("2.50")}, big]

    def test_other_types_are_refused(self, table: LakeTable) -> None:
        """The error names the table, the column and both types; the table does not change."""
        others = {pa.string(): "INT in the table and STRING", pa.float64(): "DOUBLE", pa.decimal128(5, 1): "DECIMAL"}
        for data_type, words in others.items():
            with pytest.raises(Fatal, match=f"item_.*'qty'.*{words}"):
                table.evolve(pa.schema([ITEM.field("id"), ("qty", data_type)]), ["id"])
            assert table.schema() == ITEM

    def test_names_that_conflict_with_others(self, table: LakeTable) -> None:
        """Two names that differ only in case, and names with Headrace's prefix, are refused."""
        for other in ("NAME", "__headrace_position", "__Headrace_x"):
            with pytest.raises(Fatal, match=other):
                table.evolve(pa.schema([*ITEM, (other, pa.string())]), ["id"])

    def test_names_and_keys_of_any_kind(self, lake: LakeHarness, unique: Callable[[str], str]) -> None:
        """Names may have any case, quotes, dots, spaces, emoji and SQL words; texts may have Spark's variables."""
        names = ["Id", "select", "a.b", "tick`s", 'quo"te', "new 😀", "ünï", "'); DROP TABLE x; --", "back\\slash"]
        schema = pa.schema([(column, pa.string()) for column in names])
        name, key = unique("Odd.`Näme` 😀'"), "it's \\ `me` ${spark.app.name} ${system:user.name}"
        table = lake.open(name)
        table.evolve(schema, ["Id"])
        for position, ending in enumerate(["", "'", "\\"], start=1):
            cells = {column: f"{column} ${{spark.app.name}}{ending}" for column in names} | {"Id": key}
            assert table.merge(actions(schema, [Row(cells, position=position)], ["Id"]), commit()).upserted == 1
        kept = dict.fromkeys(names, KEEP) | {"Id": key, "a.b": "new"}
        assert table.merge(actions(schema, [Row(kept, position=9)], ["Id"]), commit()).upserted == 1
        assert lake.read(name).select(names).to_pylist() == [cells | {"a.b": "new"}]
        assert lake.open(name).schema() == schema

    @pytest.mark.parametrize(("types", "nulls"), [(TYPES, [None]), (LISTS_OF_STRUCTS, [])])
    def test_every_type_comes_back_as_it_went(self, lake: LakeHarness, name: str, types: Any, nulls: list[Any]) -> None:
        """Values at both ends of each type's range, and nulls, are read as an insert or a merge wrote them."""
        rows = 1 + max(len(values) for _, values in types)
        columns = {f"v{n}": list(islice(cycle([*nulls, *values]), rows)) for n, (_, values) in enumerate(types)}
        schema = pa.schema([("id", pa.int64()), *zip(columns, (data_type for data_type, _ in types), strict=True)])
        table = lake.open(name)
        table.evolve(schema, ["id"])
        for position in (1, 2):
            cells = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            batch = actions(schema, [Row({"id": n, **row}, position=position) for n, row in enumerate(cells)])
            assert table.merge(batch, commit()).upserted == len(cells)
        stored = lake.read(name).sort_by("id")
        for column in batch.columns[1:]:
            data_type = _exact(column.values.type)
            assert stored[column.name].combine_chunks().cast(data_type) == column.values.cast(data_type), (
                column.values.type
            )

    def test_a_table_of_others_is_refused(self, lake: LakeHarness, name: str) -> None:
        """A table that Headrace did not create is refused, unless the options adopt it."""
        lake.create_otherwise(name, ITEM)
        with pytest.raises(Fatal, match=r"not created by Headrace.*table\.adopt=true"):
            lake.open(name).schema()

    def test_a_table_of_others_is_adopted(self, lake: LakeHarness, name: str, rows: Callable[[], Any]) -> None:
        """An adopted table keeps its rows, applies every change to them, and has a ledger as any other table."""
        lake.create_otherwise(name, pa.schema(list(ITEM)[:3]))
        lake.load_otherwise(name, {"id": 1, "name": "theirs", "note": "a"})
        lake.load_otherwise(name, {"id": 2, "name": "theirs", "note": "b"})
        table = lake.open(name, adopt=True)
        assert table.schema() == pa.schema(list(ITEM)[:3])
        assert table.ledger() == {}
        table.evolve(ITEM, ["id"])
        assert apply(table, item(1, "ours", KEEP, 1, position=1), item(3, position=2)) == (2, 0)
        assert rows() == {1: ("ours", "a", 1), 2: ("theirs", "b", None), 3: ("n", "o", 1)}
        table.record_tombstones({"2": RowVersion(text(3), TOPIC, 0, 3, 30)}, NOW)
        again = lake.open(name)
        assert apply(again, item(1, position=1), delete({"id": 2}, position=3)) == (0, 1)
        assert set(again.ledger()) == {"2"}


def _exact(data_type: pa.DataType) -> pa.DataType:
    """A type whose values compare bit by bit."""
    if pa.types.is_timestamp(data_type):
        return pa.int64()
    return pa.int32() if data_type in (pa.date32(), pa.int16()) else data_type
