"""Repaired rows as changes: at which offset, and of which kind."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from headrace.core.model.events import NO_POSITION, Changes, Operation, RowVersion, TableId
from headrace.core.model.keys import FLOOR_KEY
from headrace.core.model.schema import Field, Schema
from headrace.core.verify.repair import Repair, overtaken, repair_changes
from headrace.core.verify.verification import comparison, source_rows

TABLE = TableId("shop", "shop", "public", "item")
SCHEMA = Schema("struct", fields=(Field("id", Schema("int32")), Field("name", Schema("string", True))))
STORED = pa.schema([("id", pa.int64()), ("name", pa.string()), ("old", pa.string())])
TOPIC = "shop.public.item"


def changes(known: Mapping[str, RowVersion], ends: Mapping[int, int]) -> Changes:
    """Row 1 read again, row 2 gone."""
    wanted = comparison(SCHEMA, STORED, ["id"])
    gone = pa.table({"id": pa.array([2], pa.int64())})
    return repair_changes(wanted, source_rows(wanted, [[1], ["one"]]), gone, Repair(TABLE, TOPIC, ends, 99, known))


def version(offset: int, partition: int = 0, topic: str = TOPIC) -> RowVersion:
    return RowVersion(b"00000.00000000000000000007", topic, partition, offset, 5)


def test_rows_become_updates_and_deletes_without_a_position() -> None:
    """Updates, not new images: a column that only the lake has is kept."""
    made = changes({}, {0: 10})
    assert made.operation.tolist() == [Operation.UPDATE, Operation.TOMBSTONE]
    assert made.version.position.tolist() == [NO_POSITION] * 2
    assert made.key.to_pylist() == ["=1", "=2"]
    assert [column.name for column in made.columns] == ["id", "name"]
    assert made.columns[0].values.type == pa.int32()
    assert made.columns[1].values.to_pylist() == ["one", None]


@pytest.mark.parametrize(
    ("known", "offset"),
    [
        ({}, 9),
        ({"=1": version(8)}, 9),
        ({"=1": version(9)}, 10),
        ({"=1": version(9, topic="other")}, 9),
        ({FLOOR_KEY: version(9)}, 10),
        ({"=1": version(30)}, 9),
    ],
)
def test_the_offset_is_that_of_the_last_record(known: Mapping[str, RowVersion], offset: int) -> None:
    """One more only where that record is what the row stands for: what came later than both still wins."""
    assert changes(known, {0: 10}).version.offset[0] == offset


def test_a_row_stays_in_its_partition() -> None:
    """Offsets are compared within a partition; a row without one takes the first."""
    made = changes({"=1": version(3, partition=2)}, {1: 10, 2: 20})
    assert made.version.partition.tolist() == [2, 1]
    assert made.version.offset.tolist() == [19, 9]


@pytest.mark.parametrize(
    ("ledger", "places"),
    [
        ({"=1": version(9)}, []),
        ({"=1": version(10)}, [0]),
        ({"=2": version(10)}, []),
        ({FLOOR_KEY: version(9)}, []),
        ({FLOOR_KEY: version(10)}, [0]),
    ],
)
def test_what_was_deleted_after_it_was_read(ledger: Mapping[str, RowVersion], places: list[int]) -> None:
    """By itself or with the whole table; an old delete, whatever its position, is none of it."""
    assert overtaken(changes({}, {0: 10}), ledger) == places
