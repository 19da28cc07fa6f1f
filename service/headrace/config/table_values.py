"""Options with a number for all tables, and others for single tables: ``10000,shop_public_orders:2000``.

Tests: ``tests/unit/config/test_table_values.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from headrace.core.batch.batch import TableValues
from headrace.core.connect.config_def import InvalidValue, Validator

_SHOWN = 200
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)


def table_numbers(minimum: int) -> Validator:
    """Validate entries ``number`` and ``table:number``, at most one without a table and one of each table."""

    def check(name: str, entries: Any) -> None:
        tables = set()
        for entry in entries:
            table, _, number = entry.rpartition(":")
            if not _NUMBER.fullmatch(number) or int(number) < minimum or (":" in entry and not table):
                raise InvalidValue(
                    f"Invalid value {entry[:_SHOWN]} for configuration {name}: Must be a number of at least {minimum}, "
                    "or <table>:<number> for one table"
                )
            if table in tables:
                of = f"table {table[:_SHOWN]}" if table else "all tables"
                raise InvalidValue(f"Invalid value {entry[:_SHOWN]} for configuration {name}: Second value of {of}")
            tables.add(table)

    return check


def read_table_values(default: float, unit: Callable[[int], float]) -> Callable[[Sequence[str]], TableValues]:
    """Return a function that reads such entries. ``default`` counts if none is for all tables."""

    def read(entries: Sequence[str]) -> TableValues:
        pairs = [entry.rpartition(":") for entry in entries]
        values = {table: unit(int(number)) for table, _, number in pairs}
        return TableValues(values.pop("", default), values)

    return read
