"""The law of histories: each event once, whatever the batches and wherever a worker dies and begins again."""

from __future__ import annotations

from contextlib import nullcontext

from hypothesis import given
from hypothesis import strategies as st
from properties.columns import changes_of
from properties.reference_model import Event

from headrace.core.events import CellState, Operation, RowVersion
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import Commit, TableOptions
from headrace.runtime.history_pipeline import HistoryPipeline
from headrace.runtime.pipeline_parts import PipelineOptions
from headrace.runtime.post_processor import ReselectColumnsPostProcessor
from headrace_connectors.memory import MemoryLakehouse

LENGTH = 12
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
    """A worker reads on from what was read so far or from before it, never from behind it."""
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


def started(lakehouse: MemoryLakehouse) -> HistoryPipeline:
    """A worker that knows what the table's commits say."""
    return HistoryPipeline(
        "n.t",
        lakehouse.table("n", "t", TableOptions(history=True)),
        ReselectColumnsPostProcessor(ReselectOptions()),
        PipelineOptions(),
        now=lambda: 0,
        stages=lambda stage: nullcontext(),
    )
