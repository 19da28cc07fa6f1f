"""Cassandra's recordings through the steps of a task: decoded, batched, joined with stored rows, merged into the lake.

The tables must equal the writes applied without a lake; ``test_recordings_cassandra.py`` compares those with the dump.
"""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.fix_spark import Warehouse
from support.task.task_queues import TaskQueues

from headrace.cassandra.cell_writes import CassandraTable, Key
from headrace.cassandra.decoder import CassandraDecoder
from headrace.converters.conversion import converting_decoder
from headrace.core.batch.batch import BatchPolicy
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.record_decoder import Decoder
from headrace.core.model.arrow_columns import build_array
from headrace.core.model.schema import Schema
from headrace.ports import Commit, Lakehouse, TableOptions, TopicPartition
from headrace.runtime.pipeline.versioned_writes_pipeline import VersionedWritesPipeline
from headrace_dev.memory import MemoryLakehouse

FOLDER = Path(__file__).parent.parent / "fixtures" / "cassandra"
NOW = 1_795_247_440_000_000
FORMS = ("noschemas", "schemas")
UNTOLD = {("noschemas", "types")}
"""Without schemas a NaN that comes before every number looks like text, so the order of events counts."""
TABLES = ("coll", "kv", "onlypk", "orders", "simple", "types", "udts")


@dataclass(frozen=True)
class Recorded:
    """One record of a recording."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


@cache
def records(form: str, table: str) -> Sequence[Recorded]:
    path = FOLDER / f"cassandra-{form}.jsonl"
    text = path.read_bytes() if path.exists() else lzma.decompress(path.with_suffix(".jsonl.xz").read_bytes())
    found = [json.loads(line) for line in text.splitlines()]
    return [
        Recorded(each["topic"], 0, each["offset"], each["timestamp"], each["key"].encode(), each["value"].encode())
        for each in found
        if each["topic"].endswith(f".{table}")
    ]


def decoder(form: str, topic: str) -> Decoder:
    return converting_decoder(
        topic,
        EnvelopeOptions(key_schemas=form == "schemas", value_schemas=form == "schemas"),
        sources={"cassandra": CassandraDecoder},
    )


def replay(form: str, delivered: Sequence[Recorded], chance: random.Random, lakehouse: Lakehouse, name: str) -> None:
    """Write the records into the lake, in chunks and batches of any size, with restarts between them."""
    topic = delivered[0].topic
    reader, batches = decoder(form, topic), TaskQueues(BatchPolicy(linger=0))

    def pipeline() -> VersionedWritesPipeline:
        return VersionedWritesPipeline(topic, lakehouse.table("hr", name, TableOptions()), 10**15, lambda: NOW)

    current, rest = pipeline(), list(delivered)
    while rest:
        size = chance.randint(1, 9)
        chunk, rest = rest[:size], rest[size:]
        decoded = reader.decode(chunk)
        assert decoded.errant == []
        batches.add((topic, 0), 0, [("t", piece) for piece in decoded.events], 0.0)
        while (chance.random() < 0.7 or not rest) and (batch := batches.next("t", 1.0)) is not None:
            current = pipeline() if chance.random() < 0.3 else current
            current.write(batch.content, Commit(batch.id, "c", "g", {TopicPartition(topic, 0): 1}))
            batches.complete(batch)


def wanted(form: str, delivered: Sequence[Recorded]) -> tuple[dict[Key, dict[str, Any]], Mapping[str, Schema]]:
    """The result of the writes without a lake, and the columns' schemas."""
    model, schemas = CassandraTable(), {}
    for piece in decoder(form, delivered[0].topic).decode(delivered).events:
        for write in piece.writes:
            model.apply(write)
        schemas |= {member.name: member.schema for member in piece.fields}
    return model.visible(NOW), schemas


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("seed", range(6))
def test_the_lake_has_what_the_writes_give(form: str, table: str, seed: int) -> None:
    """In any order, with any part repeated, in batches of any size, across restarts."""
    chance = random.Random(seed)
    delivered = list(records(form, table))
    if seed and (form, table) not in UNTOLD:
        delivered += chance.choices(delivered, k=len(delivered) // 2)
        chance.shuffle(delivered)
    lakehouse = MemoryLakehouse()
    replay(form, delivered, chance, lakehouse, table)
    compare(form, delivered, lakehouse.table("hr", table, TableOptions()).to_arrow())


@pytest.mark.spark
@pytest.mark.parametrize("table", ["kv", "coll"])
def test_the_same_on_spark(warehouse: Warehouse, unique: Callable[[str], str], table: str) -> None:
    """Out of order, twice, in several batches: ranges of rows, and collections with their versions."""
    chance, name = random.Random(1), unique(table)
    delivered = list(records("schemas", table)) * 2
    chance.shuffle(delivered)
    replay("schemas", delivered, chance, warehouse.lakehouse, name)
    compare("schemas", delivered, warehouse.read("hr", name))


def compare(form: str, delivered: Sequence[Recorded], lake: pa.Table) -> None:
    """Fail unless the lake equals the result of the writes, cell by cell."""
    rows, schemas = wanted(form, delivered)
    key = json.loads(delivered[0].key)
    keys = list(key.get("payload", key))
    found = dict(zip(_keys(lake, keys), lake.to_pylist(), strict=True))
    assert len(found) == len(lake) == len(rows)
    for values, cells in rows.items():
        row = found[tuple(_stored(schemas[name], value) for name, value in zip(keys, values, strict=True))]
        for name in schemas.keys() - set(keys):
            assert _same(row.get(name), _stored(schemas[name], cells.get(name))), name


def _keys(lake: pa.Table, names: Sequence[str]) -> list[Key]:
    return list(zip(*(lake[name].to_pylist() for name in names), strict=True))


def _same(found: Any, wanted: Any) -> bool:
    return bool(found == wanted) or (found != found and wanted != wanted)  # NaN


def _stored(schema: Schema, value: Any) -> Any:
    return build_array(schema, [value])[0].as_py()
