"""Tables of a simulated source database: their columns, keys and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Row = Mapping[str, Any]
"""Values by column, the key's columns among them."""

LARGE = "L"
"""The first letter of texts that PostgreSQL stores out of line (TOAST): an update that keeps them leaves them out."""


@dataclass(frozen=True)
class Column:
    """A column that is not part of the key.

    ``type``: ``int32``, ``int64``, ``text``; ``large`` text, ``texts`` (an array), ``doubles`` (an array whose
    unchanged value arrives as null). ``null``: whether statements set an array to NULL.
    """

    name: str
    type: str
    null: bool = False


COLUMNS = (Column("n", "int32"), Column("name", "text"), Column("big", "large"))
ARRAYS = (Column("tags", "texts"), Column("points", "doubles"))
NULL_ARRAYS = (Column("tags", "texts", null=True), Column("points", "doubles", null=True))
OMITTED = ("large", "texts", "doubles")
"""Types whose values may be left out of an update that keeps them."""

KEY_KINDS = ("int", "text", "decimal", "composite")
_TEXTS = ('a"b', "line\nfeed", "x\\y", "\u00e9", "t5", "t6", "t7", "t8", "t9", "t10")


def key_columns(kind: str, number: int) -> dict[str, Any]:
    """The key's columns of the row that histories call ``number``."""
    if kind == "text":
        return {"id": _TEXTS[number % len(_TEXTS)]}
    if kind == "decimal":
        return {"id": Decimal(150 + 1000 * number).scaleb(-2)}
    if kind == "composite":
        return {"part": f"p{number % 2}", "id": number}
    return {"id": number}


def is_stored_out_of_line(column: Column, value: Any) -> bool:
    """Whether the database stores the value apart from its row, so that its log omits an unchanged one."""
    if value is None or column.type not in OMITTED:
        return False
    return column.type != "large" or value.startswith(LARGE)


def new_value(column: Column, number: int, choice: int) -> Any:
    """A value that no other statement writes.

    A null array may hide a value, so without a database no array is set to null (docs/guarantees.md).
    """
    if column.type in ("int32", "int64"):
        return number + (1 << 40 if column.type == "int64" else 0)
    if column.null and choice % 2 == 0:
        return None
    if column.type == "texts":
        return [f"t{number}", "x"]
    if column.type == "doubles":
        return [number + 0.5]
    if choice % 5 == 0:
        return None
    large = column.type == "large" and choice % 5 > 1
    return f"{LARGE if large else 's'}{number}"
