"""Tests of sink tasks with records of several sources, and with transforms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import key, whole_change
from support.task.sink_task_harness import (
    GROUP,
    TOPIC,
    Harness,
    flattened,
    running,
)

from headrace.cassandra.losses import TEXTS, Loss
from headrace.converters.conversion import Conversion, Headers
from headrace.core.decode.json_converter import JsonData
from headrace.core.decode.schema_changes import ADDED
from headrace.core.model.connect_data import SchemaAndValue
from headrace.ports import TopicPartition
from headrace.runtime.metrics.metrics import Metrics
from headrace.runtime.task import sink_task
from headrace.transforms.registry import chain

pytestmark = pytest.mark.anyio


async def test_a_topic_without_positions_is_logged(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """The task logs once that a topic has no source positions, and writes its rows in the order of arrival."""
    for number in (1, 2):
        harness.broker.append(TOPIC, flattened({"id": number}), key({"id": number}))
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 2)
    assert sorted(harness.rows()) == ["=1", "=2"]
    notes = [entry.getMessage() for entry in caplog.records if "order of arrival" in entry.getMessage()]
    assert len(notes) == 1
    assert TOPIC in notes[0]


def mariadb(pos: int, **other: Any) -> dict[str, Any]:
    source = {"connector": "mariadb", "name": "shop", "db": "public", "table": "items", "snapshot": "false"}
    return {"source": source | {"file": "bin.000001", "pos": pos, "row": 0, "ts_ms": pos}} | other


class TopicConverter:
    """A converter that records the topics for which it was created."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self._json = JsonData(True)

    def of_topic(self, topic: str) -> TopicConverter:
        self.topics.append(topic)
        return self

    def to_connect_data(self, document: bytes, headers: Headers) -> SchemaAndValue:
        return self._json.to_connect_data(document)


@pytest.mark.parametrize("transformed", [False, True])
async def test_a_converter_receives_the_topic(harness: Harness, transformed: bool) -> None:
    """The task creates a converter once for each topic, because the subject of a schema can contain the topic."""
    route = {"transforms": "r", "transforms.r.type": "RegexRouter", "transforms.r.regex": "x"}
    converter, other = TopicConverter(), "shop.public.others"
    await harness.broker.create_topic(other)
    for number in range(3):
        harness.insert(number, 10 + number)
        row = whole_change("c", None, {"id": number}, 10 + number, table="others")
        harness.broker.append(other, row, key({"id": number}))
    transforms = chain(route | {"transforms.r.replacement": "x"} if transformed else {})
    async with running(harness.task(conversion=Conversion(value=converter), transforms=transforms)):
        await eventually(lambda: len(harness.rows()) == len(harness.rows("shop_public_others")) == 3)
    assert sorted(converter.topics) == [TOPIC, other]


@pytest.mark.parametrize("fills", [True, False])
async def test_rows_get_the_default_of_a_new_column(
    harness: Harness, fills: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows from before an ADD COLUMN get its default, also late ones. If the task may not fill them, it logs a note."""
    monkeypatch.setattr(sink_task, "COMMIT_INTERVAL", 0.05)

    def row(number: int, pos: int, **cells: Any) -> None:
        value = mariadb(pos, op="c", after={"id": number, **cells})
        harness.broker.append(TOPIC, json.dumps(value).encode(), b'{"id":%d}' % number)

    await harness.broker.create_topic("shop")
    columns = [{"name": "qty", "typeName": "INT", "optional": True, "defaultValueExpression": "5"}]
    changes = [{"type": "ALTER", "id": '"public"."items"', "table": {"columns": columns}}]
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


async def test_writes_of_cassandra(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """The task merges Cassandra cells by write time, and reports once each type of data that the connector omits."""
    topic = "shop.hr.simple"
    await harness.broker.create_topic(topic)
    for written, name, tags in ((5, "late", ["a"]), (3, "early", None)):
        harness.broker.append(topic, cassandra_write(written, id=7, name=name, tags=tags), key({"id": 7}))
    notes, metrics = list[tuple[str, str]](), Metrics()
    observer = metrics.task("items", 0, lambda topic: None, lambda text, place: notes.append((text, place)))
    async with running(harness.task(observer=observer)):
        await eventually(lambda: harness.broker.committed(GROUP).get(TopicPartition(topic, 0)) == 2)
        harness.broker.append(topic, cassandra_write(7, id=8, tags=["b"]), key({"id": 8}))
        await eventually(lambda: harness.broker.committed(GROUP).get(TopicPartition(topic, 0)) == 3)
    row = harness.rows("shop_hr_simple")["=7"]
    assert (row["id"], row["name"], row["tags"]) == (7, "late", ["a"])
    assert harness.failures == []
    assert notes == [(TEXTS[Loss.COLLECTION], "shop.hr.simple column tags")]
    assert sum("shop.hr.simple column tags: adding to" in message for message in caplog.messages) == 1
    labels = {"connector": "items", "task": "0", "topic": topic, "kind": "collection"}
    assert metrics.registry.get_sample_value("headrace_source_losses_total", labels) == 2


def cassandra_write(written: int, **cells: Any) -> bytes:
    """Return an INSERT event of the Cassandra connector, with schemas."""
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
"""Usual transforms: flattened rows, and table names without prefix and schema."""


async def test_transforms_run_before_the_merge(harness: Harness) -> None:
    """The task applies flattened inserts, updates and deletes in source order to the table that the router names."""
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


async def test_records_that_a_transform_drops_are_committed(harness: Harness) -> None:
    """The task commits the offsets of records that a Filter drops, and writes no row."""
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


async def test_the_truncate_of_one_of_several_source_tables(harness: Harness) -> None:
    """The task fails before the truncate, because it cannot distinguish the rows of the source tables."""
    merging = {
        "transforms": "merge",
        "transforms.merge.type": "io.debezium.transforms.ByLogicalTableRouter",
        "transforms.merge.topic.regex": r"(.*)_\d+",
        "transforms.merge.topic.replacement": "$1",
    }
    await two_years(harness)
    async with running(harness.task(transforms=chain(merging))):
        await eventually(lambda: len(harness.rows("shop_public_orders")) == 2)
        harness.broker.append("shop.public.orders_2024", truncated({"id": 0}, 100, "orders_2024"), None)
        await eventually(lambda: len(harness.failures) == 1)
    assert "shop.public.orders_2024-0@1 truncates shop." in str(harness.failures[0])
    assert len(harness.rows("shop_public_orders")) == 2


async def test_a_truncate_after_a_restart_that_has_seen_one_source(harness: Harness) -> None:
    """After a restart the stored rows show that another topic writes the table. The task fails before the truncate."""
    routed = chain(
        {
            "transforms": "route",
            "transforms.route.type": "RegexRouter",
            "transforms.route.regex": r"(.*)_\d+",
            "transforms.route.replacement": "$1",
        }
    )
    await two_years(harness)
    async with running(harness.task(transforms=routed, key_fields=("id",))):
        await eventually(lambda: len(harness.rows("shop_public_orders")) == 2)
    harness.broker.append("shop.public.orders_2024", truncated({"id": 0}, 100, "orders_2024"), None)
    async with running(harness.task(transforms=routed, key_fields=("id",))):
        await eventually(lambda: len(harness.failures) == 1)
    assert "rows of other topics (shop.public.orders_2025), which would be removed" in str(harness.failures[0])
    assert len(harness.rows("shop_public_orders")) == 2


@pytest.mark.parametrize("partitions", [1, 2])
async def test_a_truncate_of_a_source_without_positions(harness: Harness, partitions: int) -> None:
    """The task applies the truncate in a topic of one partition.

    With more partitions it fails, as rows may be newer.
    """
    topic = "shop.public.orders"
    await harness.broker.create_topic(topic, partitions)
    row = json.loads(whole_change("c", None, {"id": 1}, 10, table="orders"))
    row["payload"]["source"]["connector"] = "of another kind"
    harness.broker.append(topic, json.dumps(row).encode(), key({"id": 1}))
    row["payload"] |= {"op": "t", "after": None}
    async with running(harness.task()):
        await eventually(lambda: bool(harness.rows("shop_public_orders")))
        harness.broker.append(topic, json.dumps(row).encode(), None)
        await eventually(lambda: harness.failures or not harness.rows("shop_public_orders"))
    assert ["has 2 partitions" in str(error) for error in harness.failures] == [True] * (partitions - 1)


async def two_years(harness: Harness) -> None:
    """Create the topics of two source tables with equal columns and one row each."""
    for number, table in enumerate(("orders_2024", "orders_2025")):
        await harness.broker.create_topic(f"shop.public.{table}")
        row = whole_change("c", None, {"id": number}, 10 + number, table=table)
        harness.broker.append(f"shop.public.{table}", row, key({"id": number}))


def truncated(columns: dict[str, Any], lsn: int, table: str) -> bytes:
    document = json.loads(whole_change("t", None, columns, lsn, table=table))
    document["payload"]["after"] = None
    return json.dumps(document).encode()


async def test_a_topic_that_a_transform_moves_out_of_the_namespace_stops_the_task(harness: Harness) -> None:
    """The task fails before it writes or commits a record whose routed topic contains a path separator."""
    harness.insert(1, 10)
    router = "org.apache.kafka.connect.transforms.RegexRouter"
    moved = {
        "transforms": "m",
        "transforms.m.type": router,
        "transforms.m.regex": ".*",
        "transforms.m.replacement": "../x",
    }
    async with running(harness.task(transforms=chain(moved))):
        await eventually(lambda: bool(harness.failures))
    assert "contains /" in str(harness.failures[0])
    assert harness.offset() == 0
