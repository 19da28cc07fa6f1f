"""``combine`` joins runs of changes into one batch."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from support.records.change_events import Event, changes, create, delete, update

from headrace.core.batch.combine import combine, common_shape, wider_type
from headrace.core.model.events import CellState, TableId


def test_runs_keep_their_order_and_their_key_changes() -> None:
    """``combine`` shifts the indexes of moved deletes and old keys by the length of the runs before."""
    first = changes(create(1, 10, a=1), delete(1, 20, moved=True))
    second = changes(Event(create(2, 21).operation, 2, 21, {"a": 1}, old_key=1), update(2, 30, a=2))
    both = combine([first, second])
    assert both.key.to_pylist() == ["=1", "=1", "=2", "=2"]
    assert (both.key_changes.first_halves, both.key_changes.old_keys) == (frozenset({1}), {2: "=1"})


def test_a_column_that_a_run_lacks_is_absent_there() -> None:
    """A column that only a later run has is absent in the earlier run, not null, so that updates keep stored cells."""
    both = combine([changes(update(1, 10, a=1)), changes(update(1, 20, a=2, b=3), columns=("a", "b"))])
    column = both.columns[2]
    assert column.states is not None
    assert column.states.tolist() == [CellState.ABSENT, CellState.VALUE]


@pytest.mark.parametrize(
    ("left", "right", "wider"),
    [
        (pa.int16(), pa.int64(), pa.int64()),
        (pa.float64(), pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 2), pa.decimal128(12, 2)),
        (pa.null(), pa.string(), pa.string()),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), None),
        (pa.int32(), pa.string(), None),
    ],
)
def test_types_are_widened_and_nothing_else(left: pa.DataType, right: pa.DataType, wider: pa.DataType | None) -> None:
    """``wider_type`` returns the type that holds both types without loss, or None."""
    assert wider_type(left, right) == wider


def test_runs_of_types_that_do_not_go_together_are_not_joined() -> None:
    """``joined`` returns None for runs whose column types have no common type."""
    number, text = changes(update(1, 10, a=1)), changes(update(1, 20, a=1))
    retyped = text.columns[1].__class__("a", text.columns[1].schema, pa.array(["x"]))
    other = text.__class__(
        text.table,
        text.key_fields,
        text.operation,
        text.key,
        text.version,
        text.transaction,
        (text.columns[0], retyped),
    )
    assert common_shape(common_shape(None, number), number) is not None
    assert common_shape(common_shape(None, number), other) is None


def test_runs_of_several_topics_are_not_joined() -> None:
    """``joined`` returns None for runs of several topics, because each batch has the coordinates of one topic."""
    first, again = changes(update(1, 10, a=1)), changes(update(1, 20, a=1))
    again = replace(again, version=replace(again.version, topic="dead letters"))
    assert common_shape(common_shape(None, first), again) is None


def test_a_delete_that_names_no_table_is_joined_with_the_events_after_it() -> None:
    """The first delete that a worker reads of a topic may have only the topic's name. Two tables are not joined."""
    named, other = changes(create(2, 20, a=1)), changes(create(3, 30, a=1))
    topic = named.version.topic
    named = replace(named, table=TableId("shop", "shop", "public", "items"))
    other = replace(other, table=TableId("shop", "shop", "public", "others"))
    unnamed = replace(changes(delete(1, 20)), table=TableId("", "", "", topic))
    for runs in ([unnamed, named], [named, unnamed], [unnamed, unnamed, named]):
        shape = None
        for run in runs:
            shape = common_shape(shape, run)
            assert shape is not None
        assert combine(runs).table == shape.table == named.table
        assert common_shape(shape, other) is None
