"""Contract of every RowSource. A subclass provides ``source``: a row source whose table ``app.Orders`` holds ROWS."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.model.arrow_columns import build_array
from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import Fatal
from headrace.core.model.events import Column, TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.rows import UNREADABLE, RowAnswer, RowRequest
from headrace.ports import PartwiseSource, RowSource, TableSource

TABLE = TableId("shop", "inventory", "app", "Orders")
INT = Schema("int32")
TEXT = Schema("string", optional=True)
BYTES = Schema("bytes", optional=True)
PRICE = Schema(
    "bytes", True, "org.apache.kafka.connect.data.Decimal", 1, (("connect.decimal.precision", "10"), ("scale", "2"))
)
SCHEMAS = {"Id": INT, "region": TEXT, "note": TEXT, "blob": BYTES, "price": PRICE}
ROWS: list[dict[str, Any]] = [
    {"Id": 1, "region": "nord", "note": "a 'quoted' \"note\"", "blob": b"\x00\xff", "price": Decimal("1.50")},
    {"Id": 2, "region": "nord", "note": None, "blob": None, "price": None},
    {"Id": 2, "region": "süd, {x}\\", "note": "", "blob": b"", "price": Decimal("-0.01")},
]


def request(keys: list[tuple[int, str]], columns: list[str], needs: list[list[bool]] | None = None) -> RowRequest:
    key = (
        Column("Id", INT, pa.array([number for number, _ in keys], pa.int32())),
        Column("region", TEXT, pa.array([region for _, region in keys])),
    )
    wanted = tuple(Column(name, SCHEMAS.get(name, TEXT), build_array(SCHEMAS.get(name, TEXT), [])) for name in columns)
    mask = np.array(needs if needs is not None else [[True] * len(columns)] * len(keys), np.bool_)
    return RowRequest(TABLE, key, wanted, mask.reshape(len(keys), len(columns)), np.full(len(keys), -1, np.int64))


def cells(answer: RowAnswer, asked: RowRequest, column: int) -> list[Any]:
    """The answer of a column in the form in which an event contains it."""
    return build_array(asked.columns[column].schema, answer.values[column]).to_pylist()


class RowSourceSuite:
    """Inherit from it and provide the fixture ``source``; ``table`` if its name differs.

    ``empty_text`` and ``empty_octets`` are the values of empty cells if the database has no empty values.
    """

    table: TableId = TABLE
    empty_text: str | None = ""
    empty_octets: bytes | None = b""

    @pytest.fixture
    def source(self) -> RowSource:
        """The row source under test."""
        raise NotImplementedError

    def catalog(self, source: RowSource) -> CatalogTable:
        catalog = source.catalog(self.table)
        assert catalog is not None
        return catalog

    def test_answers_match_their_requests(self, source: RowSource) -> None:
        """Answers match their requests by row and column, in whatever order the database returns the rows."""
        asked = request([(2, "süd, {x}\\"), (1, "nord"), (2, "nord")], ["note", "price"])
        answer = source.fetch(self.catalog(source), asked)
        assert answer.found.tolist() == [True, True, True]
        assert cells(answer, asked, 0) == [self.empty_text, "a 'quoted' \"note\"", None]
        assert cells(answer, asked, 1) == [Decimal("-0.01"), Decimal("1.50"), None]

    def test_rows_that_are_gone_are_not_found(self, source: RowSource) -> None:
        """A key without a row is reported as not found, and the other keys are answered."""
        asked = request([(9, "nord"), (1, "nord")], ["blob"])
        answer = source.fetch(self.catalog(source), asked)
        assert answer.found.tolist() == [False, True]
        assert answer.values[0][1] == b"\x00\xff"

    def test_every_row_answers_what_it_needs(self, source: RowSource) -> None:
        """Rows of one request may need different columns."""
        asked = request([(1, "nord"), (2, "süd, {x}\\")], ["note", "blob"], [[True, False], [False, True]])
        answer = source.fetch(self.catalog(source), asked)
        assert cells(answer, asked, 0)[0] == "a 'quoted' \"note\""
        assert answer.values[1][1] == self.empty_octets

    def test_column_that_does_not_exist_is_unreadable(self, source: RowSource) -> None:
        """A column that was dropped stays open; the other columns are answered."""
        asked = request([(1, "nord")], ["gone", "note"])
        answer = source.fetch(self.catalog(source), asked)
        assert answer.values[0][0] is UNREADABLE
        assert answer.of_found(1) == ["a 'quoted' \"note\""]

    def test_key_of_several_rows_is_refused(self, source: RowSource) -> None:
        """S25: columns that do not identify a row return no value of another row."""
        whole = request([(2, "nord")], ["note"])
        part = RowRequest(TABLE, whole.key[:1], whole.columns, whole.needs, whole.transactions)
        with pytest.raises(Fatal, match="several rows"):
            source.fetch(self.catalog(source), part)

    def test_unknown_table_has_no_catalog(self, source: RowSource) -> None:
        """The catalog of a table that does not exist is None; it is no error."""
        assert source.catalog(replace(self.table, table="orders")) is None

    def test_schema_names_every_column(self, source: RowSource) -> None:
        """The ``after`` schema has the table's columns with their types."""
        schema = source.schema(self.catalog(source))
        assert [member.name for member in schema.fields] == list(SCHEMAS)
        assert schema.field("price") == PRICE

    @pytest.mark.parametrize("in_parts", [False, True])
    def test_a_scan_brings_every_row(self, source: RowSource, in_parts: bool) -> None:
        """A scan returns all rows with the values that a fetch returns; a column that does not exist is unreadable.

        So does one in parts, if the source has it.
        """
        assert isinstance(source, TableSource)
        fields = [*source.schema(self.catalog(source)).fields, Field("gone", TEXT)]
        rows: list[tuple[Any, ...]] = []
        pieces = source.scan(self.catalog(source), fields)
        if in_parts and isinstance(source, PartwiseSource):
            parts = [(part.rows, part.values()) for part in source.scan_in_parts(self.catalog(source), fields)]
            assert all(rows == len(values[0]) for rows, values in parts)
            pieces = iter([values for _, values in parts])
        for values in pieces:
            columns = [
                values[n] if values[n][0] is UNREADABLE else build_array(fields[n].schema, values[n]).to_pylist()
                for n in range(len(fields))
            ]
            rows.extend(zip(*columns, strict=True))
        empties = {"": self.empty_text, b"": self.empty_octets}
        wanted = [(*(empties.get(value, value) for value in row.values()), UNREADABLE) for row in ROWS]
        assert sorted(rows, key=lambda row: row[:2]) == sorted(wanted, key=lambda row: row[:2])

    def test_the_log_never_goes_back(self, source: RowSource) -> None:
        """A later position of the log is not below an earlier one."""
        assert isinstance(source, TableSource)
        assert source.log_position().end <= source.log_position().end

    def test_close_is_idempotent(self, source: RowSource) -> None:
        """Close may be called twice."""
        source.close()
        source.close()
