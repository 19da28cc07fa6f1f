"""Tables of a connector with transforms, in memory: what is compared, repaired, reported and refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from recordings.records import RecordedRecord
from support.records.envelopes import key, whole_change

from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.config.verify_options import VerifySettings
from headrace.core.decode.decoded import RoutedEvents
from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn, SqlType
from headrace.core.model.errors import ConfigError, HeadraceError
from headrace.core.model.events import Changes, TableId
from headrace.core.model.proof import VerificationReport
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.core.tables.table_sources import TableSource
from headrace.core.verify.verification import Verdict, Where
from headrace.ports import Commit, LogPosition, TopicPartition
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace.runtime.verify.connector_tables import ConnectorTables
from headrace.runtime.verify.continuous_verification import ContinuousVerification
from headrace.runtime.verify.paced_source import Pace
from headrace.runtime.verify.table_comparison import Compared, TableComparison
from headrace.runtime.verify.table_repair import Sink, TableRepair
from headrace.runtime.verify.table_verifier import (
    Clock,
    Difference,
    LakeProgress,
    TableVerifier,
    VerifiedTable,
    VerifyOptions,
)
from headrace.transforms.decoder import TransformingDecoder
from headrace_dev.memory import MemoryLakehouse, MemoryRowSource

TOPIC = "shop.public.items"
TABLE = TableId("shop", "shop", "public", "items")
INT, TEXT = SqlType(20, "pg_catalog", "int8"), SqlType(25, "pg_catalog", "text")
COLUMNS = (
    CatalogColumn("id", 1, INT, not_null=True),
    CatalogColumn("name", 2, TEXT, has_default=False),
    CatalogColumn("mail", 3, TEXT, has_default=False),
    CatalogColumn("note", 4, TEXT, has_default=False),
)
CATALOG = CatalogTable(TABLE, "r", "d", COLUMNS, (KeyColumn("id", INT),))
_TEXT = Schema("string", True)
SCHEMA = Schema(
    "struct", fields=(Field("id", Schema("int64")), *(Field(name, _TEXT) for name in ("name", "mail", "note")))
)
TRANSFORMS = {
    "transforms": "unwrap,rename,mask,made,route",
    "transforms.unwrap.type": "ExtractNewRecordState",
    "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
    "transforms.rename.type": "ReplaceField$Value",
    "transforms.rename.renames": "name:title",
    "transforms.rename.exclude": "note",
    "transforms.mask.type": "MaskField$Value",
    "transforms.mask.fields": "mail",
    "transforms.mask.replacement": "hidden",
    "transforms.made.type": "InsertField$Value",
    "transforms.made.static.field": "origin",
    "transforms.made.static.value": "shop",
    "transforms.route.type": "RegexRouter",
    "transforms.route.regex": "(.*)\\.public\\.(.*)",
    "transforms.route.replacement": "$2",
}
WITHOUT_CELLS = {name: text for name, text in TRANSFORMS.items() if ".mask." not in name and ".made." not in name} | {
    "transforms": "unwrap,rename,route"
}


class Shop:
    """A source table of a few rows, and the lake table that a connector with transforms has made of it."""

    def __init__(self, transforms: Mapping[str, str] = TRANSFORMS, **options: str) -> None:
        properties = {
            "name": "shop",
            "connector.class": "LakehouseSink",
            "topics": TOPIC,
            "post.processors": "r",
            "post.processors.r.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
            "reselect.database.hostname": "h",
            "reselect.database.user": "u",
            "reselect.database.dbname": "shop",
            **transforms,
            **options,
        }
        defaults = WorkerDefaults({"key.converter": "JsonConverter", "value.converter": "JsonConverter"}, "1.0")
        self.source, self.lakehouse = MemoryRowSource(), MemoryLakehouse()
        self.source.position = LogPosition("postgresql", (1,), (1,))
        self.rows: dict[int, dict[str, Any]] = {}
        self.written = 0
        config = sink_connector_config(properties, defaults)
        self.source.add(CATALOG, SCHEMA)
        self.tables = ConnectorTables(config, lambda database, options: self.source, self.lakehouse)
        task = self.tables.task
        self._decoder = TransformingDecoder(TOPIC, task.envelope, task.transforms)
        self.lake = self.lakehouse.table(task.namespace, self.tables.transformed.name(TOPIC, TABLE), task.tables)
        self.lake.register(TableSource("shop", "connect-shop", TOPIC, TABLE), [])
        reselect = Reselect(ReselectOptions())
        self._pipeline = TablePipeline("items", self.lake, reselect, task.pipeline, lambda: 1, lambda _: nullcontext())
        self._time = 0.0

    def put(self, *keys: int) -> None:
        """Insert rows, and write them to the lake."""
        for number in keys:
            row = {"id": number, "name": f"name {number}", "mail": f"{number}@shop", "note": "n"}
            self.rows[number] = row
            self.send(number, whole_change("c", None, row, 100 + self.written))
        self.source.set_rows(TABLE, *self.rows.values())

    def send(self, number: int, value: bytes) -> None:
        record = RecordedRecord(TOPIC, 0, self.written, 0, key({"id": number}), value)
        self.written += 1
        decoded = self._decoder.decode([record])
        assert [routed.topic for routed in decoded.of(RoutedEvents)] == ["items"]
        [changes] = decoded.events
        assert isinstance(changes, Changes)
        self._pipeline.write(changes, Commit(1, "sink", "connect-shop", {}))

    def remove(self, number: int) -> None:
        """Delete a row of the source without an event."""
        del self.rows[number]
        self.source.set_rows(TABLE, *self.rows.values())

    def stored(self) -> dict[int, dict[str, Any]]:
        return {row["id"]: row for row in self.lake.rows().values()}

    def corrupt(self, number: int, column: str) -> None:
        """Change a cell of the source without an event."""
        self.rows[number] = {**self.rows[number], column: "unseen"}
        self.source.set_rows(TABLE, *self.rows.values())

    def lose(self, number: int) -> None:
        """Remove a row of the lake without a commit."""
        del self.lake._stored.rows[f"={number}"]

    # -- Offsets -------------------------------------------------------------------------------------------------------

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        return {TopicPartition(TOPIC, 0): self.written}

    def committed_offsets(self) -> Mapping[TopicPartition, int]:
        return {TopicPartition(TOPIC, 0): self.written}

    # -- comparing -----------------------------------------------------------------------------------------------------

    def open(self) -> VerifiedTable:
        [(table, source)] = self.tables.of(TOPIC)
        return self.tables.open(TOPIC, table, source)[0]

    def sleep(self, seconds: float) -> None:
        self._time += seconds

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self._time, self.sleep)

    def verifier(self, folder: Path) -> TableVerifier:
        clock = self.clock
        progress = LakeProgress(self.source, self, TOPIC, clock.now, clock.sleep)
        return TableVerifier(self.open(), progress, VerifyOptions(60.0), clock, folder)

    def compare(self, folder: Path, *, repairs: bool = False) -> tuple[Compared, Results]:
        results = Results()
        comparison = TableComparison(self.tables, self, self.clock, folder, results, timeout=60.0, repairs=repairs)
        return comparison.run(TOPIC, TABLE, self.source), results


class FastPace(Pace):
    """A pace that waits for nothing."""

    def sleep(self, seconds: float) -> None:
        super().sleep(0.0)


class Results:
    """What a comparison reports: the side and the columns of each difference by key, and the repaired keys."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Where, Sequence[str]]] = {}
        self.repaired: set[int] = set()

    def progress(self, side: str, rows: int) -> None:
        """Count nothing."""

    def on_difference(self, difference: Difference) -> None:
        assert difference.verdict is Verdict.DIFFERENT
        self.found[difference.key["id"][0].as_py()] = difference.where, difference.columns

    def on_repair(self, difference: Difference) -> None:
        self.repaired.add(difference.key["id"][0].as_py())


@pytest.fixture
def shop() -> Shop:
    shop = Shop()
    shop.put(*range(1, 10))
    return shop


def test_columns_that_transforms_copy_are_compared(shop: Shop, tmp_path: Path) -> None:
    """Renamed columns are compared under their new names; removed, masked and inserted ones are not."""
    assert shop.stored()[1] == {"id": 1, "title": "name 1", "mail": "hidden", "origin": "shop"}
    compared, results = shop.compare(tmp_path)
    assert (compared, results.found) == (Compared(9, (), ("mail", "origin")), {})
    for number, column in enumerate(("name", "mail", "note"), 1):
        shop.corrupt(number, column)
    assert shop.compare(tmp_path)[1].found == {1: (Where.BOTH, ("title",))}


def test_a_repair_keeps_what_transforms_make(shop: Shop, tmp_path: Path) -> None:
    """The repair writes the renamed column of a stored row, and deletes a row that the source lacks.

    It does not write the row that the lake lacks, whose other cells only an event of it has.
    """
    shop.corrupt(1, "name")
    shop.remove(2)
    shop.lose(3)
    compared, results = shop.compare(tmp_path, repairs=True)
    assert results.found == {1: (Where.BOTH, ("title",)), 2: (Where.LAKE, ()), 3: (Where.SOURCE, ())}
    assert (results.repaired, compared.left_out) == ({1, 2}, 1)
    stored = shop.stored()
    assert stored[1] == {"id": 1, "title": "unseen", "mail": "hidden", "origin": "shop"}
    assert stored.keys() == set(range(1, 10)) - {2, 3}


def test_a_row_that_disappears_during_its_repair_is_not_created(shop: Shop, tmp_path: Path) -> None:
    """The update omits cells that transforms make, so that it cannot insert a row. A missing row is not chosen."""
    shop.corrupt(1, "name")
    shop.corrupt(2, "name")
    shop.lose(3)
    verifier = shop.verifier(tmp_path)
    differences = list(verifier.differences())
    assert len(differences) == 3
    shop.lose(1)
    sink = Sink("shop", TOPIC, "items", shop.tables.task.pipeline, 60.0)
    repair = TableRepair(shop.open(), verifier, sink, shop, shop.clock, lambda: 10**15)
    assert repair.repair(differences) == 2
    assert not {1, 3} & shop.stored().keys()
    assert shop.stored()[2]["title"] == "unseen"


def test_if_transforms_only_copy_every_row_is_repaired(tmp_path: Path) -> None:
    """A row that the lake lacks is written as well: the source has all of its cells."""
    shop = Shop(WITHOUT_CELLS)
    shop.put(1, 2)
    shop.lose(1)
    compared, results = shop.compare(tmp_path, repairs=True)
    assert (results.repaired, compared.changed, compared.left_out) == ({1}, (), 0)
    assert shop.stored()[1] == {"id": 1, "title": "name 1", "mail": "1@shop"}


def test_a_null_that_a_transform_replaces_excludes_its_column(tmp_path: Path) -> None:
    """Only of columns with a default, which the catalog shows."""
    shop = Shop(WITHOUT_CELLS)
    shop.put(1)
    columns = (*COLUMNS[:2], CatalogColumn("mail", 3, TEXT, has_default=True), COLUMNS[3])
    shop.source.add(CatalogTable(TABLE, "r", "d", columns, CATALOG.key), SCHEMA, list(shop.rows.values()))
    assert shop.compare(tmp_path)[0].changed == ("mail",)


def test_a_proof_names_the_columns_that_were_not_compared(shop: Shop) -> None:
    """So do the report of the task, and the properties of the table; a row that the lake lacks is not repaired."""
    shop.corrupt(1, "name")
    shop.lose(3)

    def verified() -> VerificationReport:
        settings = VerifySettings(interval=3600.0, repairs=True, rows_per_second=10**9, source_ms_per_minute=60_000)
        running = ContinuousVerification(settings, shop.tables, shop, FastPace(10**9, 60_000, time.monotonic))

        async def report() -> VerificationReport:
            work = asyncio.create_task(running.run(lambda: [TOPIC], lambda table, name, rows: None))
            deadline = time.monotonic() + 30.0
            while (found := running.reports([TOPIC]).get("items")) is None or found.ended is None:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            work.cancel()
            return found

        return asyncio.run(report())

    first = verified()
    assert (first.differing, first.repaired, first.not_compared) == (1, 1, ("mail", "origin"))
    shop.put(3)
    assert verified().is_equal
    proof = shop.lake.proof()
    assert proof is not None
    assert proof.not_compared == ("mail", "origin")
    assert shop.stored()[1]["title"] == "unseen"


def test_a_connector_whose_transforms_decide_by_record_is_refused() -> None:
    """The error names transform and cause."""
    router = {"transforms": "t", "transforms.t.type": "TimestampRouter"}
    with pytest.raises(ConfigError, match=r"transforms\.t \(TimestampRouter\): the timestamp of a record decides"):
        Shop(router)


def test_a_topic_whose_records_are_dropped_has_no_tables() -> None:
    """It is not reported as a table that cannot be compared."""
    dropping = {
        "transforms": "drop",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.drop.predicate": "heartbeats",
        "predicates": "heartbeats",
        "predicates.heartbeats.type": "TopicNameMatches",
        "predicates.heartbeats.pattern": ".*heartbeat.*",
    }
    shop = Shop(dropping, **{"collection.name.format": "items"})
    assert shop.tables.of("shop.public.heartbeat") == ()
    assert [table for table, _ in shop.tables.of(TOPIC)] == [TABLE]


def test_a_table_of_several_sources_is_refused(shop: Shop) -> None:
    """A router has made one table of two: it equals none of them."""
    other = TableId("shop", "shop", "archive", "items")
    shop.lake.register(TableSource("shop", "connect-shop", "shop.archive.items", other), [])
    with pytest.raises(HeadraceError, match="has the rows of several source tables"):
        shop.open()
