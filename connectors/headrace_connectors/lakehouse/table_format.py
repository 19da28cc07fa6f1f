"""The interface of table formats: the statements that differ between formats, and the detection of commits.

``writer.py``, ``merge.py``, ``staging.py`` and ``ledger.py`` are the same for every format; ``iceberg.py`` and
``delta.py`` hold the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from headrace.ports import MergeCounts
from headrace_connectors.lakehouse.merge import text_literal
from headrace_connectors.lakehouse.table_session import TableSession

WRITE_ID = "headrace.write-id"
"""The property that identifies a commit."""

KEY_FIELDS = "headrace.key-fields"
"""The table property that names the columns of the row key."""


class TablePath(NamedTuple):
    """The path of a table in the configuration."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did.

    ``counts`` are the rows that it changed; appended rows are upserted. ``first`` is whether nothing was written to the
    table before. ``files`` is how many the table consists of now, None if the commit does not contain it.
    ``made`` is False where there is no commit with the statement's properties.
    """

    counts: MergeCounts
    first: bool = False
    files: int | None = None
    made: bool = True


class TableFormat(Protocol):
    """The tables of one format in one warehouse, as one connector wants them."""

    def sql_name(self, path: TablePath) -> str:
        """The table in a statement, quoted."""

    def create_namespace(self, namespace: str) -> Sequence[str]:
        """Statements that make sure that the namespace is there."""

    def create(self, path: TablePath, schema: pa.Schema, key_fields: Sequence[str]) -> Sequence[str]:
        """Statements that make an empty table; ``schema`` in lake types, with all of its columns."""

    def create_ledger(self, path: TablePath, schema: pa.Schema) -> Sequence[str]:
        """Statements that create an empty ledger and remove another of this name."""

    def append_to_ledger(self, session: TableSession, path: TablePath, rows: pa.Table) -> int:
        """Add ``rows``, recorded at one time, to the ledger in one durable commit. Returns its ``commits`` since."""

    def commits(self, session: TableSession, path: TablePath) -> int:
        """Return a number that every commit to a table increases by one, also commits of other writers. It is cheap."""

    def widen(self, path: TablePath, column: pa.Field) -> Sequence[str]:
        """Statements after which a column has the wider type of ``column``."""

    def commit_settings(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """The session settings under which a commit carries ``properties``."""

    def commit(self, session: TableSession, path: TablePath, statement: str) -> Committed:
        """Run a statement that changes rows, under the settings of its commit."""

    def committed(self, session: TableSession, path: TablePath, write_id: str) -> Committed | None:
        """What the commit did that carries ``write_id``; None if there is no such commit."""

    def carry(self, session: TableSession, path: TablePath, properties: Mapping[str, str]) -> bool:
        """Make a commit with ``properties`` if the newest has none; return whether there is such a commit now."""

    def version(self, session: TableSession, path: TablePath) -> str:
        """What names the table's newest commit, and no commit of another table. Costs next to nothing."""

    def history(self, session: TableSession, path: TablePath) -> Iterator[Mapping[str, str]]:
        """The properties of the table's commits that were not undone, newest first, as far as they are kept."""

    def compact(self, path: TablePath) -> Sequence[str]:
        """Statements that rewrite small files, and those with deletes."""

    def clean(self, path: TablePath) -> Sequence[str]:
        """Statements that let go of what no reader needs any more, due once a day at most."""


def property_list(properties: Mapping[str, str]) -> str:
    """Table properties as DDL."""
    return ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in properties.items())


def set_properties(table: str, properties: Mapping[str, str]) -> str:
    """The statement that gives a table (quoted) more properties."""
    return f"ALTER TABLE {table} SET TBLPROPERTIES ({property_list(properties)})"


def key_property(key_fields: Sequence[str]) -> Mapping[str, str]:
    """``KEY_FIELDS`` with its value."""
    return {KEY_FIELDS: json.dumps(list(key_fields))}
