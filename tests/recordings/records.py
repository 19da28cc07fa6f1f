"""Recordings of a real Debezium connector as Kafka records: by topic, split into batches, delivered twice, published.

The recordings are in ``tests/fixtures``, one folder per source; its README describes each variant. A ``Variant`` is the
configuration: the handling modes of the connector, and whether keys and values have schemas.
"""

from __future__ import annotations

import base64
import itertools
import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from recordings.constructed import TEXTS, in_binary_mode

FIXTURES = Path(__file__).parent.parent / "fixtures"
POSTGRES = FIXTURES / "postgres"

VARIANTS = ("a", "b", "b36", "c1", "c2", "c3", "c4", "c5")
"""The recordings of PostgreSQL."""
AVRO = "d"
"""The recording of PostgreSQL whose converters wrote Avro."""
MARIADB = ("my", "myns")
"""The recordings of MariaDB: with schemas and without."""
ORACLE = tuple(f"{name}-{mode}" for name in ("ora", "orans") for mode in ("bytes", *TEXTS))
"""The constructed recordings of Oracle: with schemas and without, in every ``binary.handling.mode``."""
SQL_SERVER = ("sqlserver", "sqlserverns")
"""The constructed recordings of SQL Server: with schemas and without."""
MYSQL = ("mysql", "mysqlns")
"""The constructed recordings of MySQL: with schemas and without."""
PARTITIONED = ("p", "pns")
"""The recordings of PostgreSQL whose topics have several partitions: with schemas and without."""
ALL = (*VARIANTS, *MARIADB, *ORACLE, *SQL_SERVER, *MYSQL)

_CONSTRUCTED = ("oracle", "sqlserver", "mysql")
DEFAULT_PLACEHOLDER = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True)
class RecordedRecord:
    """One record of a recording; implements ``headrace.ports.Record``."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """The configuration of the connector of one recording. ``bare`` values have no schema."""

    name: str
    prefix: str
    decimals: str
    times: str
    binary: str
    hstore: str
    intervals: str
    unknown_types: bool
    adjusted_names: bool
    placeholder: str
    key_schemas: bool
    bare: bool
    release: str
    source: str = "postgres"
    lob_enabled: bool = False

    @property
    def recording_file(self) -> Path:
        """The records of every topic of this variant's connector."""
        name = f"{self.name.split('-')[0]}.constructed" if self.source in _CONSTRUCTED else self.name
        name = "d-avro" if name == AVRO else name
        return FIXTURES / self.source / "recordings" / f"{name}.jsonl.xz"

    @property
    def dump_file(self) -> Path:
        """The final state of the database that this variant recorded."""
        inventory2 = self.source == "postgres" and (self.release == "3.6" or self.name == AVRO)
        return FIXTURES / self.source / ("dump-inventory2.json" if inventory2 else "dump.json")


@dataclass(frozen=True, slots=True)
class DumpedTable:
    """One table of a dump: rows of the database's own text, ``types`` by column name in column order.

    ``schema`` is the part of a topic's name before the table: for MariaDB the database.
    """

    name: str
    schema: str
    table: str
    key: tuple[str, ...]
    types: Mapping[str, str]
    rows: Sequence[Mapping[str, str | None]]


@cache
def variant(name: str) -> Variant:
    """The configuration of the recording called ``name``."""
    if name in ORACLE:
        return _oracle(name)
    with_defaults = {
        "mariadb": (*MARIADB, "mymin"),
        "sqlserver": SQL_SERVER,
        "mysql": MYSQL,
        "postgres-partitions": PARTITIONED,
    }
    for source, names in with_defaults.items():
        if name in names:
            return _with_defaults(name, source, schemas=name == names[0])
    return _postgres(name)


def _with_defaults(name: str, source: str, *, schemas: bool) -> Variant:
    """The connector has its defaults; only the converters differ."""
    return Variant(
        name=name,
        prefix=name,
        decimals="precise",
        times="adaptive" if source in ("sqlserver", "postgres-partitions") else "adaptive_time_microseconds",
        binary="bytes",
        hstore="json",
        intervals="numeric",
        unknown_types=False,
        adjusted_names=False,
        placeholder=DEFAULT_PLACEHOLDER,
        key_schemas=schemas,
        bare=not schemas,
        release="3.5",
        source=source,
    )


def _oracle(name: str) -> Variant:
    """Constructed: the connector reads LOBs and has its defaults except for the binary mode, and its own topics."""
    side, mode = name.split("-", 1)
    return Variant(
        name=name,
        prefix=name,
        decimals="precise",
        times="adaptive",
        binary=mode,
        hstore="json",
        intervals="numeric",
        unknown_types=False,
        adjusted_names=False,
        placeholder=DEFAULT_PLACEHOLDER,
        key_schemas=side == "ora",
        bare=side == "orans",
        release="3.6",
        source="oracle",
        lob_enabled=True,
    )


def _postgres(name: str) -> Variant:
    config = json.loads((POSTGRES / "configs" / f"{name}.json").read_text())["config"]
    return Variant(
        name=name,
        prefix=config["topic.prefix"],
        decimals=config.get("decimal.handling.mode", "precise"),
        times=config.get("time.precision.mode", "adaptive"),
        binary=config.get("binary.handling.mode", "bytes"),
        hstore=config.get("hstore.handling.mode", "json"),
        intervals=config.get("interval.handling.mode", "numeric"),
        unknown_types=config.get("include.unknown.datatypes") == "true",
        adjusted_names=config.get("field.name.adjustment.mode") == "avro",
        placeholder=config.get("unavailable.value.placeholder", DEFAULT_PLACEHOLDER),
        key_schemas=config.get("key.converter.schemas.enable", "true") == "true",
        bare=config.get("value.converter.schemas.enable", "true") == "false",
        release="3.6" if "3.6" in config.get("connector.plugin.version", "") else "3.7",
    )


@cache
def recording(name: str) -> Mapping[str, tuple[RecordedRecord, ...]]:
    """The records of one variant by topic, partition by partition, each in order of its offsets."""
    topics: dict[str, list[RecordedRecord]] = {}
    of = variant(name)
    with lzma.open(of.recording_file, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = _record(json.loads(line))
            if of.source == "oracle":
                value, topic = in_binary_mode(record.value, of.binary), record.topic.partition(".")[2]
                record = replace(record, topic=f"{of.prefix}.{topic}", value=value)
            elif name == AVRO:
                from recordings.avro import as_json  # it reads records, too

                record = as_json(record, of.recording_file.parent)
            topics.setdefault(record.topic, []).append(record)
    return {topic: tuple(records) for topic, records in topics.items()}


@cache
def dump(path: Path) -> Mapping[str, DumpedTable]:
    """The tables of a dump by ``schema.table``."""
    tables = json.loads(path.read_text(encoding="utf-8"))
    if path.parent.name == "mariadb":
        found = [_mariadb_table(name, document) for name, document in tables.items() if not name.startswith("_")]
        return {table.name: table for table in found}
    return {name: _table(name, document) for name, document in tables.items()}


def topic_of(table: DumpedTable, of: Variant) -> str:
    """The topic that Debezium gives to ``table``: characters that Kafka does not allow become ``_``."""
    return f"{of.prefix}.{_legal(table.schema)}.{_legal(table.table)}"


def batches(records: Sequence[RecordedRecord], cuts: Sequence[int]) -> Iterator[Sequence[RecordedRecord]]:
    """``records`` split before each index of ``cuts``; no part is empty."""
    edges = sorted({0, len(records), *(cut for cut in cuts if 0 < cut < len(records))})
    for begin, end in itertools.pairwise(edges):
        yield records[begin:end]


def delivered_again(
    records: Sequence[RecordedRecord], begin: int, end: int
) -> tuple[Sequence[RecordedRecord], Sequence[RecordedRecord]]:
    """The records for a consumer that loses its offset: all before ``end``, then all from ``begin`` again."""
    return records[:end], records[begin:]


def publish(bootstrap: str, records: Sequence[RecordedRecord]) -> None:
    """Send ``records`` to a broker, one partition per topic, so that offsets are the recorded ones."""
    from confluent_kafka import Producer  # only the stack tests have a broker

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    failures: list[str] = []
    for record in records:
        producer.produce(
            record.topic,
            key=record.key,
            value=record.value,
            partition=record.partition,
            timestamp=record.timestamp,
            headers=list(record.headers),
            on_delivery=lambda error, message: failures.append(f"{message.topic()}: {error}") if error else None,
        )
        producer.poll(0)
    left = producer.flush(60)
    if left or failures:
        raise RuntimeError(f"{left} records not sent, {len(failures)} refused: {failures[:3]}")


def _record(document: dict[str, Any]) -> RecordedRecord:
    return RecordedRecord(
        topic=document["topic"],
        partition=document["partition"],
        offset=document["offset"],
        timestamp=document["timestamp"],
        key=_bytes(document, "key"),
        value=_bytes(document, "value"),
        headers=tuple((name, _header(value)) for name, value in document["headers"]),
    )


def _bytes(document: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_b64" in document:
        return base64.b64decode(document[f"{name}_b64"])
    text = document[name]
    return None if text is None else text.encode()


def _header(value: Any) -> bytes:
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else str(value).encode()


def _table(name: str, document: dict[str, Any]) -> DumpedTable:
    return DumpedTable(
        name=name,
        schema=document["schema"],
        table=document["table"],
        key=tuple(document["primary_key"]),
        types={column["name"]: column["type"] for column in document["columns"]},
        rows=tuple(document["rows"]),
    )


def _mariadb_table(name: str, document: dict[str, Any]) -> DumpedTable:
    columns = document["columns"]
    return DumpedTable(
        name=f"inv.{name}",
        schema="inv",
        table=name,
        key=tuple(column["name"] for column in columns if column["key"] == "PRI"),
        types={column["name"]: column["type"] for column in columns},
        rows=tuple(document["rows"]),
    )


def _legal(name: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name)
