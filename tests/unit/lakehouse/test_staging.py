"""The rows that Spark gets for a batch, and the columns that the statements refer to."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from support.lake.lake_actions import CARRY, KEEP, Row, actions, delete

from headrace.core.model.errors import Fatal
from headrace.core.model.events import RowVersion
from headrace_connectors.lakehouse.merge import append_sql, merge_sql, text_literal, truncate_sql
from headrace_connectors.lakehouse.staging import SPLIT_ROWS, StagedActions, stages

ITEM = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])


def staged(rows: Sequence[Row], schema: pa.Schema = ITEM, table: pa.Schema = ITEM) -> list[StagedActions]:
    return stages(actions(schema, rows), table)


def item(key: int, name: Any = "n", note: Any = "o", **more: Any) -> Row:
    return Row({"id": key, "name": name, "note": note}, **more)


def test_a_batch_without_kept_cells_reads_no_columns_of_the_table() -> None:
    """The merge reads only key and position of the target, which takes a third of the time."""
    (stage,) = staged([item(1, position=1), delete({"id": 2}, position=2)])
    statement = merge_sql("T", "V", stage.shape)
    assert "t.`name` = s.`name`" in statement
    assert statement.count("t.`name`") == statement.count("t.`note`") == 1
    assert "t.`__headrace_offset`" not in statement.split("UPDATE SET")[0]


def test_a_statement_refers_to_kept_columns_only() -> None:
    """A column with a kept cell does not make the merge read other columns."""
    (stage,) = staged([item(1, KEEP, position=1), item(2, position=2)])
    statement = merge_sql("T", "V", stage.shape)
    assert "t.`name` = IF(s.`__headrace_keep_1`, t.`name`, s.`name`)" in statement
    assert statement.count("t.`note`") == 1
    assert stage.rows["__headrace_keep_1"].to_pylist() == [True, False]


def test_a_large_batch_is_split_and_a_small_one_is_not() -> None:
    """The first part has the rows with kept cells, and the second has all others."""
    known = [item(key, position=key) for key in range(1, SPLIT_ROWS + 1)]
    kept = [item(-1, KEEP, position=1)]
    assert len(staged([*kept, *known[1:]])) == 1
    first, last = staged([*kept, *known])
    assert (first.rows.num_rows, last.rows.num_rows) == (1, SPLIT_ROWS)
    assert first.shape.kept == {1}
    assert not last.shape.kept


def test_a_batch_with_carried_cells_is_one_statement() -> None:
    """One commit has both halves of a key change, also if other rows keep cells."""
    known = [item(key, position=key) for key in range(2, SPLIT_ROWS + 3)]
    batch = [delete({"id": 1}, position=1), item(-1, CARRY, position=2, carry=0), item(-2, KEEP, position=3), *known]
    (stage,) = staged(batch)
    assert stage.rows["__headrace_old_key_0"].to_pylist()[:3] == [None, 1, None]
    assert "WHERE c.`__headrace_carries`" in merge_sql("T", "V", stage.shape)


def test_conditions_that_no_row_needs_are_omitted() -> None:
    """The merge compares the arrival only if an action has no position."""
    (positioned,) = staged([item(1, position=1)])
    (read,) = staged([item(1, at=1)])
    assert "__headrace_by_arrival" not in merge_sql("T", "V", positioned.shape)
    assert "greatest" not in merge_sql("T", "V", positioned.shape)
    assert "__headrace_by_arrival" in merge_sql("T", "V", read.shape)
    assert "greatest(s.`__headrace_position`, t.`__headrace_position`)" in merge_sql("T", "V", read.shape)


def test_only_deletes_or_only_upserts() -> None:
    """The merge omits a clause without rows."""
    (deletes,) = staged([delete({"id": 1}, position=1)])
    (upserts,) = staged([item(1, position=1)])
    assert "INSERT" not in merge_sql("T", "V", deletes.shape)
    assert "DELETE" not in merge_sql("T", "V", upserts.shape)
    assert "WHERE" not in append_sql("T", "V", upserts.shape)


@pytest.mark.parametrize("batch", [(5, 90), (3, 95), (0, 89)])
def test_key_ranges_are_rounded(batch: tuple[int, int]) -> None:
    """Batches with similar keys have one statement text, which Spark compiles once."""
    (stage,) = staged([item(key, position=1) for key in batch])
    assert stage.shape.key_range == "t.`id` BETWEEN CAST('0' AS BIGINT) AND CAST('95' AS BIGINT)"


@pytest.mark.parametrize("ends", [(-(2**63), 2**63 - 1), (2**63 - 1, 2**63 - 1), (-(2**63), -(2**63))])
def test_key_ranges_include_the_limits_of_the_type(ends: tuple[int, int]) -> None:
    """A rounded range has no number outside of the type, and contains every key."""
    (stage,) = staged([item(key, position=1) for key in set(ends)])
    low, high = (int(part.split("'")[1]) for part in stage.shape.key_range.split(" AND "))
    assert -(2**63) <= low <= ends[0] <= ends[1] <= high < 2**63


def test_key_ranges_of_other_types() -> None:
    """Texts and dates have a range; floats and very long texts have none."""
    for kind, values, expected in [
        (pa.string(), ["it's", "a\\"], "t.`k` BETWEEN 'a\\\\' AND 'it\\'s'"),
        (pa.date32(), [datetime.date(1970, 1, 2)], "t.`k` BETWEEN date_from_unix_date(1) AND date_from_unix_date(1)"),
        (pa.float64(), [1.5], ""),
        (pa.string(), ["x" * 1000], ""),
    ]:
        schema = pa.schema([("k", kind)])
        rows = [Row({"k": value}, position=1) for value in values]
        (stage,) = stages(actions(schema, rows, ["k"]), schema)
        assert stage.shape.key_range == expected


def test_absent_columns_are_kept_unless_the_row_is_new() -> None:
    """An inserted row has null in an absent column."""
    (stage,) = staged([Row({"id": 1, "name": "a"}, position=1, fresh=True)], pa.schema(list(ITEM)[:2]))
    statement = merge_sql("T", "V", stage.shape)
    assert "t.`note` = IF(s.`__headrace_fresh`, NULL, t.`note`)" in statement
    assert statement.endswith("VALUES (s.`id`, s.`name`, NULL, " + statement.rpartition("NULL, ")[2])


def test_a_column_that_the_table_lacks_is_an_error() -> None:
    """The batch is not written without the column."""
    with pytest.raises(Fatal, match="'note': the table does not have it"):
        staged([item(1, position=1)], table=pa.schema(list(ITEM)[:2]))


def test_literals_are_escaped() -> None:
    """Quotes and backslashes are escaped."""
    assert text_literal("'; DROP TABLE x; -- \\") == "'\\'; DROP TABLE x; -- \\\\'"
    assert "'it\\'s'" in truncate_sql("T", RowVersion(b"", "it's", 0, 1, 2))
