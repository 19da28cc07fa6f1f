"""The property of ``merge.md`` with positions from ``ordering.field``: equal values are ordered by arrival."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from properties.reference_model import Event, Model, Rows
from properties.searching import examples

from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.model.events import CellState, Operation, RowVersion
from headrace.core.model.positions import ordering
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import Commit, TableOptions
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace_dev.memory import MemoryLakehouse

OPERATIONS = {
    "c": Operation.CREATE,
    "u": Operation.UPDATE,
    "r": Operation.READ,
    "d": Operation.DELETE,
    None: Operation.TOMBSTONE,
}
CHANGES = st.tuples(
    st.sampled_from(["c", "u", "u", "u", "r", "d", None]),
    st.integers(0, 2),
    st.none() | st.integers(-2, 2),
    st.integers(0, 1),
)
"""Operation, key, what the ordering field says, and by how much time goes on before."""
READS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8), st.booleans()), max_size=6)
"""First offset at the most, number of records, and whether a new worker reads them."""


@dataclass
class Record:
    key: bytes
    value: bytes | None
    offset: int
    timestamp: int
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    partition: int = 0


def record(change: tuple[str | None, int, int | None, int], offset: int, time: int) -> Record:
    op, key, value, _ = change
    row = None if op == "d" else {"id": key, "v": value, "a": offset}
    source = {"connector": "db2", "name": "s", "db": "d", "table": "t", "v": value, "ts_us": time}
    text = None if op is None else json.dumps({"op": op, "source": source, "after": row}).encode()
    return Record(b'{"id":%d}' % key, text, offset, time // 1000)


def event(change: tuple[str | None, int, int | None, int], offset: int, time: int, *, of_source: bool) -> Event:
    """The model's event, whose positions are tuples as the rule defines them."""
    op, key, value, _ = change
    ordered = op in ("c", "u") or (op == "d" and of_source)
    position: Any = (value, time, offset) if ordered and value is not None else b""
    row = op not in ("d", None)
    cells = {name: (CellState.VALUE, cell) for name, cell in (("v", value), ("a", offset))} if row else {}
    time = time if op is not None else time // 1000 * 1000
    return Event(OPERATIONS[op], key, RowVersion(position, "t", 0, offset, time), cells)


def written(records: list[Record], reads: list[tuple[int, int, bool]], by: str) -> Rows:
    """The table after the records were read in batches, some of them again and by another worker."""
    lakehouse, read, pipeline = MemoryLakehouse(), 0, None
    table = lakehouse.table("n", "t", TableOptions())
    decoder = TopicDecoder("t", EnvelopeOptions(False, False, ordering=ordering(by)))
    for at_most, count, new_worker in (*reads, (len(records), len(records), False)):
        begin = min(at_most, read)
        if pipeline is None or new_worker or begin < read:
            pipeline = TablePipeline(
                "n.t",
                table,
                Reselect(ReselectOptions()),
                PipelineOptions(),
                now=lambda: 0,
                stages=lambda stage: nullcontext(),
            )
        for piece in decoder.decode(records[begin : begin + count]).events:
            pipeline.write(piece, Commit(0, "c", "g", {}))  # type: ignore[arg-type] # no Cassandra here
        read = min(begin + count, len(records))
    found = [] if table.schema() is None else table.to_arrow().select(["id", "v", "a"]).to_pylist()
    return {row["id"]: {"v": row["v"], "a": row["a"]} for row in found}


@examples(40)
@given(st.lists(CHANGES, min_size=1, max_size=20), READS, st.sampled_from(["v", "source.v"]))
def test_the_table_is_the_models(
    changes: list[tuple[str | None, int, int | None, int]], reads: list[tuple[int, int, bool]], by: str
) -> None:
    """Late changes have no effect and equal ones replace each other, in any batches, also when they are read again."""
    model, records, time = Model(), [], 1_700_000_000_000_000
    first = ("c", 9, 0, 0)  # it contains the types of all later records
    for offset, change in enumerate([first, *changes]):
        time += change[3] * 1000
        records.append(record(change, offset, time))
        model.apply(event(change, offset, time, of_source=by.startswith("source.")))
    assert written(records, reads, by) == model.table(["v", "a"])
