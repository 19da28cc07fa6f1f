"""The properties of histories, for any batches, kills and restarts of workers.

Each event is stored once, and the last states of all keys are the rows of the table that merges the same events.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties.columns import changes_of
from properties.reference_model import Event

from headrace.config.reselect import reselect_options
from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.core.model.events import CellState, Operation, RowVersion
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import Commit, TableOptions
from headrace.runtime.pipeline.history_pipeline import HistoryPipeline
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace.runtime.task.task_options import sink_task_options
from headrace_dev.memory import MemoryLakehouse

LENGTH = 12
DEFAULTS = WorkerDefaults({"key.converter": "x", "value.converter": "x"}, "1.0")
READS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, LENGTH - 1), st.integers(1, 5), st.booleans()), max_size=20
)
"""What is read, one batch after another: partition, first offset at the most, number of events, by a new worker."""


def event(partition: int, offset: int) -> Event:
    place = b"00000.%020d" % (offset + 1)
    cells = {"a": (CellState.VALUE, offset), "b": (CellState.UNCHANGED, None)}
    return Event(Operation.UPDATE, partition, RowVersion(place, "t", partition, offset, offset), cells)


@given(READS)
def test_each_event_once(reads: list[tuple[int, int, int, bool]]) -> None:
    """A worker resumes at the first unread event or before it, never after it."""
    lakehouse, read, pipeline = MemoryLakehouse(), [0, 0], None
    for partition, at_most, count, new_worker in reads:
        if pipeline is None or new_worker:
            pipeline = started(lakehouse)
        begin = min(at_most, read[partition])
        pipeline.write(changes_of([event(partition, begin + n) for n in range(count)]), Commit(0, "c", "g", {}))
        read[partition] = max(read[partition], begin + count)
    table = lakehouse.table("n", "t", TableOptions(history=True)).to_arrow()
    found = sorted(zip(*(table[f"__headrace_{name}"].to_pylist() for name in ("partition", "offset")), strict=True))
    assert found == [(partition, offset) for partition, end in enumerate(read) for offset in range(end)]


@pytest.mark.parametrize(("mode", "marked"), [("keep", ["b"]), ("null", None)])
def test_operator_decides_what_doubted_nulls_are(mode: str, marked: list[str] | None) -> None:
    """A doubtful null is a value or is marked according to ``reselect.unknown.null.mode``."""
    config = {"reselect.unknown.null.mode": mode, "insert.mode": "insert"}
    properties = {"name": "shop", "connector.class": "LakehouseSink", "topics": "t", **config}
    options = reselect_options(properties)
    task = sink_task_options(sink_connector_config(properties, DEFAULTS))
    lakehouse, source = MemoryLakehouse(), Source({}, [], [])
    source.change(0, "insert", 0, (1, 1))
    source.change(1, "update", 0, (0, None))
    source.change(2, "update", 0, (2, 0))
    started(lakehouse, task.pipeline, options).write(changes_of(source.events), Commit(0, "c", "g", {}))
    rows = lakehouse.table("n", "t", TableOptions(history=True)).to_arrow().to_pylist()
    assert [(row["b"], row["__headrace_unavailable"]) for row in rows] == [(1, None), (None, marked), (None, marked)]


def started(
    lakehouse: MemoryLakehouse,
    options: PipelineOptions | None = None,
    reselect: ReselectOptions | None = None,
) -> HistoryPipeline:
    """A worker that has read the table's commits."""
    return HistoryPipeline(
        "n.t",
        lakehouse.table("n", "t", TableOptions(history=True)),
        Reselect(reselect or ReselectOptions()),
        options or PipelineOptions(),
        now=lambda: 0,
        stages=lambda stage: nullcontext(),
    )


@dataclass
class Source:
    """A table whose unchanged column ``a`` is omitted with a placeholder, and column ``b`` with a null.

    A stored NULL arrives as null in both, as from PostgreSQL. ``rows`` has the values after each event.
    """

    now: dict[int, dict[str, int | None]]
    events: list[Event]
    rows: list[dict[str, int | None]]

    def change(self, number: int, what: str, key: int, changed: tuple[int | None, int | None]) -> None:
        """One statement: an insert, or an update of those cells that are not 0."""
        before = self.now.get(key)
        insert = before is None or what == "insert"
        values = dict(zip("ab", changed, strict=True))
        after = {
            name: (None if insert and value == 0 else before[name] if before is not None and value == 0 else value)
            for name, value in values.items()
        }
        states = {"a": CellState.UNCHANGED, "b": CellState.UNKNOWN}
        cells: dict[str, tuple[CellState, Any]] = {}
        for name, value in after.items():
            known = CellState.NULL if value is None else CellState.VALUE
            unsent = not insert and (values[name] == 0 if value is not None else name == "b")
            cells[name] = (states[name], None) if unsent else (known, value)
        place = RowVersion(b"00000.%020d" % (number + 1), "t", 0, number, number)
        self.events.append(Event(Operation.CREATE if insert else Operation.UPDATE, key, place, cells))
        self.now[key] = after
        self.rows.append(after)


STATEMENTS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "update", "update", "update"]),
        st.integers(0, 1),
        st.tuples(st.sampled_from([0, 0, 1, 2, None]), st.sampled_from([0, 0, 1, 2, None])),
    ),
    min_size=1,
    max_size=14,
)


@given(STATEMENTS, st.lists(st.integers(1, 6), min_size=14, max_size=14))
def test_each_cell_is_that_of_its_moment_or_marked(
    statements: list[tuple[str, int, tuple[int | None, int | None]]], sizes: list[int]
) -> None:
    """Without a database to read, no cell has the value of another event, for any batches."""
    source = Source({}, [], [])
    for number, (what, key, changed) in enumerate(statements):
        source.change(number, what, key, changed)
    lakehouse, done = MemoryLakehouse(), 0
    pipeline = started(lakehouse)
    for size in sizes:
        if done < len(source.events):
            pipeline.write(changes_of(source.events[done : done + size]), Commit(0, "c", "g", {}))
            done += size
    table = lakehouse.table("n", "t", TableOptions(history=True)).to_arrow().sort_by("__headrace_offset")
    for found, row in zip(table.to_pylist(), source.rows, strict=True):
        for name, value in row.items():
            marked = name in (found["__headrace_unavailable"] or ())
            assert found.get(name) == (None if marked else value)


TRANSACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "update", "update", "delete", "read"]),
        st.integers(0, 2),
        st.tuples(st.sampled_from([0, 1, 2, None]), st.sampled_from([0, 1, 2, None])),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=20,
)
"""The changes of a table, and after each how many of the last changes the source connector sends again."""


@given(TRANSACTIONS, st.lists(st.integers(1, 6), min_size=1, max_size=10))
def test_the_last_states_are_the_rows_of_the_merged_table(
    transactions: list[tuple[str, int, tuple[int | None, int | None], int]], sizes: list[int]
) -> None:
    """Also if cells are omitted, changes are sent again and reads correct rows, and both equal the source.

    Where the source has a null, its event may have omitted a value: the tables keep the one before (UNKNOWN).
    """
    source, sent = Source({}, [], []), []
    for number, (what, key, changed, again) in enumerate(transactions):
        if what == "delete" and source.now.pop(key, None) is not None:
            version = RowVersion(b"00000.%020d" % (number + 1), "t", 0, number, number)
            source.events.append(Event(Operation.DELETE, key, version))
        elif what == "read" and key in source.now:
            cells = dict(zip("ab", changed, strict=True))  # changed without an event before
            source.now[key] = {name: cells[name] or value for name, value in source.now[key].items()}
            values = {name: _known(value) for name, value in source.now[key].items()}
            source.events.append(Event(Operation.READ, key, RowVersion(b"", "t", 0, number, number), values))
        elif (what == "insert" and key not in source.now) or (what == "update" and key in source.now):
            source.change(number, what, key, changed)
        else:
            continue
        sent.append(source.events[-1])
        sent += [event for event in sent[-again:] if again and event.version.position]
    sent = [replace(event, version=replace(event.version, offset=offset)) for offset, event in enumerate(sent)]

    lakehouse, done = MemoryLakehouse(), 0
    merged = lakehouse.table("n", "merged", TableOptions())
    reselect = Reselect(ReselectOptions())
    merging = TablePipeline("n.merged", merged, reselect, PipelineOptions(), lambda: 0, lambda stage: nullcontext())
    appending = started(lakehouse)
    while done < len(sent):
        size = sizes[done % len(sizes)]
        for pipeline in (merging, appending):
            pipeline.write(changes_of(sent[done : done + size]), Commit(0, "c", "g", {}))
        done += size
    columns = ["id", "a", "b"]
    history = lakehouse.table("n", "t", TableOptions(history=True))
    states = [row for piece in history.last_states(["id"], columns) for row in piece.to_pylist()]
    found = {row["id"]: {name: row[name] for name in columns} for row in states}
    assert found == {row["id"]: row for row in merged.rows().values()}
    assert found.keys() == source.now.keys()
    known = {key: {name: value for name, value in row.items() if value is not None} for key, row in source.now.items()}
    assert {key: {name: found[key][name] for name in row} for key, row in known.items()} == known


def _known(value: int | None) -> tuple[CellState, int | None]:
    return (CellState.NULL if value is None else CellState.VALUE), value
