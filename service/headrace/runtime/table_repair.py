"""Writes rows of the source into their lake table again, through the path that every change takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from headrace.core.errors import Fatal, Retriable
from headrace.core.events import Actions, Changes, RowVersion, TableId
from headrace.core.keys import canonical_keys
from headrace.core.repair import Repair, repair_changes
from headrace.core.verification import VERSION, Verdict, Where
from headrace.ports import Commit, TopicPartition
from headrace.runtime.lake_progress import Offsets
from headrace.runtime.table_pipeline import PipelineOptions, TablePipeline
from headrace.runtime.table_verifier import Difference, TableVerifier, VerifiedTable, key_digests, under

REPAIRED = frozenset({Verdict.DIFFERENT, Verdict.UNPROVEN})
_NO_BATCH = 0


@dataclass(frozen=True, slots=True)
class Sink:
    """Whose table it is: what a task of the connector would write with, and how many seconds writing may take."""

    connector: str
    group: str
    topic: str
    table_name: str
    options: PipelineOptions
    patience: float = 0.0


class TableRepair:
    """Mends one table. The connector may run meanwhile: what it applies later wins, as always."""

    def __init__(
        self,
        table: VerifiedTable,
        verifier: TableVerifier,
        sink: Sink,
        offsets: Offsets,
        now: Callable[[], int],
    ) -> None:
        """``now`` in microseconds."""
        self._table = table
        self._verifier = verifier
        self._sink = sink
        self._offsets = offsets
        self._now = now
        self._pipeline = TablePipeline(
            sink.table_name, table.lake, _NothingOpen(), sink.options, now, lambda stage: nullcontext()
        )

    def mend(self, differences: Sequence[Difference]) -> int:
        """Read the rows again and write them; returns how many were written.

        A row that stands twice is left: which of the two to remove, a merge by key cannot say. Raises Fatal where the
        topic is gone, and whatever writing raises.
        """
        chosen = [each for each in differences if each.verdict in REPAIRED and each.where is not Where.TWICE]
        if not chosen:
            return 0
        keys = pa.concat_tables([each.key for each in chosen]).combine_chunks()
        # First the offsets, then the rows: what stands below those offsets is included in what is read after them.
        ends = self._ends()
        read_at = self._now()
        source = self._verifier.fetch(keys)
        gone = under(keys, set(key_digests(keys)) - set(source.key.tolist()))
        repair = Repair(self._table.id, self._sink.topic, ends, read_at, self._known(keys))
        self._write(repair_changes(self._table.wanted, source, gone, repair))
        return len(chosen)

    def _write(self, changes: Changes) -> None:
        """The connector's task commits as well, and whoever comes second has to begin again."""
        retrying = Retrying(
            retry=retry_if_exception_type(Retriable),
            stop=stop_after_delay(self._sink.patience),
            wait=wait_random_exponential(multiplier=0.5, max=5),
            reraise=True,
        )
        try:
            retrying(self._pipeline.write, changes, self._commit())
        except Retriable as error:
            raise Retriable(
                f"{error}; if the connector's task commits all the time, pause it "
                f"(PUT /connectors/{self._sink.connector}/pause), repeat with --repair, then resume it"
            ) from error

    def _ends(self) -> dict[int, int]:
        ends = {place.partition: end for place, end in self._offsets.ends(self._sink.topic).items()}
        if not ends:
            raise Fatal(f"topic {self._sink.topic} does not exist any more: there is no offset to repair rows at")
        return ends

    def _known(self, keys: pa.Table) -> dict[str, RowVersion]:
        """The versions that a repaired row has to succeed: tombstones, and what stands under the keys."""
        known = dict(self._table.lake.ledger())
        rows = self._table.lake.read(keys)
        if len(rows):
            columns = [rows[name].combine_chunks() for name in self._table.wanted.key_fields]
            stored = dict(zip(canonical_keys(columns).to_pylist(), _versions(rows), strict=True))
            known |= {key: version for key, version in stored.items() if version is not None}
        return known

    def _commit(self) -> Commit:
        """It promises no more than the group has committed already."""
        offsets: dict[TopicPartition, int] = {
            place: offset for place, offset in self._offsets.committed().items() if place.topic == self._sink.topic
        }
        return Commit(_NO_BATCH, self._sink.connector, self._sink.group, offsets)


def _versions(rows: pa.Table) -> list[RowVersion | None]:
    *names, time = VERSION
    times = rows[time].combine_chunks().view(pa.int64()).to_pylist()
    columns = [rows[name].to_pylist() for name in names]
    return [
        None if topic is None else RowVersion((position or "").encode(), topic, partition, offset, at)
        for position, topic, partition, offset, at in zip(*columns, times, strict=True)
    ]


class _NothingOpen:
    """The post-processor of rows that were read whole."""

    def resolve(self, actions: Actions) -> Actions:
        return actions

    def committed(self, table: TableId) -> None:
        pass

    def failed(self, table: TableId) -> None:
        pass

    def truncated(self, table: TableId) -> None:
        pass
