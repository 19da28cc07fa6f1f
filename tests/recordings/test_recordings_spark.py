"""Every recording once through the real parts: a broker, the worker as a process, Spark, tables on disk.

Variant ``a`` and those of other sources than PostgreSQL have all of their tables, the others those in which variants
differ: types, keys and omitted cells. Those of Oracle, SQL Server and MySQL are constructed (``tests/fixtures``). A
second connector writes two variants into Delta tables as well. The worker runs all connectors at the same time, and is
killed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from recordings.avro import Registered, as_avro
from recordings.comparison import Row, compared_tables, expectation, problems, records_of, rows_of
from recordings.images import key_fields
from recordings.records import AVRO, MARIADB, VARIANTS, DumpedTable, Variant, publish, topic_of, variant
from recordings.replay import connector_properties
from support.lake.delta_tables import delta_rows, delta_table
from support.records.serialized import FORMATS, records, rows

from headrace_dev.demo.compare import data_rows, lake_table
from headrace_dev.kafka import Kafka
from headrace_dev.registry import Registry
from headrace_dev.server import wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.timeout(1800)]
VARYING = ("public.all_types", "public.array_types", "public.toast_t", "public.toast_life", "public.key_num")
OTHERS = (*MARIADB, "ora-bytes", "orans-bytes", "sqlserver", "mysqlns")
SHORT_FORM = ("a", "b", "my", "ora-bytes", "sqlserver")
"""One of each source: `make soak` has the others, which ``test_recordings_memory.py`` has as well."""
MINUTES = 10
KEPT = {"retention.ms": "-1"}
"""The records have the times of their recordings. A broker's first check would remove them before they are read."""
ON_DELTA = ("b", "c2")
KILLED = "b"


@pytest.fixture(scope="module")
def worker(stack_kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """One worker for all recordings."""
    folder = tmp_path_factory.mktemp("recordings")
    names = {
        **SHORT_LIVED,
        "group.id": "recordings",
        "config.storage.topic": "recordings-configs",
        "status.storage.topic": "recordings-status",
    }
    worker = Worker(folder, stack_kafka, folder / "warehouse", properties=names)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture(scope="module")
def connectors(worker: Worker, stack_kafka: Kafka, request: pytest.FixtureRequest) -> None:
    """One connector for each requested recording, another one for Delta tables; the worker is killed among them."""
    params = (item.callspec.params for item in request.session.items if hasattr(item, "callspec"))
    names = {values["recording"] for values in params if "recording" in values}
    for name in sorted(names, key=lambda name: name != KILLED):
        of = variant(name)
        recorded = {topic_of(table, of): records_of(table, of) for table in _tables(of)}
        for topic, changes in recorded.items():
            stack_kafka.create_topic(topic, config=KEPT)
            publish(stack_kafka.bootstrap_servers, changes[: len(changes) // 2])
        for table_format in _formats(name):
            worker.put_connector(_connector(of, table_format), _config(of, _tables(of), table_format))
        if name == KILLED:
            wait_until(lambda: list(worker.warehouse.glob("delta/*/_delta_log/*1.json")), "rows", 60 * MINUTES)
            worker.kill()  # among its first batches; it has the other records to read when it starts again
        for changes in recorded.values():
            publish(stack_kafka.bootstrap_servers, changes[len(changes) // 2 :])
        if name == KILLED:
            worker.start()


@pytest.mark.parametrize(
    "recording",
    [pytest.param(name, marks=[] if name in SHORT_FORM else pytest.mark.long) for name in (*VARIANTS, *OTHERS)],
)
@pytest.mark.usefixtures("connectors")
def test_recording(recording: str, worker: Worker) -> None:
    """The tables in the lake equal the dump, except for the named differences."""
    of = variant(recording)
    for table_format in _formats(recording):
        connector = _connector(of, table_format)
        wait_until(partial(_reached, worker, connector, _ends(of)), "all records in the lake", 60 * MINUTES)
        lines = {table.name: _problems(worker.warehouse, table, of, table_format) for table in _tables(of)}
        assert {table: problems for table, problems in lines.items() if problems} == {}


def test_avro(worker: Worker, stack_kafka: Kafka, stack_registry: Registry) -> None:
    """Debezium with Avro converters: the schemas are in a registry, and the tables are the same."""
    of = variant(AVRO)
    tables = [table for table in compared_tables(of) if table.name in ("public.all_types", "public.toast_life")]
    registered = Registered(stack_registry, of.recording_file.parent)
    for table in tables:
        stack_kafka.create_topic(topic_of(table, of), config=KEPT)
        records = [registered.record(as_avro(each)) for each in records_of(table, of)]
        publish(stack_kafka.bootstrap_servers, records)
    converters = {
        f"{side}.converter{option}": value
        for side in ("key", "value")
        for option, value in (
            ("", "io.confluent.connect.avro.AvroConverter"),
            (".schema.registry.url", stack_registry.confluent_url),
        )
    }
    without = {name: value for name, value in _config(of, tables, "iceberg").items() if ".converter" not in name}
    connector = f"recording-{of.name}"
    ends = {(topic_of(table, of), 0): len(records_of(table, of)) for table in tables}
    worker.put_connector(connector, without | converters)
    wait_until(lambda: _reached(worker, connector, ends), "all records in the lake", 60 * MINUTES)
    found = {table.name: _problems(worker.warehouse, table, of, "iceberg") for table in tables}
    assert {table: lines for table, lines in found.items() if lines} == {}


def test_what_real_serializers_write(worker: Worker, stack_kafka: Kafka, stack_registry: Registry) -> None:
    """One table's changes in each format of a registry give equal tables, types included."""
    client = SchemaRegistryClient.new_client({"url": stack_registry.confluent_url})
    ends = {}
    for name, converter, serializers in FORMATS:
        topic = f"serialized.{name}"
        stack_kafka.create_topic(topic, config=KEPT)
        sent = records(topic, serializers(client))
        publish(stack_kafka.bootstrap_servers, sent)
        ends[topic] = {(topic, 0): len(sent)}
        config = {"connector.class": "LakehouseSink", "topics": topic, "tasks.max": "1"}
        for side in ("key", "value"):
            config[f"{side}.converter"] = converter
            config[f"{side}.converter.schema.registry.url"] = stack_registry.confluent_url
        worker.put_connector(topic, config)
    wait_until(lambda: all(_reached(worker, topic, end) for topic, end in ends.items()), "all records", 60 * MINUTES)
    tables = {topic: lake_table(worker.warehouse / "headrace" / topic.replace(".", "_")) for topic in ends}
    found = {topic: sorted(data_rows(table), key=itemgetter("id")) for topic, table in tables.items() if table}
    assert found == dict.fromkeys(ends, rows())
    assert len({str(table.schema().as_struct()) for table in tables.values() if table}) == 1


def _formats(recording: str) -> Sequence[str]:
    return ("iceberg", "delta") if recording in ON_DELTA else ("iceberg",)


def _tables(of: Variant) -> Sequence[DumpedTable]:
    return [table for table in compared_tables(of) if of.name in ("a", *OTHERS) or table.name in VARYING]


def _connector(of: Variant, table_format: str) -> str:
    return f"recording-{of.name}-{table_format}"


def _ends(of: Variant) -> dict[tuple[str, int], int]:
    return {(topic_of(table, of), 0): len(records_of(table, of)) for table in _tables(of)}


def _reached(worker: Worker, connector: str, ends: dict[tuple[str, int], int]) -> bool:
    states = worker.states(connector)
    assert "FAILED" not in states, worker.status(connector)
    return worker.committed(connector) == ends


def _config(of: Variant, tables: Sequence[DumpedTable], table_format: str) -> dict[str, str]:
    return {
        "table.format": table_format,
        "table.namespace": table_format,
        "connector.class": "LakehouseSink",
        "topics": ",".join(topic_of(table, of) for table in tables),
        "tasks.max": "1",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": str(of.key_schemas).lower(),
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": str(not of.bare).lower(),
        "consumer.override.session.timeout.ms": "10000",  # the group's session timeout for the killed worker
        "errors.tolerance": "all",  # two rows of c1 are refused: differences.REFUSED
        **connector_properties(of),
    }


def _problems(warehouse: Path, table: DumpedTable, of: Variant, table_format: str) -> list[str]:
    content = _content(warehouse / table_format / topic_of(table, of).replace(".", "_"), table_format)
    if content is None:
        return ["there is no such table"]
    fields = key_fields(records_of(table, of), of)
    want = expectation(table, of, fields, typed=not of.bare)
    blurred = _blurred(content.schema) if table_format == "iceberg" else frozenset()
    have = {key: _blur(row, blurred) for key, row in rows_of(content, fields).items()}
    want = replace(want, rows={key: _blur(row, blurred) for key, row in want.rows.items()})
    return problems(want, have, reselected=False)


def _content(folder: Path, table_format: str) -> pa.Table | None:
    if table_format == "delta":
        stored = delta_table(folder)
        return None if stored is None else delta_rows(stored)
    stored = lake_table(folder)
    return None if stored is None else stored.scan().to_arrow()


def _blurred(schema: pa.Schema) -> frozenset[str]:
    """Columns of which PyIceberg 0.12 reads a null as an empty list: its lists of structs lose their validity."""
    lists = (field for field in schema if pa.types.is_list(field.type) or pa.types.is_large_list(field.type))
    return frozenset(field.name for field in lists if pa.types.is_struct(field.type.value_type))


def _blur(row: Row, names: frozenset[str]) -> Row:
    return {name: None if name in names and cell == [] else cell for name, cell in row.items()}
