"""A repair writes differing rows as changes with an offset and an operation."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from headrace.core.model.events import NO_POSITION, Changes, Operation, RowVersion, TableId
from headrace.core.model.keys import FLOOR_KEY
from headrace.core.model.schema import Field, Schema
from headrace.core.verify.repair import Repair, find_overtaken, repair_changes
from headrace.core.verify.verification import comparison, source_rows

TABLE = TableId("shop", "shop", "public", "item")
SCHEMA = Schema("struct", fields=(Field("id", Schema("int32")), Field("name", Schema("string", True))))
STORED = pa.schema([("id", pa.int64()), ("name", pa.string()), ("old", pa.string())])
TOPIC = "shop.public.item"


def changes(known: Mapping[str, RowVersion], ends: Mapping[int, int]) -> Changes:
    """Return the changes that repair row 1, which exists in the source, and row 2, which does not."""
    wanted = comparison(SCHEMA, STORED, ["id"])
    gone = pa.table({"id": pa.array([2], pa.int64())})
    return repair_changes(wanted, source_rows(wanted, [[1], ["one"]]), gone, Repair(TABLE, TOPIC, ends, 99, known))


def version(offset: int, partition: int = 0, topic: str = TOPIC) -> RowVersion:
    return RowVersion(b"00000.00000000000000000007", topic, partition, offset, 5)


def test_rows_become_updates_and_deletes_without_a_position() -> None:
    """A repair updates rows, which keeps columns that only the lake has, and deletes rows, both without a position."""
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
    """A repaired row has the offset of the last record read, or one more if the stored row has exactly that offset."""
    assert changes(known, {0: 10}).version.offset[0] == offset


def test_a_row_stays_in_its_partition() -> None:
    """A repaired row keeps the partition of the stored row; a row without one gets the first partition."""
    made = changes({"=1": version(3, partition=2)}, {1: 10, 2: 20})
    assert made.version.partition.tolist() == [2, 1]
    assert made.version.offset.tolist() == [19, 9]


@pytest.mark.parametrize(
    ("ledger", "indexes"),
    [
        ({"=1": version(9)}, []),
        ({"=1": version(10)}, [0]),
        ({"=2": version(10)}, []),
        ({FLOOR_KEY: version(9)}, []),
        ({FLOOR_KEY: version(10)}, [0]),
    ],
)
def test_rows_deleted_after_the_read_are_overtaken(ledger: Mapping[str, RowVersion], indexes: list[int]) -> None:
    """A delete or truncate in the ledger behind the read overtakes the repair of a row; an earlier one does not."""
    assert find_overtaken(changes({}, {0: 10}), ledger) == indexes
