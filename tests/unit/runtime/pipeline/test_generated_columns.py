"""Generated columns: streamed events lack them, and no stale value stays (``reselect.md`` section 2.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from support.records.envelopes import change, key

from headrace.core.batch.combine import combine
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.model.absent_columns import OTHER_TYPE, UNREAD
from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn, SqlType
from headrace.core.model.errors import Fatal, Retriable
from headrace.core.model.events import Changes, RowVersion, TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import Commit, TableOptions
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace_dev.memory import MemoryLakehouse, MemoryRowSource

TABLE = TableId("shop", "shop", "public", "items")
COMMIT = Commit(1, "sink", "connect-sink", {})
BIGINT = SqlType(20, "pg_catalog", "int8")
CATALOG = CatalogTable(
    TABLE,
    "r",
    "d",
    (
        CatalogColumn("id", 1, BIGINT, attlen=8, not_null=True),
        CatalogColumn("size", 2, BIGINT, attlen=8),
        CatalogColumn("twice", 3, BIGINT, attlen=8, generated=True),
    ),
    (KeyColumn("id", BIGINT),),
)
INT64 = Schema("int64", optional=True)
FIELDS = (Field("id", Schema("int64")), Field("size", INT64), Field("twice", INT64))
RETENTION = 1_000
Event = tuple[str, Mapping[str, int]]


@dataclass(frozen=True)
class Record:
    """A record as decoders read it."""

    key: bytes
    value: bytes
    offset: int
    partition: int = 0
    timestamp: int = 7
    headers: Sequence[tuple[str, bytes]] = ()


def read(id: int, size: int) -> Event:
    """Return a snapshot read, which contains the generated column."""
    return "r", {"id": id, "size": size, "twice": 2 * size}


def streamed(op: str, id: int, size: int) -> Event:
    """Return a streamed event, which lacks it."""
    return op, {"id": id, "size": size}


@dataclass
class Sink:
    """A lake table in memory and the pipeline that writes it. ``source`` is the configured database, if any."""

    source: MemoryRowSource | None = None
    schemas: bool = True
    lakehouse: MemoryLakehouse = field(default_factory=MemoryLakehouse)
    now: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin with a new decoder and pipeline, as another worker does."""
        options = EnvelopeOptions(key_schemas=self.schemas, value_schemas=self.schemas)
        self.reselect = Reselect(ReselectOptions(null_values=False), self.source)
        self.decoder = TopicDecoder("t", options, self.reselect.catalog)
        self.table = self.lakehouse.table("shop", "items", TableOptions())
        self.pipeline = TablePipeline(
            "shop.items",
            self.table,
            self.reselect,
            PipelineOptions(tombstone_retention=RETENTION),
            lambda: self.now,
            lambda stage: nullcontext(),
        )

    def changes(self, *events: Event) -> Changes:
        """Return the changes of one batch."""
        records = []
        for op, row in events:
            self.offset += 1
            document = change(op, dict(row), self.offset, schemas=self.schemas)
            records.append(Record(key({"id": row["id"]}, schemas=self.schemas), document, self.offset))
        decoded = self.decoder.decode(records)
        assert decoded.errant == []
        return combine([each for each in decoded.events if isinstance(each, Changes)])

    def write(self, *events: Event) -> None:
        """Write one batch."""
        self.pipeline.write(self.changes(*events), COMMIT)

    def twice(self) -> dict[int, int | None]:
        """Return the generated column by id."""
        rows = self.table.to_arrow()  # type: ignore[attr-defined] # of a table in memory
        return dict(zip(rows["id"].to_pylist(), rows["twice"].to_pylist(), strict=True))

    def notes(self) -> set[tuple[str | None, str]]:
        """Return the columns and texts of the notes."""
        return {(note.column, note.text) for _, note in self.pipeline.notes}


def database(*sizes: tuple[int, int]) -> MemoryRowSource:
    """Return a database with rows of these ids and sizes."""
    source = MemoryRowSource()
    source.add(CATALOG, Schema("struct", fields=FIELDS), [{"id": i, "size": s, "twice": 2 * s} for i, s in sizes])
    return source


@pytest.mark.parametrize("schemas", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
def test_without_a_database_a_change_sets_them_to_null(at_once: bool, schemas: bool) -> None:
    """In one batch or in several: rows that were only read keep the value, every other row has NULL; a note says so."""
    sink = Sink(schemas=schemas)
    events = [read(1, 1), read(2, 2), streamed("u", 1, 5), streamed("c", 3, 3)]
    for batch in [events] if at_once else [[each] for each in events]:
        sink.write(*batch)
    assert sink.twice() == {1: None, 2: 4, 3: None}
    assert sink.notes() == {("twice", UNREAD.text)}


def test_the_reads_are_remembered_for_as_long_as_the_table_exists() -> None:
    """Another worker, after the ledger's tombstones have expired, still knows that the column was only read."""
    sink = Sink()
    sink.write(read(1, 1), read(2, 2))
    assert sink.notes() == set()
    sink.now = 100 * RETENTION
    sink.pipeline.maintain()
    sink.restart()
    sink.write(streamed("u", 1, 5))
    assert sink.twice() == {1: None, 2: 4}
    assert sink.notes() == {("twice", UNREAD.text)}


def test_a_later_read_is_valid_until_the_next_change() -> None:
    """An incremental snapshot brings the value back, and the next change of the row ends it again."""
    sink = Sink()
    sink.write(read(1, 1))
    sink.write(streamed("u", 1, 5))
    sink.write(read(1, 5))
    assert sink.twice() == {1: 10}
    sink.write(streamed("u", 1, 6))
    assert sink.twice() == {1: None}


def test_a_dropped_column_keeps_its_values() -> None:
    """A column that streamed events have contained is not generated: without it, a change keeps the stored value."""
    sink = Sink()
    sink.write(read(1, 1), ("u", {"id": 1, "size": 1, "twice": 2}))
    sink.restart()
    sink.write(streamed("u", 1, 5))
    assert sink.twice() == {1: 2}
    assert sink.notes() == set()


def test_a_column_that_only_the_lake_has_keeps_its_values() -> None:
    """No event has contained it, so it is not the source's: somebody else has added it to the table."""
    sink = Sink()
    sink.write(("r", {"id": 1, "size": 1}))
    sink.table.evolve(pa.schema([("id", pa.int64()), ("size", pa.int64()), ("twice", pa.int64())]), ("id",))
    sink.table.fill("twice", pa.scalar(9, pa.int64()), RowVersion(b"", "t", 0, 9, 2**62), COMMIT)
    sink.write(("r", {"id": 2, "size": 1}), streamed("u", 1, 5))
    assert sink.twice() == {1: 9, 2: None}
    assert sink.notes() == set()


@pytest.mark.parametrize("schemas", [True, False])
def test_with_a_database_they_are_read_with_the_row(schemas: bool) -> None:
    """Every change has them read again, also after a restart; rows that were only read are not."""
    source = database((1, 5), (2, 2), (3, 3))
    sink = Sink(source, schemas)
    sink.write(read(1, 1), read(2, 2), streamed("u", 1, 5))
    sink.restart()
    sink.write(streamed("c", 3, 3))
    assert sink.twice() == {1: 10, 2: 4, 3: 6}
    assert [len(request) for request in source.requests] == [1, 1]
    assert sink.notes() == set()


def test_a_row_that_is_gone_has_null_until_its_delete() -> None:
    """The database does not have the row any more: its stored value may be stale."""
    sink = Sink(database((1, 5)))
    sink.write(read(1, 1), read(2, 2))
    sink.write(streamed("u", 2, 7))
    assert sink.twice() == {1: 2, 2: None}


def test_a_database_that_does_not_answer_delays_the_batch() -> None:
    """No null is written in the place of a value that the database has; a refusal writes it."""
    source = database((1, 5))
    sink = Sink(source)
    sink.write(read(1, 1))
    changes = sink.changes(streamed("u", 1, 5))
    source.failures = [Retriable("the server does not answer")] * 100
    with pytest.raises(Retriable):
        sink.pipeline.write(changes, COMMIT)
    assert sink.twice() == {1: 2}
    source.failures = [Fatal("no grant")]
    sink.pipeline.write(changes, COMMIT)
    assert sink.twice() == {1: None}


def test_a_column_that_the_source_connector_excludes_is_not_added() -> None:
    """Neither table nor events have it: it stays out of the lake although the database has it."""
    sink = Sink(database((1, 5)))
    sink.write(("r", {"id": 1, "size": 1}), streamed("u", 1, 5))
    assert "twice" not in (sink.table.schema() or pa.schema([])).names


def test_a_column_of_another_type_in_the_lake_is_null() -> None:
    """Its reads came in another handling mode than the connector's options say: the table does not fail."""
    source = database((1, 5))
    sink = Sink(source)
    sink.write(("r", {"id": 1, "size": 1, "twice": "2"}))  # type: ignore[dict-item] # the column is a text
    sink.write(streamed("u", 1, 5))
    assert sink.twice() == {1: None}
    assert sink.notes() == {("twice", OTHER_TYPE.text)}
