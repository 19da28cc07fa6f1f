"""The way of a record through a sink task, over a broker and a lakehouse in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from envelopes import PLACEHOLDER, change, key, whole_change
from fix_asyncio import eventually

from headrace.core.batch import BatchPolicy
from headrace.core.cache_rows import CacheLimits, RowStore
from headrace.core.cassandra_losses import TEXTS, Loss
from headrace.core.catalog import CatalogColumn, CatalogTable, KeyColumn, SqlType
from headrace.core.connect_data import SchemaAndValue
from headrace.core.conversion import Conversion, Headers
from headrace.core.envelope import EnvelopeOptions
from headrace.core.errors import BadRecord, Fatal, Retriable, Stage
from headrace.core.events import TableId
from headrace.core.field_selection import FieldSelection, field_selection
from headrace.core.json_data import JsonData
from headrace.core.naming import TableNaming
from headrace.core.reselect_options import ReselectOptions
from headrace.core.schema import Field, Schema
from headrace.core.schema_changes import ADDED
from headrace.core.transforms.chain import Chain
from headrace.core.transforms.registry import chain
from headrace.ports import Chunk, Commit, TableOptions, TopicPartition
from headrace.runtime import retry, sink_task
from headrace.runtime.metrics import Metrics
from headrace.runtime.observation import NO_OBSERVER, Observer
from headrace.runtime.pipeline_parts import PipelineOptions
from headrace.runtime.post_processor import ReselectColumnsPostProcessor
from headrace.runtime.sink_task import SinkTask, SinkTaskOptions
from headrace_connectors.memory import MemoryLakehouse, MemoryRowSource
from headrace_connectors.memory.dead_letter_queue import MemoryDeadLetterQueue
from headrace_connectors.memory.feed import MemoryBroker, MemoryFeeds
from headrace_connectors.rocksdb import RocksRowStore

pytestmark = pytest.mark.anyio

TOPIC = "shop.public.items"
GROUP = "connect-items"
FIRST = TopicPartition(TOPIC, 0)


@dataclass
class Harness:
    """A broker, a lakehouse, and tasks of one connector over them."""

    broker: MemoryBroker
    lakehouse: MemoryLakehouse
    executor: ThreadPoolExecutor
    failures: list[BaseException] = field(default_factory=list)
    dead_letters: MemoryDeadLetterQueue | None = None

    def task(
        self,
        number: int = 0,
        *,
        tolerate: bool = False,
        linger: float = 0.0,
        processor: ReselectColumnsPostProcessor | None = None,
        history: bool = False,
        fields: FieldSelection | None = None,
        observer: Observer = NO_OBSERVER,
        dead_letters: bool = False,
        plain: bool = False,
        transforms: Chain | None = None,
        key_fields: tuple[str, ...] = (),
        conversion: Conversion | None = None,
        **logged: Any,
    ) -> SinkTask:
        options = SinkTaskOptions(
            connector="items",
            group=GROUP,
            namespace="lake",
            naming=TableNaming("${topic}"),
            envelope=EnvelopeOptions(not plain, not plain, keyless=history, key_fields=key_fields),
            batches=BatchPolicy(linger=linger),
            tables=TableOptions(history=history),
            pipeline=PipelineOptions(unresolved_insert_mode="dlq" if dead_letters else "auto"),
            dead_letters_unresolved=dead_letters,
            fields=fields or FieldSelection(),
            transforms=transforms or Chain(),
            tolerate_errors=tolerate,
            **logged,
        )
        feed = MemoryFeeds(self.broker).open("items", number, {"topics.regex": "shop.*"})
        return SinkTask(
            options,
            feed,
            self.lakehouse,
            processor or ReselectColumnsPostProcessor(ReselectOptions()),
            self.dead_letters,
            self.executor,
            self.failures.append,
            observer,
            conversion,
        )

    def rows(self, table: str = "shop_public_items") -> dict[str, dict[str, Any]]:
        return self.lakehouse.table("lake", table, TableOptions()).rows()

    def offset(self) -> int:
        return self.broker.committed(GROUP).get(FIRST, 0)

    def insert(self, number: int, lsn: int, name: str = "new") -> None:
        row = {"id": number, "name": name}
        self.broker.append(TOPIC, change("c", row, lsn), key({"id": number}))


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    """A harness with one topic of one partition."""
    broker = MemoryBroker()
    await broker.create_topic(TOPIC)
    with ThreadPoolExecutor(4) as executor:
        yield Harness(broker, MemoryLakehouse(), executor)


@asynccontextmanager
async def running(task: SinkTask) -> AsyncIterator[SinkTask]:
    await task.start()
    try:
        yield task
    finally:
        await task.stop()


def flattened(row: dict[str, Any]) -> bytes:
    """A row without its envelope."""
    types = {int: "int64", str: "string"}
    fields = [{"type": types[type(value)], "optional": True, "field": name} for name, value in row.items()]
    schema = {"type": "struct", "name": "shop.public.items.Value", "fields": fields}
    return json.dumps({"schema": schema, "payload": row}, separators=(",", ":")).encode()


async def test_what_a_topic_lacks_is_logged(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """Once, with what to do about it; the rows arrive all the same."""
    for number in (1, 2):
        harness.broker.append(TOPIC, flattened({"id": number}), key({"id": number}))
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 2)
    assert sorted(harness.rows()) == ["=1", "=2"]
    notes = [entry.getMessage() for entry in caplog.records if "order of arrival" in entry.getMessage()]
    assert len(notes) == 1
    assert TOPIC in notes[0]


async def test_rows_arrive_and_offsets_follow(harness: Harness) -> None:
    """Inserts, an update that leaves a column out and a delete give the table, and all offsets are committed."""
    harness.insert(1, 10, "one")
    harness.insert(2, 20, "two")
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 2)
        update = change("u", {"id": 1, "name": PLACEHOLDER, "size": 5}, 30)
        harness.broker.append(TOPIC, update, key({"id": 1}))
        harness.broker.append(TOPIC, change("d", None, 40, columns={"id": 1, "name": ""}), key({"id": 2}))
        harness.broker.append(TOPIC, None, key({"id": 2}))
        await eventually(lambda: harness.offset() == 5)
    assert harness.rows() == {"=1": {"id": 1, "name": "one", "size": 5}}
    assert harness.failures == []


async def test_every_event_is_appended_to_a_history(harness: Harness) -> None:
    """With or without a key; what is read again because the group's offset was lost is there once."""
    harness.insert(1, 10, "one")
    harness.broker.append(TOPIC, change("d", None, 20, columns={"id": 1, "name": "one"}), key({"id": 1}))
    harness.broker.append(TOPIC, change("c", {"id": 2, "name": "keyless"}, 30), None)
    async with running(harness.task(history=True)):
        await eventually(lambda: harness.offset() == 3)
    harness.broker.group(GROUP).committed[FIRST] = 0
    harness.insert(1, 40, "again")
    async with running(harness.task(history=True)):
        await eventually(lambda: harness.offset() == 4)
    rows = harness.lakehouse.table("lake", "shop_public_items", TableOptions(history=True)).to_arrow().to_pylist()
    assert harness.failures == []
    assert [(row["__headrace_operation"], row["name"]) for row in rows] == [
        ("c", "one"), ("d", None), ("c", "keyless"), ("c", "again"),
    ]  # fmt: skip


async def test_columns_are_chosen(harness: Harness) -> None:
    """What is left out never gets to the table, and metadata do."""
    harness.insert(1, 10, "one")
    async with running(harness.task(fields=field_selection([], ["name"], ["op"]))):
        await eventually(lambda: harness.offset() == 1)
    assert harness.rows() == {"=1": {"id": 1, "__op": "c"}}


async def test_a_restarted_task_goes_on_where_the_group_stands(harness: Harness) -> None:
    """Stop and start lose nothing and write nothing twice."""
    harness.insert(1, 10)
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
    harness.insert(2, 20)
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 2)
    assert set(harness.rows()) == {"=1", "=2"}


async def test_a_paused_task_reads_nothing_until_it_is_resumed(harness: Harness) -> None:
    """Pause writes and commits what was read; what comes later waits for resume."""
    async with running(harness.task(linger=30.0)) as task:
        harness.insert(1, 10)
        await eventually(lambda: task.waiting("shop_public_items") == 1)
        await task.pause()
        assert harness.offset() == 1
        harness.insert(2, 20)
        assert set(harness.rows()) == {"=1"}
        await task.resume()
        await eventually(lambda: task.waiting("shop_public_items") == 1)


async def test_a_record_that_cannot_be_decoded_stops_the_task_at_its_offset(harness: Harness) -> None:
    """Without tolerance the task fails with a message that names the place, and the offset stays before it."""
    harness.insert(1, 10)
    harness.broker.append(TOPIC, b"{broken", key({"id": 2}))
    async with running(harness.task()):
        await eventually(lambda: bool(harness.failures))
    assert "shop.public.items-0 at offset 1" in str(harness.failures[0])
    assert "VALUE_CONVERTER" in str(harness.failures[0])
    assert "broken" not in str(harness.failures[0])
    assert harness.offset() <= 1


async def test_a_tolerated_record_goes_to_the_dead_letter_queue(harness: Harness) -> None:
    """With tolerance the bad record is in the queue, every good one in the table, and offsets pass both."""
    harness.dead_letters = MemoryDeadLetterQueue("items", 0)
    harness.broker.append(TOPIC, b"{broken", key({"id": 1}))
    harness.insert(2, 20)
    async with running(harness.task(tolerate=True)):
        await eventually(lambda: harness.offset() == 2)
    assert [letter.value for letter in harness.dead_letters.letters] == [b"{broken"]
    assert set(harness.rows()) == {"=2"}


def with_dead_letters(harness: Harness) -> MemoryDeadLetterQueue:
    harness.dead_letters = MemoryDeadLetterQueue("items", 0)
    return harness.dead_letters


async def test_changes_of_a_row_that_nothing_completes_go_to_the_dead_letter_queue(harness: Harness) -> None:
    """All that left the value out, as they came; deletes between them and other rows are applied, offsets move on."""
    queue = with_dead_letters(harness)
    harness.insert(1, 1, "one")
    harness.insert(2, 2, "two")
    lacking = [
        change(op, {"id": number, "name": PLACEHOLDER, "size": lsn}, lsn)
        for op, number, lsn in (("u", 9, 10), ("u", 9, 11), ("c", 2, 13))
    ]
    harness.broker.append(TOPIC, lacking[0], key({"id": 9}))
    harness.broker.append(TOPIC, lacking[1], key({"id": 9}))
    harness.broker.append(TOPIC, change("d", None, 12, columns={"id": 2, "name": ""}), key({"id": 2}))
    harness.broker.append(TOPIC, lacking[2], key({"id": 2}))
    async with running(harness.task(tolerate=True, dead_letters=True, linger=0.2)):
        await eventually(lambda: harness.offset() == 6)
    assert harness.failures == []
    assert harness.rows() == {"=1": {"id": 1, "name": "one", "size": None}}
    assert sorted(letter.value or b"" for letter in queue.letters) == sorted(lacking)
    headers = dict(queue.letters[0].headers)
    assert headers["__connect.errors.stage"] == b"TASK_PUT"
    assert headers["__connect.errors.class.name"] == b"org.apache.kafka.connect.sink.SinkTask"
    assert headers["__connect.errors.offset"] == b"2"
    assert b"column(s) name were left out" in (headers["__connect.errors.exception.message"] or b"")


async def test_a_dead_letter_is_no_row_until_a_change_tells_all(harness: Harness) -> None:
    """In batches of their own: the next update that leaves the value out goes the same way, a whole one does not."""
    queue = with_dead_letters(harness)
    async with running(harness.task(tolerate=True, dead_letters=True)):
        for offset, name in enumerate([PLACEHOLDER, PLACEHOLDER, "told", PLACEHOLDER]):
            change_ = change("u", {"id": 1, "name": name, "size": offset}, offset + 1)
            harness.broker.append(TOPIC, change_, key({"id": 1}))
            await eventually(lambda read=offset: harness.offset() == read + 1)
    assert harness.rows() == {"=1": {"id": 1, "name": "told", "size": 3}}
    assert len(queue.letters) == 2


async def test_a_change_that_the_database_cannot_complete_is_a_dead_letter(harness: Harness) -> None:
    """``reselect.error.handling.mode=dlq``: the row is gone at the source; what stands stays as it was."""
    queue = with_dead_letters(harness)
    harness.insert(1, 1, "A")
    harness.insert(2, 2, "kept")
    processor = cached_reselect("B", error_handling_mode="dlq", cache_enabled=False)
    for number in (1, 2):
        row = {"id": number, "name": PLACEHOLDER}
        async with running(harness.task(tolerate=True, dead_letters=True, processor=processor)):
            await eventually(lambda read=number: harness.offset() == read + 1)
            harness.broker.append(TOPIC, change("u", row, 10 + number), key({"id": number}))
            await eventually(lambda read=number: harness.offset() == read + 2)
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}, "=2": {"id": 2, "name": "kept"}}
    assert [dict(letter.headers)["__connect.errors.offset"] for letter in queue.letters] == [b"3"]


@pytest.mark.parametrize(("included", "place"), [(False, []), (True, ["topic='shop.public.items'", "offset=0"])])
async def test_what_the_log_says_of_a_tolerated_record(
    harness: Harness, caplog: pytest.LogCaptureFixture, included: bool, place: list[str]
) -> None:
    """``errors.log.include.messages`` adds where the record lies; nothing ever shows what it holds."""
    harness.broker.append(TOPIC, b"{broken", key({"id": 1}))
    harness.insert(2, 20)
    async with running(harness.task(tolerate=True, log_errors=True, log_messages=included)):
        await eventually(lambda: harness.offset() == 2)
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "VALUE_CONVERTER" in line
    assert [part for part in ("topic='shop.public.items'", "offset=0") if part in line] == place
    assert "broken" not in line


ITEMS = TableId("shop", "shop", "public", "items")
INT, TEXT = SqlType(20, "pg_catalog", "int8"), SqlType(25, "pg_catalog", "text")


def cached_reselect(name_now: str, rows: RowStore | None = None, **options: Any) -> ReselectColumnsPostProcessor:
    """Reselect with a cache (or other ``options``), from a database where row 1 has this name."""
    columns = (CatalogColumn("id", 1, INT, attlen=8), CatalogColumn("name", 2, TEXT, attstorage="x"))
    schema = Schema("struct", fields=(Field("id", Schema("int64")), Field("name", Schema("string"))))
    source = MemoryRowSource()
    source.add(CatalogTable(ITEMS, "r", "d", columns, (KeyColumn("id", INT),)), schema, [{"id": 1, "name": name_now}])
    told = ReselectOptions(**{"null_values": False, "cache_enabled": True} | options)
    return ReselectColumnsPostProcessor(told, source, rows=rows)


async def test_n09_lost_record_voids_the_cache(harness: Harness) -> None:
    """N9: the update to B cannot be decoded; the next event leaves the column out, and finds B, not the cached A."""
    harness.insert(1, 10, "A")
    async with running(harness.task(tolerate=True, processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 1)
        harness.broker.append(TOPIC, b"{broken", key({"id": 1}))
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}


@pytest.mark.parametrize(("told", "name"), [({"__op": "u", "__lsn": 30}, "B"), ({"__op": "u"}, "A"), ({}, "A")])
async def test_flattened_records_are_reselected_only_if_they_tell_enough(
    harness: Harness, told: dict[str, Any], name: str
) -> None:
    """Op, position and table; otherwise a column that is left out keeps what the table has."""
    source = {"__name": ITEMS.name, "__db": ITEMS.database, "__schema": ITEMS.schema, "__table": ITEMS.table}
    harness.insert(1, 10, "A")
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
    harness.broker.append(TOPIC, flattened({"id": 1, "name": PLACEHOLDER} | source | told), key({"id": 1}))
    async with running(harness.task(processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 2)
    assert harness.rows() == {"=1": {"id": 1, "name": name}}


async def test_s17_snapshot_voids_the_cache(harness: Harness) -> None:
    """S17: a snapshot begins, and row 1 is not in it yet when an event leaves its column out."""
    harness.insert(1, 10, "A")
    async with running(harness.task(processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 1)
        begin = change("r", {"id": 2, "name": "x"}, 20, snapshot="first_in_data_collection")
        harness.broker.append(TOPIC, begin, key({"id": 2}))
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows()["=1"] == {"id": 1, "name": "B"}


async def test_a_schema_change_voids_the_cache(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topic holds no rows and its offset moves; what was cached of the table it names is read again."""
    monkeypatch.setattr(sink_task, "COMMIT_INTERVAL", 0.05)
    await harness.broker.create_topic("shop.changes")
    harness.insert(1, 10, "A")
    source = {"connector": "oracle", "name": ITEMS.name, "snapshot": "false"}
    altered = [{"type": "ALTER", "id": '"shop"."public"."items"', "table": {"columns": []}}]
    told = {"source": source, "databaseName": "shop", "schemaName": "public", "ddl": "", "tableChanges": altered}
    schema = {"type": "struct", "name": "io.debezium.connector.oracle.SchemaChangeValue", "fields": []}
    async with running(harness.task(processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 1)
        harness.broker.append("shop.changes", json.dumps({"schema": schema, "payload": told}).encode(), None)
        await eventually(lambda: harness.broker.committed(GROUP).get(TopicPartition("shop.changes", 0)) == 1)
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 2)
    assert harness.failures == []
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}


def mariadb(pos: int, **other: Any) -> dict[str, Any]:
    source = {"connector": "mariadb", "name": "shop", "db": "public", "table": "items", "snapshot": "false"}
    return {"source": source | {"file": "bin.000001", "pos": pos, "row": 0, "ts_ms": pos}} | other


@pytest.mark.parametrize("fills", [True, False])
async def test_rows_get_the_default_of_a_new_column(
    harness: Harness, fills: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those from before it was added, also late ones; where the task may not, a note says so."""
    monkeypatch.setattr(sink_task, "COMMIT_INTERVAL", 0.05)

    def row(number: int, pos: int, **cells: Any) -> None:
        value = mariadb(pos, op="c", after={"id": number, **cells})
        harness.broker.append(TOPIC, json.dumps(value).encode(), b'{"id":%d}' % number)

    await harness.broker.create_topic("shop")
    told = [{"name": "qty", "typeName": "INT", "optional": True, "defaultValueExpression": "5"}]
    changes = [{"type": "ALTER", "id": '"public"."items"', "table": {"columns": told}}]
    ddl = "alter table items add column qty int default 5"
    altered = mariadb(20, databaseName="public", schemaName=None, ddl=ddl, tableChanges=changes)
    row(1, 10)
    async with running(harness.task(plain=True, fills_defaults=fills)):
        await eventually(lambda: harness.offset() == 1)
        harness.broker.append("shop", json.dumps(altered).encode(), None)
        await eventually(lambda: harness.broker.committed(GROUP).get(TopicPartition("shop", 0)) == 1)
        row(2, 30, qty=9)
        row(3, 31, qty=None)
        await eventually(lambda: harness.offset() == 3)
        row(4, 15)
        await eventually(lambda: harness.offset() == 4)
    assert harness.failures == []
    default = 5 if fills else None
    found = {key: cells["qty"] for key, cells in harness.rows().items()}
    assert found == {"=1": default, "=2": 9, "=3": None, "=4": default}
    noted = [entry.getMessage() for entry in caplog.records if ADDED in entry.getMessage()]
    assert noted == ([] if fills else [f"items: shop column public.items.qty: {ADDED}"])


async def test_an_update_of_a_row_that_is_not_there_is_a_contradiction(harness: Harness) -> None:
    """It leaves out what only the table could have: the task stops, and a metric says of how many rows."""
    metrics = Metrics()
    processor = ReselectColumnsPostProcessor(ReselectOptions(), metrics=metrics.reselects("items", 0))
    harness.insert(1, 1)
    for number in (1, 2, 3):
        row = {"id": number, "name": PLACEHOLDER}
        harness.broker.append(TOPIC, change("u", row, 10 + number), key({"id": number}))
    async with running(harness.task(processor=processor)):
        await eventually(lambda: harness.failures)
    assert "not in the table" in str(harness.failures[0])
    labels = {"connector": "items", "task": "0", "table": "public.items", "kind": "update_without_create"}
    assert metrics.registry.get_sample_value("reselect_contradictions_total", labels) == 2


async def test_two_tasks_share_the_topics(harness: Harness) -> None:
    """A second task takes over topics while the first is at work: nothing is lost, nothing doubled."""
    await harness.broker.create_topic("shop.public.notes")
    for number in range(200):
        harness.insert(number, number + 1)
        harness.broker.append(
            "shop.public.notes", change("c", {"id": number}, number + 1, table="notes"), key({"id": number})
        )
    async with running(harness.task(0)), running(harness.task(1)):
        await eventually(lambda: sum(harness.broker.committed(GROUP).values()) == 400)
    assert len(harness.rows()) == len(harness.rows("shop_public_notes")) == 200
    assert harness.failures == []


async def test_two_source_tables_do_not_meet_in_one_table(harness: Harness) -> None:
    """A topic that a router fills from two tables: nothing of the second is written or committed."""
    harness.insert(1, 10)
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
        harness.broker.append(TOPIC, change("c", {"id": 1, "name": "x"}, 20, table="notes"), key({"id": 1}))
        await eventually(lambda: bool(harness.failures))
    assert isinstance(harness.failures[0], Fatal)
    assert "shop.shop.public.notes" in str(harness.failures[0])
    assert (harness.rows()["=1"]["name"], harness.offset()) == ("new", 1)


async def test_a_write_that_fails_for_a_while_is_repeated(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A passing failure of the lakehouse delays the batch; the task goes on and nothing is committed before."""
    table = type(harness.lakehouse.table("lake", "x", TableOptions()))
    merge, attempts = table.merge, []

    def failing_once(self: Any, actions: Any, commit: Commit) -> Any:
        attempts.append(harness.offset())
        if len(attempts) < 2:
            raise Retriable("disk full")
        return merge(self, actions, commit)

    monkeypatch.setattr(table, "merge", failing_once)
    monkeypatch.setattr(retry, "_INITIAL_SECONDS", 0.01)
    harness.insert(1, 10)
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
    assert attempts == [0, 0]
    assert set(harness.rows()) == {"=1"}


class UnreachableOnce:
    """A converter whose registry answers at the second call; what says "bad" it does not know."""

    def __init__(self) -> None:
        self.calls = 0
        self._json = JsonData(True)

    def to_connect_data(self, document: bytes, headers: Headers) -> SchemaAndValue:
        self.calls += 1
        if self.calls == 1:
            raise Retriable("the registry does not answer")
        if document == b"bad":
            raise BadRecord("there is no schema 7")
        return self._json.to_connect_data(document)


async def test_a_registry_that_does_not_answer_delays_the_chunk(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, nothing is dead-lettered, and the task goes on."""
    monkeypatch.setattr(retry, "_INITIAL_SECONDS", 0.01)
    harness.insert(1, 10)
    converter = UnreachableOnce()
    async with running(harness.task(conversion=Conversion(value=converter))):
        await eventually(lambda: harness.offset() == 1)
    assert converter.calls == 2
    assert set(harness.rows()) == {"=1"}
    assert harness.failures == []


async def test_dead_letters_name_their_converter(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stage and class stand in the headers."""
    monkeypatch.setattr(sink_task, "COMMIT_INTERVAL", 0.05)
    harness.dead_letters = MemoryDeadLetterQueue("items", 0)
    converter = UnreachableOnce()
    converter.calls = 1
    harness.broker.append(TOPIC, b"bad", key({"id": 1}))
    classes = {Stage.VALUE_CONVERTER: "a.Converter"}
    task = harness.task(tolerate=True, conversion=Conversion(value=converter), converters=classes)
    async with running(task):
        await eventually(lambda: harness.offset() == 1)
    (letter,) = harness.dead_letters.letters
    headers = dict(letter.headers)
    assert headers["__connect.errors.class.name"] == b"a.Converter"
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"


async def test_a_worker_that_the_group_has_forgotten_writes_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stood still when its assignment began; let in again, it writes. What it read meanwhile may be old."""
    table = type(harness.lakehouse.table("lake", "x", TableOptions()))
    ledger, group = table.ledger, harness.broker.group(GROUP)
    forgotten: list[int] = []

    def forgotten_meanwhile(self: Any) -> Any:
        if not forgotten:
            forgotten.extend(len(member.positions) for member in group.members.values())
            for member in group.members.values():
                member.positions = {}
        return ledger(self)

    monkeypatch.setattr(table, "ledger", forgotten_meanwhile)
    harness.insert(1, 10)
    async with running(harness.task()):
        await eventually(lambda: "is left to another worker" in caplog.text)
        assert (forgotten, harness.rows(), harness.offset()) == ([1], {}, 0)
        await harness.broker.rebalance(group)
        await eventually(lambda: harness.offset() == 1)
    assert (set(harness.rows()), harness.failures) == ({"=1"}, [])


async def test_a_gap_in_the_sequence_fails_the_task(harness: Harness) -> None:
    """A chunk that skips offsets is never committed over."""
    async with running(harness.task()) as task:
        epoch = task.epoch
        await task.put(_chunk(epoch, 0, 0, 0))
        await task.put(_chunk(epoch, 1, 5, 5))
    assert isinstance(harness.failures[0], Fatal)
    assert "a gap in what was fetched" in str(harness.failures[0])


def _chunk(epoch: int, sequence: int, begin: int, end: int) -> Chunk:
    return Chunk(epoch, sequence, FIRST, [], begin, end)


async def test_a_cache_on_disk_serves_after_a_restart(harness: Harness, tmp_path: Path) -> None:
    """A task that goes on where it stopped asks for nothing; after another one has gone on meanwhile it asks (S9)."""

    async def run(processor: ReselectColumnsPostProcessor, until: int) -> None:
        async with running(harness.task(processor=processor)):
            await eventually(lambda: harness.offset() == until)

    def on_disk() -> ReselectColumnsPostProcessor:
        return cached_reselect("now", RocksRowStore(tmp_path / "rows", CacheLimits()))

    def update(name: str, lsn: int) -> None:
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": name}, lsn), key({"id": 1}))

    harness.insert(1, 10, "A")
    await run(on_disk(), until=1)
    update(PLACEHOLDER, 20)
    await run(on_disk(), until=2)
    assert harness.rows() == {"=1": {"id": 1, "name": "A"}}
    update("B", 30)
    await run(cached_reselect("now"), until=3)
    update(PLACEHOLDER, 40)
    await run(on_disk(), until=4)
    assert harness.rows() == {"=1": {"id": 1, "name": "now"}}


async def test_cassandras_writes_arrive(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """Cells by their own write times, whatever came first; what the connector does not tell is said once."""
    topic = "shop.hr.simple"
    await harness.broker.create_topic(topic)
    for written, name, tags in ((5, "late", ["a"]), (3, "early", None)):
        harness.broker.append(topic, cassandra_write(written, id=7, name=name, tags=tags), key({"id": 7}))
    told, metrics = list[tuple[str, str]](), Metrics()
    observer = metrics.task("items", 0, lambda topic: None, lambda text, place: told.append((text, place)))
    async with running(harness.task(observer=observer)):
        await eventually(lambda: harness.broker.committed(GROUP).get(TopicPartition(topic, 0)) == 2)
        harness.broker.append(topic, cassandra_write(7, id=8, tags=["b"]), key({"id": 8}))
        await eventually(lambda: harness.broker.committed(GROUP).get(TopicPartition(topic, 0)) == 3)
    row = harness.rows("shop_hr_simple")["=7"]
    assert (row["id"], row["name"], row["tags"]) == (7, "late", ["a"])
    assert harness.failures == []
    assert told == [(TEXTS[Loss.COLLECTION], "shop.hr.simple column tags")]
    assert sum("shop.hr.simple column tags: adding to" in message for message in caplog.messages) == 1
    labels = {"connector": "items", "task": "0", "topic": topic, "kind": "collection"}
    assert metrics.registry.get_sample_value("headrace_source_losses_total", labels) == 2


def cassandra_write(written: int, **cells: Any) -> bytes:
    """An INSERT as the Cassandra connector sends it, with schemas."""
    texts = {"type": "array", "items": {"type": "string"}}
    kinds: dict[str, Any] = {"id": {"type": "int32"}, "name": {"type": "string"}, "tags": texts}
    members = [
        {
            "field": name,
            "type": "struct",
            "optional": True,
            "fields": [
                {**kinds[name], "field": "value", "optional": True},
                {"field": "deletion_ts", "type": "int64", "optional": True},
            ],
        }
        for name in cells
    ]
    source = {"connector": "cassandra", "name": "shop", "ts_us": written, "keyspace": "hr", "table": "simple"}
    schema = {
        "type": "struct",
        "fields": [
            {"field": "op", "type": "string"},
            {
                "field": "source",
                "type": "struct",
                "fields": [{"field": n, "type": "int64" if n == "ts_us" else "string"} for n in source],
            },
            {"field": "after", "type": "struct", "fields": members},
        ],
    }
    after = {name: None if cell is None else {"value": cell, "deletion_ts": None} for name, cell in cells.items()}
    payload = {"op": "i", "source": source, "after": after}
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


UNWRAP = {
    "transforms": "unwrap,route",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.route.type": "RegexRouter",
    "transforms.route.regex": r"[^.]+\.[^.]+\.(.*)",
    "transforms.route.replacement": "$1",
}
"""A usual set: rows instead of envelopes, tables named without prefix and schema."""


async def test_transforms_stand_before_the_table(harness: Harness) -> None:
    """The row is inserted, changed and deleted, in the order of the source, in the table that the router names."""
    first, changed = {"id": 1, "name": "new"}, {"id": 1, "name": "changed"}
    second, late = {"id": 2, "name": "second"}, {"id": 1, "name": "late"}
    harness.broker.append(TOPIC, whole_change("c", None, first, 100), key({"id": 1}))
    harness.broker.append(TOPIC, whole_change("c", None, second, 110), key({"id": 2}))
    async with running(harness.task(transforms=chain(UNWRAP))):
        await eventually(lambda: harness.offset() == 2)
        assert [row["name"] for row in harness.rows("items").values()] == ["new", "second"]
        harness.broker.append(TOPIC, whole_change("u", first, changed, 130), key({"id": 1}))
        harness.broker.append(TOPIC, whole_change("u", first, late, 120), key({"id": 1}))
        harness.broker.append(TOPIC, whole_change("d", second, None, 140), key({"id": 2}))
        harness.broker.append(TOPIC, None, key({"id": 2}))
        await eventually(lambda: harness.offset() == 6)
    assert [row["name"] for row in harness.rows("items").values()] == ["changed"]
    assert harness.failures == []


async def test_records_that_a_transform_drops_are_done(harness: Harness) -> None:
    """Their offsets are committed, though no table hears of them."""
    dropping = {
        "transforms": "drop",
        "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.drop.predicate": "items",
        "predicates": "items",
        "predicates.items.type": "TopicNameMatches",
        "predicates.items.pattern": r".*\.items",
    }
    await harness.broker.create_topic("shop.public.other")
    harness.insert(1, 100)
    harness.broker.append("shop.public.other", whole_change("c", None, {"id": 1}, 90), key({"id": 1}))
    async with running(harness.task(transforms=chain(dropping))):
        await eventually(lambda: len(harness.rows("shop_public_other")) == 1)
    assert harness.offset() == 1
    assert harness.rows() == {}


async def test_a_record_that_a_transform_cannot_use_keeps_its_place(harness: Harness) -> None:
    """It is dead-lettered as it was, at its own offset, with the transform's stage and class; the others go on."""
    harness.dead_letters = MemoryDeadLetterQueue("items", 0)
    casting = {
        "transforms": "rename,cast",
        "transforms.rename.type": "RegexRouter",
        "transforms.rename.regex": ".*",
        "transforms.rename.replacement": "elsewhere",
        "transforms.cast.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
        "transforms.cast.field": "id",
    }
    harness.insert(1, 100)
    harness.broker.append(
        TOPIC, change("c", {"id": 2, "name": "x"}, 110), b'{"schema":{"type":"string"},"payload":"no"}'
    )
    task = harness.task(tolerate=True, transforms=chain(casting), key_fields=("id",))
    async with running(task):
        await eventually(lambda: harness.offset() == 2)
    [letter] = harness.dead_letters.letters
    told = {name.removeprefix("__connect.errors."): value.decode() for name, value in letter.headers if value}
    assert (told["topic"], told["offset"], told["stage"]) == (TOPIC, "1", "TRANSFORMATION")
    assert told["class.name"] == "org.apache.kafka.connect.transforms.ExtractField$Key"
    assert [row["id"] for row in harness.rows("elsewhere").values()] == [1]
