"""The interface of a lakehouse for the suites, and the table of items that their tests write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa
import pytest
from support.lake.lake_actions import Row, actions, commit

from headrace.core.model.actions import Actions
from headrace.ports import LakeTable

ITEM = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string()), ("qty", pa.int32())])
NOW = 1_790_000_000_000_000
DAY = 24 * 3600 * 1_000_000


class LakeHarness(Protocol):
    """A lakehouse as the suites use it."""

    def open(self, name: str, **options: Any) -> LakeTable:
        """A new handle for a table; ``options`` are those of ``TableOptions``."""

    def create_otherwise(self, name: str, schema: pa.Schema) -> None:
        """Make a table without Headrace."""

    def read(self, name: str) -> pa.Table:
        """The whole table, own columns included, in any order."""

    def summary(self, name: str) -> Mapping[str, str]:
        """The summary of the newest commit."""

    def drop(self, name: str) -> None:
        """Drop the table, but not its ledger."""

    def drop_ledger(self, name: str) -> None:
        """Drop the ledger of the table."""

    def hidden(self, name: str) -> AbstractContextManager[None]:
        """Hides the table and its ledger within the block."""

    def restored(self, name: str) -> AbstractContextManager[None]:
        """Restores the table and its ledger to their state at the beginning of the block when the block ends."""

    def forget_history(self, name: str) -> None:
        """Remove the summaries of all commits but the newest, if the format can."""

    def load_otherwise(self, name: str, cells: Mapping[str, Any]) -> None:
        """Insert a row without Headrace: its version columns are null."""


Make = Callable[..., LakeTable]


def item(key: int, name: Any = "n", note: Any = "o", qty: Any = 1, **more: Any) -> Row:
    """A row of ITEM."""
    return Row({"id": key, "name": name, "note": note, "qty": qty}, **more)


def apply(table: LakeTable, *rows: Row) -> tuple[int, int]:
    """Merge rows of ITEM as one batch; (upserted, deleted)."""
    counts = table.merge(items(*rows), commit())
    return counts.upserted, counts.deleted


def items(*rows: Row) -> Actions:
    return actions(ITEM, rows)


class LakeFixtures:
    """Fixtures that the suites share; each test writes a table of its own, in the lake of the fixture ``lake``."""

    @pytest.fixture
    def name(self, unique: Callable[[str], str]) -> str:
        return unique("item")

    @pytest.fixture
    def made(self, lake: LakeHarness, name: str) -> Make:
        """Makes an ITEM table with the row 1@10 (offset 10) and more, so that later writes merge and do not append."""

        def make(*more: Row) -> LakeTable:
            table = lake.open(name)
            table.evolve(ITEM, ["id"])
            apply(table, item(1, "one", "note", 1, position=10, at=10), *more)
            return table

        return make

    @pytest.fixture
    def table(self, made: Make) -> LakeTable:
        """An ITEM table with that row only."""
        return made()

    @pytest.fixture
    def rows(self, lake: LakeHarness, name: str) -> Callable[[], dict[int, tuple[Any, ...]]]:
        """Reads ITEM: (name, note, qty) by id."""

        def read() -> dict[int, tuple[Any, ...]]:
            found = lake.read(name).select(ITEM.names).to_pylist()
            assert len({row["id"] for row in found}) == len(found)
            return {row["id"]: (row["name"], row["note"], row["qty"]) for row in found}

        return read
