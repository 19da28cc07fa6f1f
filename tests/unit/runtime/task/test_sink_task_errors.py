"""Tests of records that a sink task cannot process: dead letters, log lines, retries and offsets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import PLACEHOLDER, change, key
from support.task.sink_task_harness import (
    GROUP,
    TOPIC,
    Harness,
    cached_reselect,
    running,
)

from headrace.converters.conversion import Conversion, Headers
from headrace.converters.registered import RegisteredSchema, RegistryConverter, SchemaId, confluent_framing
from headrace.core.connect.lifecycle import TableState
from headrace.core.decode.json_converter import JsonData
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Retriable, Stage
from headrace.ports import Chunk, TopicPartition
from headrace.runtime import retry
from headrace.runtime.metrics.metrics import Metrics
from headrace.runtime.task import chunk_decoder, sink_task
from headrace.runtime.task.chunk_decoder import ChunkDecoder, FetchedSchemas
from headrace.runtime.task.errant_reporter import DROPS
from headrace.runtime.task.flow_control import WriteSlots
from headrace.transforms.registry import chain
from headrace_dev.memory import MemorySchemaRegistry
from headrace_dev.memory.dead_letter_queue import MemoryDeadLetterQueue

pytestmark = pytest.mark.anyio


async def test_a_record_that_cannot_be_decoded_stops_the_task_at_its_offset(harness: Harness) -> None:
    """Without tolerance the task fails with topic, partition and offset, and does not commit past the record."""
    harness.insert(1, 10)
    harness.broker.append(TOPIC, b"{broken", key({"id": 2}))
    async with running(harness.task()):
        await eventually(lambda: bool(harness.failures))
    assert "shop.public.items-0 at offset 1" in str(harness.failures[0])
    assert "VALUE_CONVERTER" in str(harness.failures[0])
    assert "broken" not in str(harness.failures[0])
    assert harness.offset() <= 1


async def test_a_tolerated_record_goes_to_the_dead_letter_queue(harness: Harness) -> None:
    """With ``errors.tolerance=all`` the task sends bad records to the queue, writes the others, and commits both."""
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
    """Events that omit a value go to the queue unchanged. The task applies deletes and other rows, and commits."""
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
    assert b"column(s) name were omitted" in (headers["__connect.errors.exception.message"] or b"")


async def test_a_dead_letter_is_no_row_until_a_complete_change(harness: Harness) -> None:
    """Updates that omit a value are dead letters until a complete update stores the row, each in its own batch."""
    queue = with_dead_letters(harness)
    async with running(harness.task(tolerate=True, dead_letters=True)):
        for offset, name in enumerate([PLACEHOLDER, PLACEHOLDER, "complete", PLACEHOLDER]):
            change_ = change("u", {"id": 1, "name": name, "size": offset}, offset + 1)
            harness.broker.append(TOPIC, change_, key({"id": 1}))
            await eventually(lambda read=offset: harness.offset() == read + 1)
    assert harness.rows() == {"=1": {"id": 1, "name": "complete", "size": 3}}
    assert len(queue.letters) == 2


async def test_a_change_that_the_database_cannot_complete_is_a_dead_letter(harness: Harness) -> None:
    """With ``reselect.error.handling.mode=dlq`` an update of a deleted source row is a dead letter.

    The task keeps the stored row unchanged.
    """
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


async def test_a_dead_letter_invalidates_earlier_values(harness: Harness) -> None:
    """After the dead letter of the update to B, an omitted name is not the earlier value A. The task reads it again."""
    queue = with_dead_letters(harness)
    rows = [{"name": "A"}, {"name": "B", "size": PLACEHOLDER}, {"name": PLACEHOLDER}]
    for lsn, row in enumerate(rows, start=10):
        harness.broker.append(TOPIC, change("u", {"id": 1, **row}, lsn), key({"id": 1}))
    processor = cached_reselect("B")
    async with running(harness.task(tolerate=True, dead_letters=True, linger=0.2, processor=processor)):
        await eventually(lambda: harness.offset() == 3)
    assert [dict(letter.headers)["__connect.errors.offset"] for letter in queue.letters] == [b"1"]
    assert [row["name"] for row in harness.rows().values()] == ["B"]


@pytest.mark.parametrize(("included", "place"), [(False, []), (True, ["topic='shop.public.items'", "offset=0"])])
async def test_the_log_line_of_a_tolerated_record(
    harness: Harness, caplog: pytest.LogCaptureFixture, included: bool, place: list[str]
) -> None:
    """``errors.log.include.messages`` adds topic and offset to the line, but never the content of the record."""
    harness.broker.append(TOPIC, b"{broken", key({"id": 1}))
    harness.insert(2, 20)
    async with running(harness.task(tolerate=True, log_errors=True, log_messages=included)):
        await eventually(lambda: harness.offset() == 2)
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "VALUE_CONVERTER" in line
    assert [part for part in ("topic='shop.public.items'", "offset=0") if part in line] == place
    assert "broken" not in line


class UnreachableOnce:
    """A converter whose registry answers from the second call on, and that refuses the document ``bad``."""

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
    """The task decodes the chunk again after the registry answers. No record is lost or sent to the queue."""
    monkeypatch.setattr(retry, "_INITIAL_SECONDS", 0.01)
    harness.insert(1, 10)
    converter = UnreachableOnce()
    async with running(harness.task(conversion=Conversion(value=converter))):
        await eventually(lambda: harness.offset() == 1)
    assert converter.calls == 2
    assert set(harness.rows()) == {"=1"}
    assert harness.failures == []


async def test_schemas_are_fetched_before_their_records_are_decoded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task retries a failed fetch of a schema. A record with an unknown schema id is one bad record."""
    monkeypatch.setattr(retry, "_INITIAL_SECONDS", 0.01)
    registry = SlowRegistry()
    values = RegistryConverter(FetchedSchemas(registry).get, confluent_framing("value"), lambda schema: JsonReader())
    for number, schema in enumerate((1, 2, 9, 1)):
        document = change("c", {"id": number, "name": "n"}, 10 + number)
        harness.broker.append(TOPIC, bytes((0, 0, 0, 0, schema)) + document, key({"id": number}))
    async with running(harness.task(tolerate=True, conversion=Conversion(value=values))):
        await eventually(lambda: harness.offset() == 4)
    assert [each.value for each in registry.asked] == [1, 1, 2, 9]
    assert set(harness.rows()) == {"=0", "=1", "=3"}
    assert harness.failures == []


class SlowRegistry(MemorySchemaRegistry):
    """A registry with schemas 1 and 2, which answers from the second request on."""

    def __init__(self) -> None:
        super().__init__()
        self.register("first")
        self.register("second")

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        self.down = not self.asked
        return super().fetch(schema_id)


class JsonReader:
    """A reader of payloads that are JsonConverter documents. It ignores the schema in the registry."""

    def __init__(self) -> None:
        self._json = JsonData(True)

    def __call__(self, payload: bytes) -> SchemaAndValue:
        return self._json.to_connect_data(payload)


@pytest.mark.parametrize(
    ("tolerate", "queue", "number", "noted"),
    [(True, False, 0, True), (True, False, 1, False), (True, True, 0, False), (False, False, 0, False)],
)
async def test_skipping_records_without_a_queue_is_noted(
    harness: Harness, caplog: pytest.LogCaptureFixture, tolerate: bool, queue: bool, number: int, noted: bool
) -> None:
    """The connector's first task warns, and has a note, if bad records leave no copy."""
    harness.dead_letters = MemoryDeadLetterQueue("items", 0) if queue else None
    notes: list[tuple[str, str]] = []
    observer = Metrics().task("items", 0, lambda topic: None, lambda text, place: notes.append((text, place)))
    async with running(harness.task(number, tolerate=tolerate, observer=observer, task=number)):
        pass
    assert notes == ([(DROPS, "errors.tolerance=all")] if noted else [])
    assert (f"items-0: errors.tolerance=all: {DROPS}" in caplog.messages) == noted


async def test_dead_letters_name_their_converter(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The headers of a dead letter contain the stage and the class of its converter."""
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


async def test_a_record_that_a_transform_refuses_is_a_dead_letter(harness: Harness) -> None:
    """A dead letter has the original record and offset, and the stage and class of the transform that failed.

    The task writes the other records.
    """
    harness.dead_letters = MemoryDeadLetterQueue("items", 0)
    casting = {
        "transforms": "rename,cast",
        "transforms.rename.type": "RegexRouter",
        "transforms.rename.regex": ".*",
        "transforms.rename.replacement": "renamed",
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
    headers = {name.removeprefix("__connect.errors."): value.decode() for name, value in letter.headers if value}
    assert (headers["topic"], headers["offset"], headers["stage"]) == (TOPIC, "1", "TRANSFORMATION")
    assert headers["class.name"] == "org.apache.kafka.connect.transforms.ExtractField$Key"
    assert [row["id"] for row in harness.rows("renamed").values()] == [1]


async def insert_into(harness: Harness, table: str, number: int, snapshot: str = "false") -> TopicPartition:
    """Append an insert, or a snapshot read, to the topic of a table, and return its partition."""
    topic = f"shop.public.{table}"
    await harness.broker.create_topic(topic)
    operation = "c" if snapshot == "false" else "r"
    value = change(operation, {"id": number}, number, table=table, snapshot=snapshot)
    harness.broker.append(topic, value, key({"id": number}))
    return TopicPartition(topic, 0)


@pytest.mark.parametrize(
    ("snapshot", "most_bytes", "expected"),
    [("false", chunk_decoder.TURN_BYTES, [20]), ("first", chunk_decoder.TURN_BYTES, [1, 19]), ("false", 0, [1] * 20)],
)
async def test_a_poll_is_decoded_in_one_turn_of_a_thread(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, snapshot: str, most_bytes: int, expected: list[int]
) -> None:
    """A message that concerns more than the rows of its chunk ends the turn, and so does its size."""
    monkeypatch.setattr(chunk_decoder, "TURN_BYTES", most_bytes)
    partitions = [await insert_into(harness, f"t{number:02d}", 1) for number in range(1, 20)]
    partitions.append(await insert_into(harness, "t00", 1, snapshot))
    turns: list[int] = []
    decode = ChunkDecoder._decode

    def counted(self: ChunkDecoder, chunks: Sequence[Chunk]) -> object:
        turn = decode(self, chunks)
        turns.append(len(turn.decoded))
        return turn

    observed: list[float] = []
    monkeypatch.setattr(WriteSlots, "observe_decoding", lambda slots, seconds, cpu_seconds: observed.append(seconds))
    monkeypatch.setattr(ChunkDecoder, "_decode", counted)
    async with running(harness.task()):
        await eventually(lambda: harness.broker.committed(GROUP) == dict.fromkeys(partitions, 1))
    assert (turns, harness.failures) == (expected, [])
    assert len(observed) == len(turns), "the scheduler of commits knows the duration of each turn"


async def test_a_bad_record_in_a_poll_concerns_its_table_only(harness: Harness) -> None:
    """The chunks behind one that cannot be decoded are decoded as well, and each change is applied once."""
    partitions = [await insert_into(harness, f"t{number}", 1) for number in range(4)]
    harness.broker.append(partitions[1].topic, b"{broken", key({"id": 2}))
    async with running(harness.task(isolated=True)) as task:
        expected = {partition: 1 for partition in partitions if partition != partitions[1]}
        await eventually(lambda: expected.items() <= harness.broker.committed(GROUP).items())
        await eventually(lambda: len(harness.rows("shop_public_t3")) == 1)
        assert [each.state for each in task.tables()] == [TableState.FAILED]
    assert not harness.failures
