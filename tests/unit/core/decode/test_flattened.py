"""Flattened records: the metadata of an event comes from added fields or from headers, or is missing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.decode.flattened import NO_ORDER, MetadataNames, is_flattened, plain_is_flattened
from headrace.core.decode.topic_tables import TABLE_UNKNOWN
from headrace.core.model.errors import Stage
from headrace.core.model.events import NO_POSITION, CellState, Changes, Operation, TableId
from headrace.core.model.schema import Field, Schema

LSN = b"00000.%020d"
TYPES = {int: "int64", str: "string", bool: "boolean"}


@dataclass
class Record:
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    offset: int = 0
    partition: int = 0
    timestamp: int = 7


def record(row: dict[str, Any] | None, key: int = 1, **headers: Any) -> Record:
    """Return a record without schemas, with headers as JsonConverter writes them."""
    value = None if row is None else json.dumps({"id": key} | row).encode()
    return Record(b'{"id":%d}' % key, value, [(name, json.dumps(v).encode()) for name, v in headers.items()])


def decode(*records: Record, **options: Any) -> Decoded:
    for offset, each in enumerate(records):
        each.offset = offset
    return TopicDecoder("t", EnvelopeOptions(False, False, **options)).decode(records)


def only(*records: Record, **options: Any) -> Changes:
    decoded = decode(*records, **options)
    assert decoded.errant == []
    (piece,) = decoded.events
    assert isinstance(piece, Changes)
    return piece


def rows(changes: Changes) -> list[dict[str, Any]]:
    names = [column.name for column in changes.columns]
    cells = zip(*(column.values.to_pylist() for column in changes.columns), strict=True)
    return [dict(zip(names, row, strict=True)) for row in cells]


def test_a_row_without_metadata_is_an_update_without_position() -> None:
    """Without added fields and headers, the decoder returns an update of the topic's table."""
    changes = only(record({"a": "x"}))
    assert changes.operation.tolist() == [Operation.UPDATE]
    assert changes.version.position.tolist() == [NO_POSITION]
    assert changes.table == TableId("", "", "", "t")
    assert changes.version.source_time.tolist() == [7000]


@pytest.mark.parametrize(("op", "operation"), [("c", Operation.CREATE), ("u", Operation.UPDATE), ("r", Operation.READ)])
def test_operation_and_position_of_added_fields_and_headers(op: str, operation: Operation) -> None:
    """The decoder reads them with and without ``source_`` in the name, and makes no columns of them."""
    for changes in (
        only(record({"a": "x", "__op": op, "__lsn": 7})),
        only(record({"a": "x", "__op": op, "__source_lsn": 7})),
        only(record({"a": "x"}, __op=op, __lsn=7)),
        only(record({"a": "x"}, __op={"schema": {}, "payload": op}, __source_lsn="7")),
    ):
        assert changes.operation.tolist() == [operation]
        assert changes.version.position.tolist() == [NO_POSITION if op == "r" else LSN % 7]
        assert rows(changes) == [{"id": 1, "a": "x"}]


def test_headers_of_the_simple_header_converter() -> None:
    """The decoder reads headers of plain text, which is not JSON."""
    plain = record({"a": "x"})
    plain.headers = [("__op", b"c"), ("__lsn", b"7"), ("__table", b"orders"), ("__db", b"")]
    changes = only(plain)
    assert (changes.operation.tolist(), changes.version.position.tolist()) == ([Operation.CREATE], [LSN % 7])
    assert changes.table == TableId("", "", "", "orders")


def test_a_position_that_may_be_of_a_read_is_ignored() -> None:
    """Without op or snapshot, the position may be that of a read, which would hide later changes."""
    assert only(record({"__lsn": 7})).version.position.tolist() == [NO_POSITION]
    streamed = only(record({"__lsn": 7, "__snapshot": "false"}))
    assert (streamed.operation.tolist(), streamed.version.position.tolist()) == ([Operation.UPDATE], [LSN % 7])
    snapshot = only(record({"__lsn": 7, "__source_snapshot": "last"}))
    assert (snapshot.operation.tolist(), snapshot.version.position.tolist()) == ([Operation.READ], [NO_POSITION])


def test_records_without_an_order_are_noted_once() -> None:
    """The note names the missing fields to the operator; reads and tombstones never have a position."""
    decoder = TopicDecoder("t", EnvelopeOptions(False, False))
    ordered = [record({"__op": "r", "__lsn": 1}), record({"__op": "c", "__lsn": 2}), record(None)]
    assert [decoder.decode(records).notes for records in (ordered, [record({})], [record({})])] == [[], [NO_ORDER], []]


def test_positions_of_other_connectors() -> None:
    """The decoder infers the connector from the fields of a position; incomplete fields are no position."""
    binlog = {"__op": "u", "__file": "b.000002", "__pos": 4, "__row": 1}
    assert only(record(binlog)).version.position.tolist() == [b"00000.0000000002.%020d.0000000001" % 4]
    assert only(record({"__op": "u", "__file": "b.000002", "__pos": 4})).version.position.tolist() == [NO_POSITION]
    oracle = {"__op": "u", "__source_commit_scn": "12", "__source_txSeq": 1, "__connector": "oracle"}
    assert only(record(oracle)).version.position.tolist() == [b"00000.%038d.%020d" % (12, 1)]


def test_one_record_of_a_run_identifies_the_connector() -> None:
    """The decoder finds the connector also if the first record of the run has no position."""
    changes = only(record({"__op": "r", "__lsn": None}), record({"__op": "u", "__lsn": 7}))
    assert changes.version.position.tolist() == [NO_POSITION, LSN % 7]


@pytest.mark.parametrize("deleted", [{"__deleted": "true"}, {"__deleted": True}, {"__op": "d"}])
def test_rewritten_deletes(deleted: dict[str, Any]) -> None:
    """A rewritten delete has its key and no other cells; the decoder keeps the tombstone after it."""
    changes = only(record({"a": "x", "__deleted": "false"}), record({"a": "y", **deleted}), record(None))
    assert changes.operation.tolist() == [Operation.UPDATE, Operation.DELETE, Operation.TOMBSTONE]
    assert rows(changes)[1:] == [{"id": 1, "a": None}] * 2


def test_deletes_with_a_null_value() -> None:
    """A null value without headers is a tombstone; with headers it is a delete with their position."""
    changes = only(record({"a": "x"}), record(None), record(None, __op="d", __lsn=7))
    assert changes.operation.tolist() == [Operation.UPDATE, Operation.TOMBSTONE, Operation.DELETE]
    assert changes.version.position.tolist() == [NO_POSITION, NO_POSITION, LSN % 7]


def test_the_insert_of_a_key_change_is_identified_by_its_header() -> None:
    """Its unavailable cells refer to the row of the old key, even without an op."""
    into = record({"a": "__debezium_unavailable_value"}, key=2)
    into.headers = [("__debezium.oldkey", b'{"id":1}')]
    changes = only(into)
    assert (changes.operation.tolist(), changes.key_changes.old_keys) == ([Operation.CREATE], {0: "=1"})
    states = changes.columns[1].states
    assert states is not None
    assert states.tolist() == [CellState.UNCHANGED]


def test_other_prefixes_of_added_fields() -> None:
    """A field without the prefix, or with an unknown name after it, is a column of the row."""
    names = MetadataNames("meta_", "h_")
    changes = only(record({"meta_op": "c", "meta_lsn": 7, "__op": "u", "meta_color": "x"}, h_ts_ms=1), added=names)
    assert (changes.operation.tolist(), changes.version.position.tolist()) == ([Operation.CREATE], [LSN % 7])
    assert rows(changes) == [{"id": 1, "__op": "u", "meta_color": "x"}]


def test_the_time_of_the_source() -> None:
    """The source time is that of the source database in microseconds, not that of the connector."""
    changes = only(record({"__source_ts_ms": 5, "__ts_ms": 9}))
    assert changes.version.source_time.tolist() == [5000]


@pytest.mark.parametrize("bad", [{"__lsn": "x", "__op": "u"}, {"op": "c", "source": {}, "after": {"id": 1}}])
def test_only_the_bad_record_is_refused(bad: dict[str, Any]) -> None:
    """The decoder refuses a field with an invalid value and an envelope among rows, and keeps the other records."""
    decoded = decode(record({"a": "x"}), record(bad), record({"a": "y"}))
    (errant,) = decoded.errant
    assert (errant.index, errant.stage) == (1, Stage.TASK_PUT)
    assert sum(len(piece) for piece in decoded.events if isinstance(piece, Changes)) == 2


def test_only_the_record_with_invalid_json_is_refused() -> None:
    """The decoder keeps the other records of the run."""
    decoded = decode(record({"a": "x"}), Record(b'{"id":1}', b"{"), record(None), record({"a": "y"}))
    assert [(errant.index, errant.stage) for errant in decoded.errant] == [(1, Stage.VALUE_CONVERTER)]
    assert sum(len(piece) for piece in decoded.events if isinstance(piece, Changes)) == 3


def test_a_topic_that_begins_with_a_tombstone() -> None:
    """The first value shows whether the topic is flattened, in the chunk of the tombstone or in a later one."""
    decoder = TopicDecoder("t", EnvelopeOptions(False, False))
    (first,) = decoder.decode([record(None)]).events
    assert isinstance(first, Changes)
    assert first.operation.tolist() == [Operation.TOMBSTONE]
    (second,) = decoder.decode([record({"a": "x"})]).events
    assert isinstance(second, Changes)
    assert rows(second) == [{"id": 1, "a": "x"}]


def with_schema(row: dict[str, Any], name: str) -> Record:
    fields = [{"type": TYPES[type(value)], "optional": True, "field": column} for column, value in row.items()]
    schema = {"type": "struct", "name": name, "fields": fields}
    return Record(None, json.dumps({"schema": schema, "payload": row}, separators=(",", ":")).encode())


def test_rows_with_schemas() -> None:
    """Columns have the types of the schema, and the added fields are no columns."""
    flat = with_schema({"id": 1, "a": "x", "__deleted": "false", "__op": "c", "__lsn": 7}, "shop.public.items.Value")
    flat.key = with_schema({"id": 1}, "shop.public.items.Key").value
    (piece,) = TopicDecoder("t", EnvelopeOptions()).decode([flat]).events
    assert isinstance(piece, Changes)
    assert [(column.name, column.schema.type) for column in piece.columns] == [("id", "int64"), ("a", "string")]
    assert piece.version.position.tolist() == [LSN % 7]


def test_schemas_of_envelopes_and_of_flattened_rows() -> None:
    """A schema is an envelope by its name or its field op; a row may have a column of that name."""
    op = (Field("op", Schema("string")),)
    assert not is_flattened(Schema("struct", name="shop.public.items.Envelope", fields=op))
    assert not is_flattened(Schema("struct", fields=op))
    assert is_flattened(Schema("struct", name="shop.public.items.Value", fields=op))
    assert is_flattened(Schema("struct", name="Value", fields=op))
    assert is_flattened(Schema("struct"))
    assert not is_flattened(Schema("string"))


@pytest.mark.parametrize(
    ("value", "flattened"),
    [
        ('{"op":"c","source":{},"after":{}}', False),
        ('{"id":1,"op":"c"}', True),
        ('{"ts_ms":1}', None),
        ('{"status":"BEGIN","id":"1","event_count":null,"data_collections":null,"ts_ms":1}', None),
        ('{"source":{},"ts_ms":1,"databaseName":"d","schemaName":null,"ddl":"x","tableChanges":[]}', None),
        ("{}", None),
        ("7", None),
        ("{", None),
    ],
)
def test_values_without_a_schema_are_envelopes_or_flattened_rows(value: str, flattened: bool | None) -> None:
    """A value that is neither, such as a heartbeat, is None: it only advances the offset."""
    assert plain_is_flattened(value.encode()) is flattened


SHOP = {"__op": "c", "__lsn": 7, "__name": "shop", "__db": "shop", "__schema": "public", "__table": "items"}
OF_SHOP = TableId("shop", "shop", "public", "items")


@pytest.mark.parametrize("named", [{}, {"__table": "items"}, {"__db": "shop", "__table": "items"}])
@pytest.mark.parametrize("apart", [False, True])
def test_a_delete_without_a_row_is_of_the_only_table_of_its_topic(named: dict[str, Any], apart: bool) -> None:
    """``delete-to-tombstone``: a null has only headers, which may name less than the fields of the topic's rows."""
    decoder = TopicDecoder("shop.public.items", EnvelopeOptions(False, False, tables_apart=apart))
    decoder.decode([record({"a": "x"} | SHOP)])
    deleted = record(None, __op="d", __lsn=8, **named)
    deleted.offset = 1
    decoded = decoder.decode([deleted, replace(record({"a": "y"} | SHOP, 2), offset=2)])
    assert (decoded.errant, decoded.messages[1:]) == ([], [])  # one piece, and no InsufficientMetadata
    (changes,) = decoded.events
    assert isinstance(changes, Changes)
    assert (changes.table, changes.operation.tolist()) == (OF_SHOP, [Operation.DELETE, Operation.CREATE])
    assert changes.version.position[0] == LSN % 8


def test_a_delete_whose_headers_name_no_table_is_refused_where_it_may_be_of_several() -> None:
    """Lake tables are named after source tables: such a delete of a topic of two tables could remove a wrong row."""
    others = record({"a": "x"} | SHOP | {"__table": "others"}, 2)
    decoded = decode(record({"a": "x"} | SHOP), others, record(None, __op="d", __lsn=8), tables_apart=True)
    assert [(each.index, str(each.error)) for each in decoded.errant] == [(2, TABLE_UNKNOWN)]
    first = decode(record(None, __op="d", __lsn=8), tables_apart=True)
    assert [(each.index, str(each.error)) for each in first.errant] == [(0, TABLE_UNKNOWN)]


def test_the_position_of_a_delete_with_which_the_reading_begins_is_in_its_headers() -> None:
    """Nothing but a header that the transform added shows that a topic whose first record is a null is flattened."""
    for schemas in (True, False):
        first = record(None, __op="d", __lsn=8)
        if schemas:
            first.key = with_schema({"id": 1}, "shop.public.items.Key").value
        (changes,) = TopicDecoder("t", EnvelopeOptions(schemas, schemas)).decode([first]).events
        assert isinstance(changes, Changes)
        assert (changes.operation.tolist(), changes.version.position.tolist()) == ([Operation.DELETE], [LSN % 8])


def test_rows_and_deletes_that_name_no_table_are_of_one() -> None:
    """The topic's name replaces that of the table in rows and deletes alike."""
    both = only(record({"a": "x", "__op": "c", "__lsn": 7}), record(None, __op="d", __lsn=8))
    assert (both.table, both.operation.tolist()) == (
        TableId("", "", "", "t"),
        [Operation.CREATE, Operation.DELETE],
    )


def test_an_append_only_table_accepts_flattened_records_without_a_key() -> None:
    """An append-only table of all changes gets inserts and rewritten deletes; other modes refuse the records."""
    records = [record({"a": "x", "__op": "c"}), record({"a": "y", "__op": "d", "__deleted": "true"}), record(None)]
    for each in records:
        each.key = None
    decoded = decode(*records, keyless=True)
    assert (decoded.errant, decoded.skipped) == ([], 1)
    (changes,) = decoded.events
    assert isinstance(changes, Changes)
    assert changes.operation.tolist() == [Operation.CREATE, Operation.DELETE]
    assert len(decode(*records).errant) == 3


@pytest.mark.parametrize("behind", [[], [record({"a": "x"} | SHOP, 2)]])
def test_a_delete_that_names_its_table_may_begin_a_partition(behind: list[Record]) -> None:
    """``add.headers=op,source.table``: nothing has to precede it, even if lake tables are named after source tables."""
    decoded = decode(record(None, __op="d", __lsn=8, __table="items"), *behind, tables_apart=True)
    assert decoded.errant == []
    first = decoded.events[0]
    assert isinstance(first, Changes)
    assert (first.table.table, first.operation.tolist()[0]) == ("items", Operation.DELETE)
