"""The decoder converts Debezium envelopes to change events in columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.records.envelopes import PLACEHOLDER, Row, change, key

from headrace.core.decode.envelope import NO_POSITIONS, EnvelopeOptions, TopicDecoder
from headrace.core.decode.json_converter import Document, JsonConverter
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import Stage
from headrace.core.model.events import CellState, Changes, Operation, TableId, Truncate
from headrace.core.model.positions import ordering
from headrace.core.model.schema import schema_from_json

EXAMPLE = {"id": 1, "name": "a"}


@dataclass
class Record:
    key: bytes | SchemaAndValue | None
    value: bytes | Document | SchemaAndValue | None
    offset: int = 0
    partition: int = 0
    timestamp: int = 7
    topic: str = "t"
    headers: list[tuple[str, bytes]] = field(default_factory=list)


def numbered(*records: Record) -> list[Record]:
    for offset, record in enumerate(records):
        record.offset = offset
    return list(records)


def row(op: str, number: int, lsn: int, name: str | None = "a", **options: object) -> Record:
    after = {"id": number, "name": name}
    return Record(key({"id": number}), change(op, after, lsn, columns=EXAMPLE, **options))  # type: ignore[arg-type] # options of change


def decoder(**options: object) -> TopicDecoder:
    return TopicDecoder("t", EnvelopeOptions(**options))  # type: ignore[arg-type] # options of EnvelopeOptions


def only(records: list[Record]) -> Changes:
    decoded = decoder().decode(records)
    assert decoded.errant == []
    (piece,) = decoded.events
    assert isinstance(piece, Changes)
    return piece


def test_events_keep_their_order_position_and_coordinate() -> None:
    """The decoder returns a run of one schema as one piece; a delete has its key and no other cells."""
    records = numbered(
        row("c", 1, 10), row("u", 2, 20, "b"), Record(key({"id": 1}), change("d", None, 30, columns=EXAMPLE))
    )
    changes = only(records)
    assert changes.operation.tolist() == [Operation.CREATE, Operation.UPDATE, Operation.DELETE]
    assert changes.key.to_pylist() == ["=1", "=2", "=1"]
    assert [column.values.to_pylist() for column in changes.columns] == [[1, 2, 1], ["a", "b", None]]
    assert changes.version.position[1] == b"00000.%020d" % 20
    assert changes.version.offset.tolist() == [0, 1, 2]
    assert changes.table == TableId("shop", "shop", "public", "items")


def test_snapshot_reads_and_tombstones_have_no_position() -> None:
    """A read has no position even if its source block has an lsn (``merge.md`` section 2.2)."""
    changes = only(numbered(row("r", 1, 10), Record(key({"id": 1}), None)))
    assert changes.version.position.tolist() == [b"", b""]
    assert changes.operation.tolist() == [Operation.READ, Operation.TOMBSTONE]
    assert changes.version.source_time.tolist() == [1_700_000_000_000_000, 7_000]


def test_events_have_the_number_of_their_transaction() -> None:
    """The number is PostgreSQL's transaction id or Oracle's commit SCN, or -1 if the event has none."""
    oracle = change("u", EXAMPLE, 10).replace(b'"connector":"postgresql"', b'"connector":"oracle","commit_scn":"5150"')
    unknown = change("u", EXAMPLE, 10).replace(b'"connector":"postgresql"', b'"connector":"oracle","commit_scn":null')
    assert only(numbered(row("u", 1, 10))).transaction.tolist() == [10]
    assert only(numbered(Record(key({"id": 1}), oracle), Record(key({"id": 1}), unknown))).transaction.tolist() == [
        5150,
        -1,
    ]


SOURCES = {
    "mysql": ({"db": "d", "file": "b.000002", "pos": 4, "row": 1}, b"00000.0000000002.%020d.0000000001" % 4),
    "mariadb": ({"db": "d", "file": "b.10", "pos": 4, "row": 0}, b"00000.0000000010.%020d.0000000000" % 4),
    "oracle": ({"db": "d", "schema": "S", "commit_scn": "12", "txSeq": 3}, b"00000.%038d.%020d" % (12, 3)),
    "sqlserver": (
        {
            "db": "d",
            "schema": "dbo",
            "commit_lsn": "00000027:00000ac0:0007",
            "change_lsn": "00000027:00000ac0:0002",
            "event_serial_no": 2,
        },
        b"00000.00000027:00000ac0:0007.00000027:00000ac0:0002.%020d" % 2,
    ),
    "vitess": ({"db": "d"}, b""),
}


@pytest.mark.parametrize("connector", SOURCES)
def test_changes_of_every_source(connector: str) -> None:
    """The decoder reads table and position of each connector's source block; a snapshot read has no position."""
    fields, position = SOURCES[connector]
    source = fields | {"connector": connector, "name": "shop", "table": "items", "ts_ms": 5, "txId": "x"}
    envelopes = [{"op": op, "source": source, "after": {"id": 1, "name": None}} for op in "ru"]
    records = [Record(b'{"id":1}', json.dumps(envelope).encode()) for envelope in envelopes]
    decoded = decoder(key_schemas=False, value_schemas=False).decode(numbered(*records))
    (changes,) = decoded.events
    assert isinstance(changes, Changes)
    assert changes.version.position.tolist() == [b"", position]
    assert changes.table == TableId("shop", "d", fields.get("schema", ""), "items")
    assert changes.version.source_time.tolist() == [5000, 5000]
    assert decoded.notes == ([] if position else [NO_POSITIONS])


def test_only_the_record_with_an_invalid_position_is_refused() -> None:
    """The decoder refuses a change or a truncate whose binlog file has no number, and keeps the others."""

    def binlog(op: str, file: str) -> Record:
        source = {"connector": "mysql", "name": "shop", "db": "d", "table": "items", "file": file, "pos": 1, "row": 0}
        after = None if op == "t" else {"id": 1}
        return Record(b'{"id":1}', json.dumps({"op": op, "source": source, "after": after}).encode())

    records = [binlog("c", "b.1"), binlog("u", "b"), binlog("t", "b"), binlog("u", "b.2")]
    decoded = decoder(key_schemas=False, value_schemas=False).decode(numbered(*records))
    assert [errant.index for errant in decoded.errant] == [1, 2]
    assert all("source.file" in str(errant.error) for errant in decoded.errant)
    assert [len(piece) for piece in decoded.events if isinstance(piece, Changes)] == [1, 1]


def test_placeholders_are_unchanged_cells_without_text() -> None:
    """The value of the cell is null, so that the placeholder reaches no table."""
    changes = only(numbered(row("u", 1, 10, PLACEHOLDER), row("u", 2, 20, None)))
    states = changes.columns[1].states
    assert states is not None
    assert states.tolist() == [CellState.UNCHANGED, CellState.NULL]
    assert changes.columns[1].values.to_pylist() == [None, None]


def test_a_truncate_separates_two_runs() -> None:
    """The decoder returns a truncate as a piece of its own, with its position."""
    records = numbered(row("c", 1, 10), Record(None, change("t", None, 20, columns=EXAMPLE)), row("c", 2, 30))
    pieces = decoder().decode(records).events
    assert [type(piece) for piece in pieces] == [Changes, Truncate, Changes]
    assert isinstance(pieces[1], Truncate)
    assert pieces[1].version.position == b"00000.%020d" % 20


def test_both_halves_of_a_key_change_are_marked() -> None:
    """The headers link delete and insert of a key change, with or without a schema in them."""
    away = Record(key({"id": 1}), change("d", None, 10, columns=EXAMPLE), headers=[("__debezium.newkey", b'{"id":2}')])
    into = row("c", 2, 11, PLACEHOLDER)
    into.headers = [("other", b"x"), ("__debezium.oldkey", b'{"schema":{},"payload":{"id":1}}')]
    changes = only(numbered(away, into))
    assert changes.key_changes.first_halves == frozenset({0})
    assert changes.key_changes.old_keys == {1: "=1"}


def test_a_key_change_outside_of_primary_key_fields_is_refused() -> None:
    """If primary.key.fields omits the changed column, delete and insert have one key and position."""
    old, new = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
    away = Record(key(old), change("d", None, 10, columns=EXAMPLE), headers=[("__debezium.newkey", key(new))])
    into = Record(key(new), change("c", new, 10, columns=EXAMPLE), headers=[("__debezium.oldkey", key(old))])
    decoded = decoder(key_fields=("id",)).decode(numbered(row("c", 1, 5), away, into))
    assert [errant.index for errant in decoded.errant] == [1]
    assert "primary.key.fields (id) names fewer columns" in str(decoded.errant[0].error)
    assert not decoder().decode(numbered(away, into)).errant
    assert not decoder(key_fields=("id",), keyless=True).decode(numbered(away, into)).errant


def test_records_that_are_no_rows_are_skipped_and_counted() -> None:
    """The decoder skips and counts heartbeats and logical messages."""
    heartbeat = {
        "schema": {"type": "struct", "fields": [], "name": "io.debezium.connector.common.Heartbeat"},
        "payload": {},
    }
    message = change("m", None, 10, columns=EXAMPLE)
    decoded = decoder().decode(numbered(Record(None, json.dumps(heartbeat).encode()), Record(b"{}", message)))
    assert (decoded.events, decoded.skipped) == ([], 2)


@pytest.mark.parametrize(
    ("record", "stage", "text"),
    [
        (Record(key(EXAMPLE), b"{"), Stage.VALUE_CONVERTER, "serialization error"),
        (Record(key(EXAMPLE), b'{"id":1}'), Stage.VALUE_CONVERTER, "set schemas.enable=false"),
        (Record(key({"id": 1}), change("x", EXAMPLE, 1)), Stage.TASK_PUT, "unknown operation 'x'"),
        (Record(key({"id": 1}), change("u", None, 1, columns=EXAMPLE)), Stage.TASK_PUT, "no 'after'"),
        (Record(b'"k"', change("d", None, 1, columns=EXAMPLE)), Stage.KEY_CONVERTER, "schemas.enable"),
    ],
)
def test_a_bad_record_is_reported_and_the_others_are_decoded(record: Record, stage: Stage, text: str) -> None:
    """The decoder reports index, stage and remedy of the bad record, and decodes the other records."""
    good = row("c", 5, 50)
    decoded = decoder().decode(numbered(good, record, row("c", 6, 60)))
    (errant,) = decoded.errant
    assert (errant.index, errant.stage) == (1, stage)
    assert text in str(errant.error)
    assert sum(len(piece) for piece in decoded.events if isinstance(piece, Changes)) == 2


def test_a_record_without_a_key_needs_another_mode() -> None:
    """The error of a record without a key names what accepts it, and that options apply to all tables."""
    (errant,) = decoder().decode(numbered(Record(None, change("u", EXAMPLE, 1)))).errant
    assert "message.key.columns at the source" in str(errant.error)
    assert "a connector of its own, with primary.key.fields, or with insert.mode=insert" in str(errant.error)
    assert "both options apply to all tables of a connector" in str(errant.error)


@pytest.mark.parametrize(
    ("connector", "field", "noted"),
    [
        ("db2", "nocolumn", True),
        ("db2", "name", False),
        ("db2", "source.ts_ms", False),
        ("postgresql", "nocolumn", False),
    ],
)
def test_a_column_for_the_order_that_rows_do_not_have_is_noted(connector: str, field: str, noted: bool) -> None:
    """Their changes apply in order of arrival. A source with positions does not need the column."""
    record = row("c", 1, 10)
    assert isinstance(record.value, bytes)
    record.value = record.value.replace(b'"postgresql"', f'"{connector}"'.encode())
    decoded = decoder(ordering=ordering(field)).decode(numbered(record))
    assert decoded.errant == []
    notes = [note.text for note in decoded.notes if note.text.startswith("ordering.field names the column nocolumn")]
    assert len(notes) == noted


@pytest.mark.parametrize(
    ("options", "record_key", "text"),
    [
        (
            {},
            SchemaAndValue(schema_from_json({"type": "string"}), '{"id":1}'),
            "the record's key is of type string, not a struct, so it names no key columns; set key.converter to the",
        ),
        ({}, SchemaAndValue(None, 7), "the record's key is of type int, not a struct"),
        ({}, b'{"schema":{"type":"string"},"payload":"1"}', "the record's key is not a struct with columns"),
        (
            {"key_fields": ("id", "nocolumn")},
            key({"id": 1}),
            "primary.key.fields names nocolumn, which the event's row does not have; correct the option, or, if only "
            "other tables of the connector have this column, read the topic with a connector of its own; the columns "
            "are id, name",
        ),
        (
            {},
            key({"id": 1, "hidden": 2}),
            "the record's key has the column(s) hidden, which the event's row does not have; set message.key.columns "
            "at the source, or primary.key.fields, to columns of the row; the columns are id, name",
        ),
    ],
)
def test_the_error_of_a_key_without_columns_of_the_row_names_the_option(
    options: dict[str, object], record_key: bytes | SchemaAndValue, text: str
) -> None:
    """It says what the key is, which option or converter to correct, and the columns to choose from."""
    (errant,) = decoder(**options).decode(numbered(Record(record_key, change("u", EXAMPLE, 1)))).errant
    assert (errant.stage, text in str(errant.error)) == (Stage.TASK_PUT, True), str(errant.error)


@pytest.mark.parametrize("columns", [EXAMPLE, {}], ids=["without a key column", "without any column"])
@pytest.mark.parametrize("record_key", [{"hidden": 2}, {"id": 1, "hidden": 2}, {"hidden": 2, "id": 1}])
def test_every_event_of_rows_without_a_key_column_is_refused(columns: dict[str, object], record_key: Row) -> None:
    """No delete or tombstone continues with the key's value in another column."""
    records = [Record(key(record_key), change(op, None, 30, columns=columns)) for op in ("d", "d")]
    records.insert(1, Record(key(record_key), None))
    if columns:
        records.append(Record(key(record_key), change("u", EXAMPLE, 40, columns=columns)))
    decoded = decoder().decode(numbered(*records))
    assert (decoded.events, [errant.index for errant in decoded.errant]) == ([], list(range(len(records))))
    assert all("has the column(s)" in str(errant.error) for errant in decoded.errant)


def test_an_append_only_table_accepts_records_without_a_key() -> None:
    """The decoder returns inserts, updates and deletes without a key as events, and skips tombstones."""
    records = numbered(
        Record(None, change("c", {"id": 1, "name": "a"}, 10, columns=EXAMPLE)),
        Record(None, change("u", {"id": 1, "name": "b"}, 20, columns=EXAMPLE)),
        Record(None, change("d", None, 30, columns=EXAMPLE)),
        Record(None, None),
    )
    decoded = decoder(keyless=True).decode(records)
    assert (decoded.errant, decoded.skipped) == ([], 1)
    (changes,) = decoded.events
    assert isinstance(changes, Changes)
    assert changes.key_fields == ()
    assert changes.operation.tolist() == [Operation.CREATE, Operation.UPDATE, Operation.DELETE]
    assert changes.columns[1].values.to_pylist() == ["a", "b", None]


def test_documents_of_mongodb_are_refused() -> None:
    """MongoDB's connector sends documents as text; the error names the transform to use."""
    fields = [{"field": "after", "type": "string", "optional": True}, {"field": "op", "type": "string"}]
    schema = {"type": "struct", "name": "m.db.items.Envelope", "fields": fields}
    value = json.dumps({"schema": schema, "payload": {"op": "c", "after": "{}"}}, separators=(",", ":")).encode()
    (errant,) = decoder().decode(numbered(Record(key({"id": 1}), value))).errant
    assert "'after' is a string" in str(errant.error)
    assert "ExtractNewDocumentState" in str(errant.error)


def test_only_the_record_with_a_value_of_the_wrong_type_is_refused() -> None:
    """The decoder finds the bad record of a run by decoding its records one by one."""
    wrong = Record(key({"id": 2}), change("c", {"id": "x", "name": "a"}, 20, columns=EXAMPLE))
    decoded = decoder().decode(numbered(row("c", 1, 10), wrong, row("c", 3, 30)))
    assert [errant.index for errant in decoded.errant] == [1]


def test_a_new_column_starts_another_run() -> None:
    """The decoder returns runs of two schemas as two pieces; the batch combines them."""
    wider = Record(key({"id": 2}), change("c", EXAMPLE | {"size": 3}, 20))
    pieces = decoder().decode(numbered(row("c", 1, 10), wider)).events
    assert [len(piece.columns) for piece in pieces if isinstance(piece, Changes)] == [2, 3]


def test_json_without_schemas_gets_types_from_its_values() -> None:
    """The decoder infers integer and text columns, and a null column if it has seen only nulls."""
    plain = decoder(key_schemas=False, value_schemas=False)
    value = change("c", {"id": 1, "name": "a", "note": None}, 10, columns=EXAMPLE, schemas=False)
    (piece,) = plain.decode(numbered(Record(key({"id": 1}, schemas=False), value))).events
    assert isinstance(piece, Changes)
    assert {column.name: str(column.values.type) for column in piece.columns} == {
        "id": "int64",
        "name": "string",
        "note": "null",
    }


def test_a_column_with_the_reserved_prefix_is_refused() -> None:
    """Source columns must not begin with the prefix of Headrace's own columns."""
    value = change("c", {"id": 1, "__headrace_position": "x"}, 10)
    (errant,) = decoder().decode(numbered(Record(key({"id": 1}), value))).errant
    assert "__headrace_position" in str(errant.error)


def test_a_tombstone_that_comes_first_does_not_hide_the_table() -> None:
    """A chunk that begins with a tombstone has the table of the event after it, which reselect needs."""
    changes = only(numbered(Record(key({"id": 1}), None), row("c", 2, 20)))
    assert changes.table == TableId("shop", "shop", "public", "items")


def unsteady(op: str, lsn: int, table: str | None) -> Record:
    """A change of table ``table``, or one whose source block lacks the table."""
    value = json.loads(change(op, None if op in "dt" else {"id": lsn, "name": "a"}, lsn, columns=EXAMPLE))
    if table is None:
        del value["payload"]["source"]["table"]
    else:
        value["payload"]["source"]["table"] = table
    return Record(key({"id": lsn}), json.dumps(value, separators=(",", ":")).encode())


def kinds(lsn: int) -> st.SearchStrategy[Record]:
    """Every kind of record that a topic may hold."""
    changes = st.builds(
        unsteady, st.sampled_from("cccuurdtmx"), st.just(lsn), st.sampled_from(("items", "items", "orders", None))
    )
    others = (
        Record(key({"id": -lsn}), None),
        Record(key({"id": lsn}), b"{"),
        Record(key({"id": lsn}), change("c", EXAMPLE | {"size": 3}, lsn)),
        Record(key({"id": lsn}), change("c", {"id": "x", "name": "a"}, lsn, columns=EXAMPLE)),
    )
    return changes | st.sampled_from(others)


def decoded_pieces(records: Sequence[Record], size: int, **options: object) -> Iterator[object]:
    """Yield a decoder's results for chunks of ``size`` records, in a form that does not depend on ``size``."""
    topic = decoder(**options)
    for begin in range(0, len(records), size):
        decoded = topic.decode(records[begin : begin + size])
        yield decoded.skipped
        yield from ((begin + errant.index, errant.stage, str(errant.error)) for errant in decoded.errant)
        for piece in decoded.events:
            if isinstance(piece, Truncate):
                yield (piece.table, piece.version)
                continue
            rows = zip(*(column.values.to_pylist() for column in piece.columns), strict=True)
            names = tuple(column.name for column in piece.columns)
            for place, values in enumerate(rows):
                tombstone = piece.operation[place] == Operation.TOMBSTONE  # has nothing but its key
                cells = {} if tombstone else dict(zip(names, values, strict=True))
                yield (piece.table, piece.operation[place], piece.version.row(place), piece.key[place].as_py(), cells)


@given(st.integers(0, 12).flatmap(lambda count: st.tuples(*map(kinds, range(1, count + 1)))), st.integers(1, 5))
def test_the_result_of_a_record_does_not_depend_on_its_chunk(made: tuple[Record, ...], size: int) -> None:
    """The decoder returns the same results for chunks of any size and for divided documents."""
    records = numbered(row("c", 99, 1), *(Record(record.key, record.value) for record in made))
    divide = JsonConverter(True).divide
    divided = [replace(record, value=divide(record.value)) for record in records]  # type: ignore[arg-type] # JSON's text

    assert sorted_out(records, size) == sorted_out(divided, len(records))


def sorted_out(records: Sequence[Record], size: int) -> tuple[int, list[str]]:
    """Return the number of skipped records and the other results, sorted."""
    found = list(decoded_pieces(records, size))
    return sum(each for each in found if isinstance(each, int)), sorted(
        repr(each) for each in found if not isinstance(each, int)
    )


def converted(document: bytes | Document | SchemaAndValue | None) -> SchemaAndValue | None:
    """Return a document's Connect data, valid or not, with a schema object of its own."""
    if document is None:
        return None
    assert isinstance(document, bytes)
    parts = json.loads(document)
    return SchemaAndValue(schema_from_json(parts["schema"]), parts["payload"])


@settings(max_examples=25)
@given(st.integers(0, 12).flatmap(lambda count: st.tuples(*map(kinds, range(1, count + 1)))), st.integers(1, 5))
def test_connect_data_is_decoded_like_its_documents(made: tuple[Record, ...], size: int) -> None:
    """The decoder makes the same pieces of the data that a converter or transform returns as of the JSON."""
    sound = [record for record in made if record.value != b"{"]
    records = numbered(row("c", 99, 1), *(Record(record.key, record.value) for record in sound))
    data = [replace(each, key=converted(each.key), value=converted(each.value)) for each in records]
    assert sorted_out(data, size) == sorted_out(records, size)


def test_connect_data_without_schemas_is_decoded_like_plain_json() -> None:
    """The decoder infers types from the values, and does not modify them."""
    documents = [change("c", {"id": n, "name": "a", "note": None}, n, columns=EXAMPLE, schemas=False) for n in (1, 2)]
    records = numbered(*(Record(key({"id": n}, schemas=False), value) for n, value in enumerate(documents, 1)))
    records.append(Record(key({"id": 1}, schemas=False), None, offset=2))
    data = [
        replace(
            each,
            key=each.key and SchemaAndValue(None, json.loads(each.key)),  # type: ignore[arg-type] # JSON's text
            value=each.value and SchemaAndValue(None, json.loads(each.value)),  # type: ignore[arg-type] # JSON's text
        )
        for each in records
    ]
    assert [*decoded_pieces(data, 3, key_schemas=False, value_schemas=False)] == [
        *decoded_pieces(records, 3, key_schemas=False, value_schemas=False)
    ]
    assert data[0].value == SchemaAndValue(None, json.loads(documents[0]))


def test_equal_schemas_of_connect_data_are_one_run() -> None:
    """The decoder compares schemas by value: a transform may create a schema object for each record."""
    records = numbered(*(row("c", number, number) for number in range(1, 5)))
    data = [replace(each, key=converted(each.key), value=converted(each.value)) for each in records]
    assert len(decoder().decode(data).events) == 1
