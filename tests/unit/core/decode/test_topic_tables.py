"""A tombstone belongs to the table whose delete precedes it, in a topic with several tables and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records.envelopes import change, key, whole_change

from headrace.converters.conversion import Conversion, converting_decoder
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.decode.json_converter import JsonData
from headrace.core.decode.topic_tables import IGNORED_TOMBSTONES, RECENT, TABLE_UNKNOWN
from headrace.core.model.events import Changes, Operation


@dataclass(frozen=True)
class Record:
    """A record as decoders read it."""

    key: bytes
    value: bytes | None
    partition: int = 0
    offset: int = 0
    timestamp: int = 7
    headers: Sequence[tuple[str, bytes]] = ()


def event(
    op: str, table: str, number: int, *, schemas: bool = True, column: str = "id", complete: bool = False
) -> Record:
    """Return a change of a row of ``table``, whose key has one column."""
    row = {column: number, "of": table}
    if complete:
        before, after = (row, None) if op == "d" else (None, row)
        return Record(key({column: number}), whole_change(op, before, after, number, table=table))
    value = change(op, None if op == "d" else row, number, columns=row, table=table, schemas=schemas)
    return Record(key({column: number}, schemas=schemas), value)


def tombstone(number: int, *, schemas: bool = True, column: str = "id") -> Record:
    return Record(key({column: number}, schemas=schemas), None)


def decoder(topic: str = "t", *, apart: bool = True, schemas: bool = True) -> TopicDecoder:
    return TopicDecoder(topic, EnvelopeOptions(schemas, schemas, tables_apart=apart))


def at(partition: int, offset: int, *records: Record) -> list[Record]:
    return [replace(each, partition=partition, offset=offset + place) for place, each in enumerate(records)]


def removed(decoded: Decoded) -> list[tuple[str, Operation, str]]:
    """Return table, operation and key of each delete and tombstone."""
    return [
        (piece.table.table, Operation(operation), text)
        for piece in decoded.events
        if isinstance(piece, Changes)
        for operation, text in zip(piece.operation.tolist(), piece.key.to_pylist(), strict=True)
        if operation in (Operation.DELETE, Operation.TOMBSTONE)
    ]


@pytest.mark.parametrize("schemas", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_a_tombstone_belongs_to_the_last_table_of_its_partition(apart: bool, schemas: bool) -> None:
    """The decoder tracks the last table of each partition: a record of another partition between them has no effect."""
    topic = decoder(apart=apart, schemas=schemas)
    topic.decode(at(0, 0, event("d", "a", 1, schemas=schemas)))
    topic.decode(at(1, 0, event("c", "b", 1, schemas=schemas)))
    decoded = topic.decode(at(0, 1, tombstone(1, schemas=schemas), event("c", "b", 2, schemas=schemas)))
    assert (removed(decoded), decoded.errant) == ([("a", Operation.TOMBSTONE, "=1")], [])


def test_a_tombstone_that_begins_a_chunk_is_read_by_the_schema_of_its_delete() -> None:
    """A tombstone at the start of a chunk uses the key schema of its delete, not that of the record after it."""
    topic = decoder()
    topic.decode(at(0, 0, event("d", "a", 1)))
    decoded = topic.decode(at(0, 1, tombstone(1), event("c", "b", 2, column="code")))
    assert (removed(decoded), decoded.errant) == ([("a", Operation.TOMBSTONE, "=1")], [])


@pytest.mark.parametrize(("schemas", "column"), [(True, "id"), (True, "code"), (False, "id")])
def test_a_tombstone_after_an_event_of_another_table_is_skipped(schemas: bool, column: str) -> None:
    """If a second producer wrote between them, the decoder skips the tombstone; the delete has removed the row."""
    between = event("c", "b", 1, schemas=schemas, column=column)
    if column == "id":
        between = event("c", "b", 2, schemas=schemas)
    records = at(0, 0, event("d", "a", 1, schemas=schemas), between, tombstone(1, schemas=schemas))
    decoded = decoder(apart=False, schemas=schemas).decode(records)
    assert (removed(decoded), decoded.errant) == ([("a", Operation.DELETE, "=1")], [])
    assert decoded.skipped == 1


@pytest.mark.parametrize("schemas", [True, False])
def test_a_partition_that_begins_with_a_tombstone_deletes_no_row_of_another_table(schemas: bool) -> None:
    """A worker that starts between a delete and its tombstone skips the tombstone and adds a note for the operator."""
    records = at(0, 7, tombstone(1, schemas=schemas), event("c", "b", 1, schemas=schemas))
    decoded = decoder(schemas=schemas).decode(records)
    assert (removed(decoded), decoded.errant, decoded.notes) == ([], [], [IGNORED_TOMBSTONES])
    alone = decoder(schemas=schemas).decode(records[:1])
    assert (removed(alone), alone.errant, alone.skipped) == ([], [], 1)


def test_a_gap_in_the_offsets_resets_the_table_of_a_partition() -> None:
    """After a gap in the offsets the decoder skips a tombstone: another worker may have read its delete."""
    topic = decoder()
    topic.decode(at(0, 0, event("d", "a", 1)))
    decoded = topic.decode(at(0, 9, tombstone(1), event("c", "b", 1)))
    assert (removed(decoded), decoded.errant) == ([], [])


@pytest.mark.parametrize("records", [[tombstone(1), event("c", "items", 2)], [event("c", "items", 2), tombstone(1)]])
def test_tombstones_of_a_topic_of_one_table_belong_to_it(records: list[Record]) -> None:
    """A tombstone of a topic that is named after its table deletes from it: compaction may keep only the tombstone."""
    decoded = decoder("shop.public.items").decode(at(0, 0, *records))
    assert removed(decoded) == [("items", Operation.TOMBSTONE, "=1")]


def test_the_schema_of_the_key_names_the_table_of_a_tombstone() -> None:
    """Debezium names the schema of a key after the table, whatever the name of the topic is."""
    named = replace(tombstone(1), key=key({"id": 1}).replace(b'"t.Key"', b'"shop.public.b.Key"'))
    decoded = decoder().decode(at(0, 0, named, event("c", "b", 2), event("c", "a", 3), event("c", "b", 4), named))
    assert removed(decoded) == [("b", Operation.TOMBSTONE, "=1")] * 2


def test_a_tombstone_of_an_unknown_table_is_refused_if_topics_have_several_tables() -> None:
    """The decoder refuses a tombstone without its delete if the topic has several tables, and accepts it otherwise."""
    others = [event("c", "a", number) for number in range(RECENT)]
    records = at(0, 0, *others, event("c", "b", 1), tombstone(1))
    (errant,) = decoder().decode(records).errant
    assert (errant.index, str(errant.error)) == (RECENT + 1, TABLE_UNKNOWN)
    assert removed(decoder(apart=False).decode(records)) == [("b", Operation.TOMBSTONE, "=1")]


def test_a_flattened_delete_of_an_unknown_table_is_refused() -> None:
    """In a topic of flattened records a tombstone may be the delete itself, so the decoder refuses it."""
    rows = [Record(b'{"id":1}', None), Record(b'{"id":2}', b'{"id":2,"__op":"c","__table":"b"}')]
    (errant,) = decoder(schemas=False).decode(at(0, 0, *rows)).errant
    assert (errant.index, str(errant.error)) == (0, TABLE_UNKNOWN)


def test_a_tombstone_after_a_bad_value_is_decoded() -> None:
    """A tombstone after a bad record belongs to the table of the record before that one."""
    no_row = Record(key({"id": 1}), b'{"schema":{"type":"string","name":"x"},"payload":"y"}')
    decoded = decoder(apart=False).decode(at(0, 0, event("c", "a", 1), no_row, tombstone(1)))
    assert ([each.index for each in decoded.errant], removed(decoded)) == ([1], [("a", Operation.TOMBSTONE, "=1")])


kinds = st.sampled_from([(False, False, False), (True, False, False), (True, True, False), (True, True, True)])
changed = st.tuples(st.sampled_from("ccd"), st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 1))


@given(st.lists(changed, max_size=12), st.randoms(use_true_random=False), kinds)
def test_no_chunking_and_no_restart_gives_a_tombstone_to_another_table(
    changes: Sequence[tuple[str, str, int, int]], chance: Random, kind: tuple[bool, bool, bool]
) -> None:
    """Neither the chunks, nor restarts, nor records between a delete and its tombstone change the tombstone's table."""
    schemas, complete, converted = kind
    partitions: list[list[Record]] = [[], []]
    of: dict[tuple[int, int], str] = {}
    for op, table, number, partition in changes:
        log = partitions[partition]
        log.append(event(op, table, number, schemas=schemas, complete=complete))
        if op == "d":
            of[partition, len(log)] = table
            log.append(tombstone(number, schemas=schemas))
        before = log[-3] if op == "d" and len(log) > 2 and chance.random() < 0.5 else None
        if before is not None and before.value is not None and before.key != log[-1].key:
            log[-3], log[-2] = log[-2], before  # another producer's event between a delete and its tombstone
    logs = [at(partition, 0, *log) for partition, log in enumerate(partitions)]
    conversion = Conversion(JsonData(schemas), JsonData(schemas)) if converted else None
    places, topic = [0, 0], None
    while any(place < len(log) for place, log in zip(places, logs, strict=True)):
        if topic is None or chance.random() < 0.2:
            topic = converting_decoder("t", EnvelopeOptions(schemas, schemas, tables_apart=True), None, conversion)
        partition = chance.randrange(2)
        chunk = logs[partition][places[partition] : places[partition] + chance.randint(1, 4)]
        places[partition] += len(chunk)
        if not chunk:
            continue
        decoded = topic.decode(chunk)
        assert decoded.errant == []
        for piece in decoded.events:
            assert isinstance(piece, Changes)
            for operation, offset in zip(piece.operation.tolist(), piece.version.offset.tolist(), strict=True):
                if operation == Operation.TOMBSTONE:
                    assert piece.table.table == of[partition, offset]
