"""The effect of a merge during which another writer commits to its table, in every format.

The statement pauses after it has read its snapshot: the staged rows pass a function that opens a named pipe. The
function returns when the test, after the other commit, closes the other end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.fix_spark import Warehouse
from support.lake.lake_actions import delete
from support.lake.lake_harness import ITEM, apply, item

from headrace.ports import TableOptions
from headrace_connectors.lakehouse.schema import quoted
from headrace_connectors.lakehouse.table_session import TableSession

pytestmark = pytest.mark.spark

TABLES = {"iceberg": "lake.shop.{name}", "delta": "delta.`{path}/shop/{name}`"}
COMPACTIONS = {
    "iceberg": "CALL lake.system.rewrite_data_files(table => 'shop.{name}', options => map('rewrite-all', 'true'))",
    "delta": "OPTIMIZE {table}",
}
COMPACT = "compact"
UPDATE = "UPDATE {table} SET note = 'theirs' WHERE id = 1"
DELETE = "DELETE FROM {table} WHERE id = 1"
APPEND = "INSERT INTO {table} (id, name) VALUES (9, 'theirs')"
APPEND_OF_OUR_KEY = "INSERT INTO {table} (id, name) VALUES (4, 'theirs')"


class Meanwhile:
    """Runs something else while the merges of ``TableSession``s run."""

    def __init__(self, pipe: Path) -> None:
        self._pipe = pipe
        self.merges = 0

    def hold(self, session: TableSession, view: str) -> str:
        """A view of the rows of ``view`` (quoted). Reading it waits for the test."""
        name = quoted(f"{view.strip('`')}_held")
        session._spark.udf.register("hold", waiting_for(str(self._pipe)), "boolean")
        session.run(f"CREATE TEMPORARY VIEW {name} AS SELECT * FROM {view} WHERE hold(id)")
        return name

    def run(self, merge: Callable[[], Any], other: Callable[[], Any]) -> Any:
        """Return the result of ``merge``; call ``other`` while it runs."""
        os.mkfifo(self._pipe)
        with ThreadPoolExecutor(1) as threads:
            merging = threads.submit(merge)
            with self._pipe.open("w"):
                self._pipe.unlink()
                other()
            return merging.result()


def waiting_for(pipe: str) -> Callable[[object], bool]:
    """True, once the other end of the pipe is closed. Only the first caller waits, so that others can work."""

    def waited(_: object) -> bool:  # within a function, so that Spark's Python workers need not import this module
        if Path(pipe).exists():
            with suppress(FileExistsError):
                Path(f"{pipe}_taken").mkdir()
                Path(pipe).read_text()
        return True

    return waited


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, warehouse: Warehouse) -> Meanwhile:
    """Tables opened from now on stage their rows so that a test can pause them. All batches are merged."""
    monkeypatch.setattr(warehouse.lakehouse.indexes, "limit", 0)
    found = Meanwhile(tmp_path / "pipe")
    staged_view, run, rows = TableSession.staged_view, TableSession.run, TableSession.rows

    @contextmanager
    def held(self: TableSession, rows: pa.Table) -> Iterator[str]:
        with staged_view(self, rows) as view:
            yield found.hold(self, view)

    def counted(execute: Callable[..., Any]) -> Callable[..., Any]:
        def execute_and_count(self: TableSession, *statements: str) -> Any:
            found.merges += sum(statement.startswith("MERGE INTO") for statement in statements)
            return execute(self, *statements)

        return execute_and_count

    monkeypatch.setattr(TableSession, "staged_view", held)
    monkeypatch.setattr(TableSession, "run", counted(run))
    monkeypatch.setattr(TableSession, "rows", counted(rows))
    return found


@pytest.mark.parametrize("table_format", ["iceberg", pytest.param("delta", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param((COMPACT, UPDATE), id="compact and update"),
        *(
            pytest.param((statement,), id=name, marks=pytest.mark.long)
            for name, statement in {
                "compact": COMPACT,
                "update": UPDATE,
                "delete": DELETE,
                "append": APPEND,
                "append of our key": APPEND_OF_OUR_KEY,
            }.items()
        ),
    ],
)
def test_a_merge_during_which_somebody_else_commits(
    warehouse: Warehouse, unique: Callable[[str], str], meanwhile: Meanwhile, table_format: str, theirs: Sequence[str]
) -> None:
    """The merge runs again, and the table equals one where it ran second.

    Iceberg commits at once if the other's rows are outside the range of the merged keys.
    """
    name = unique("meeting")
    table = warehouse.lakehouse.table("shop", name, TableOptions(table_format))
    sql_name = TABLES[table_format].format(name=name, path=warehouse.path)

    def other() -> None:
        for each in theirs:
            statement = COMPACTIONS[table_format] if each == COMPACT else each
            warehouse.session().sql(statement.format(table=sql_name, name=name)).collect()

    table.evolve(ITEM, ["id"])
    apply(table, item(1, "one", position=10), item(2, "two", position=10))
    apply(table, item(3, "three", position=10))
    before = meanwhile.merges
    ours = [item(1, "ours", position=20), item(4, "ours", position=20), delete({"id": 2}, position=20)]
    assert meanwhile.run(lambda: apply(table, *ours), other) == (2, 1)
    at_once = table_format == "iceberg" and APPEND in theirs
    assert meanwhile.merges == before + (1 if at_once else 2)
    rows = warehouse.sql(f"SELECT id, name, note FROM {sql_name} ORDER BY id").to_pylist()
    left = [(1, "ours", "o"), (3, "three", "o"), (4, "ours", "o"), *([(9, "theirs", None)] if APPEND in theirs else [])]
    assert [(row["id"], row["name"], row["note"]) for row in rows] == left
