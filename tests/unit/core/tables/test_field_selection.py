"""A table's columns are included or excluded, and metadata becomes columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.model.errors import ConfigError
from headrace.core.model.events import Changes, Column, Operation, RowVersion, TableId, Truncate, Versions
from headrace.core.model.schema import Schema
from headrace.core.tables.field_selection import field_selection

TABLE = TableId("shop", "db", "public", "item")
TOPIC = "shop.public.item"


def changes(*operations: Operation) -> Changes:
    """Return events of a table with the key ``id`` and columns a and b."""
    count = len(operations)
    columns = [Column(name, Schema("int64"), pa.array(range(count), pa.int64())) for name in ("id", "a", "b")]
    return Changes(
        table=TABLE,
        key_fields=("id",),
        operation=np.array(operations, np.uint8),
        key=pa.array([str(number) for number in range(count)]),
        version=Versions(
            TOPIC,
            np.full(count, b"", "S26"),
            np.zeros(count, np.int32),
            np.arange(count),
            np.arange(count) + 5_000_000,
        ),
        transaction=np.arange(count) - 1,
        columns=tuple(columns),
    )


def names(include: str = "", exclude: str = "") -> list[str]:
    selection = field_selection(include.split(), exclude.split(), [])
    return [column.name for column in selection.apply(changes(Operation.CREATE)).columns]


def test_by_default_all_columns_stay() -> None:
    """Without options the selection returns the same changes."""
    given = changes(Operation.CREATE)
    assert field_selection([], [], []).apply(given) is given


def test_columns_in_and_out() -> None:
    """The lists name columns, or topics and columns; the key column always stays."""
    assert names(include="a") == ["id", "a"]
    assert names(include=f"{TOPIC}:b other:a") == ["id", "b"]
    assert names(exclude="b id") == ["id", "a"]
    assert names(exclude=f"{TOPIC}:a other:b") == ["id", "b"]


def test_one_list_or_the_other() -> None:
    """An include list and an exclude list together are a configuration error, as in Debezium."""
    with pytest.raises(ConfigError, match="exclude each other"):
        field_selection(["a"], ["b"], [])


def test_metadata_as_columns() -> None:
    """Metadata columns have the names of ExtractNewRecordState, or the name after the colon."""
    operations = [Operation.CREATE, Operation.UPDATE, Operation.DELETE, Operation.READ, Operation.TOMBSTONE]
    add = ["op", "table", "source.db", "source.ts_ms", "source.ts_us:at", "txId"]
    found = field_selection([], [], add).apply(changes(*operations)).columns[3:]
    assert {column.name: column.values.to_pylist() for column in found} == {
        "__op": ["c", "u", "d", "r", "d"],
        "__table": ["item"] * 5,
        "__source_db": ["db"] * 5,
        "__source_ts_ms": [5000] * 5,
        "__at": [5_000_000, 5_000_001, 5_000_002, 5_000_003, 5_000_004],
        "__txId": [None, 0, 1, 2, 3],
    }


def test_the_prefix_of_metadata_columns() -> None:
    """``table.metadata.prefix`` replaces the prefix of the names of metadata columns."""
    selection = field_selection([], [], ["op"], "meta_")
    assert selection.apply(changes(Operation.CREATE)).columns[-1].name == "meta_op"


def test_an_unknown_metadata_field_is_refused() -> None:
    """An unknown metadata field is a configuration error that lists the known fields."""
    with pytest.raises(ConfigError, match=r"table\.metadata\.fields: nonsense .*source\.table"):
        field_selection([], [], ["nonsense"])


def test_a_truncate_stays_as_it_is() -> None:
    """The selection returns a truncate unchanged, because it has no columns."""
    truncate = Truncate(TABLE, RowVersion(b"", TOPIC, 0, 0, 0))
    assert field_selection(["a"], [], ["op"]).apply(truncate) is truncate
