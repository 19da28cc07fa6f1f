"""Bad records anywhere among good ones: no good record is lost, and every bad one is reported.

``errors.tolerance=none``: the task stops before the first bad record, and its trace names it. ``all``: every bad record
is in the dead letter queue with Kafka Connect's headers, every good one in the table, and the offsets of both are
committed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fix_asyncio import eventually
from support.records.envelopes import change, key, whole_change

from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.core.model.errors import BadRecord
from headrace.ports import TableOptions, TopicPartition
from headrace.runtime.task import sink_task
from headrace.runtime.task.flow_control import unlimited
from headrace.runtime.task.task_factory import SinkTaskFactory
from headrace.runtime.threads import WorkerThreads
from headrace.runtime.trace import render
from headrace_dev.memory import MemoryLakehouse, MemoryRowSource
from headrace_dev.memory.dead_letter_queue import QueuedLetter
from headrace_dev.memory.feed import MemoryBroker, MemoryFeeds

TOPIC = "shop.public.items"
PLACE = TopicPartition(TOPIC, 0)
JSON = "org.apache.kafka.connect.json.JsonConverter"
ROW = {"id": 0, "name": "secret"}
SECRET = "secret"


def _edited(value: bytes, **members: object) -> bytes:
    """The document with other members in its payload."""
    document = json.loads(value)
    document["payload"].update(members)
    return json.dumps(document).encode()


def _of_source(**members: int) -> bytes:
    whole = whole_change("c", None, ROW, 5)
    return _edited(whole, source=json.loads(whole)["payload"]["source"] | members)


def _nested(times: int) -> bytes:
    array = b'{"type":"array","items":'
    return b'{"schema":' + array * times + b'{"type":"int32"}' + b"}" * times + b',"payload":[]}'


GOOD_KEY, GOOD = key({"id": 0}), change("c", ROW, 5)
DELETE = change("d", None, 6, columns=ROW)
POISON: dict[str, tuple[bytes | None, bytes | None, str]] = {
    "broken JSON": (GOOD_KEY, b"{" + SECRET.encode(), "VALUE_CONVERTER"),
    "not UTF-8": (GOOD_KEY, b'"\xff\xfe"', "VALUE_CONVERTER"),
    "not UTF-8 in a row": (GOOD_KEY, GOOD.replace(b'"secret"', b'"se\xffret"'), "VALUE_CONVERTER"),
    "not UTF-8 in the schema": (GOOD_KEY, GOOD.replace(b'"optional"', b'"\xffptional"', 1), "VALUE_CONVERTER"),
    "nested too deeply": (
        GOOD_KEY,
        b'{"schema":null,"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "VALUE_CONVERTER",
    ),
    "a schema nested too deeply": (GOOD_KEY, _nested(300), "VALUE_CONVERTER"),
    "a time beyond all counts": (GOOD_KEY, _of_source(ts_ms=10**16), "TASK_PUT"),
    "a position beyond all counts": (GOOD_KEY, _of_source(lsn=1 << 63), "VALUE_CONVERTER"),
    "empty value": (GOOD_KEY, b"", "VALUE_CONVERTER"),
    "no schema": (GOOD_KEY, json.dumps(json.loads(GOOD)["payload"]).encode(), "VALUE_CONVERTER"),
    "a list": (GOOD_KEY, b"[1, 2]", "VALUE_CONVERTER"),
    "a string for a number": (GOOD_KEY, _edited(GOOD, after={"id": SECRET, "name": "a"}), "VALUE_CONVERTER"),
    "a list for a row": (GOOD_KEY, _edited(GOOD, after=[1]), "VALUE_CONVERTER"),
    "an unknown operation": (GOOD_KEY, _edited(GOOD, op="x"), "TASK_PUT"),
    "no key": (None, GOOD, "TASK_PUT"),
    "neither key nor value": (None, None, "TASK_PUT"),
    "a delete without a key": (None, DELETE, "TASK_PUT"),
    "a delete with a broken key": (b"{" + SECRET.encode(), DELETE, "KEY_CONVERTER"),
    "a delete whose key has no schema": (b'{"id": 0}', DELETE, "KEY_CONVERTER"),
    "a tombstone with a broken key": (b"{" + SECRET.encode(), None, "KEY_CONVERTER"),
}
"""Key, value and the stage at which they are of no use. A key is read where no row tells it."""
HEADERS = ["topic", "partition", "offset", "connector.name", "task.id", "stage", "class.name"]
HEADERS += ["exception.class.name", "exception.message", "exception.stacktrace"]

HEADERLESS: dict[str, bytes] = {
    "old key: empty": b"",
    "old key: broken": b"{" + SECRET.encode(),
    "old key: not UTF-8": b"\xff",
    "old key: a struct's own text": b"Struct{id=secret}",
    "old key: another type": b'{"id":"secret"}',
    "old key: a date without quotes": b'{"id":2020-01-01}',
    "old key: another column": b'{"other":1}',
    "old key: null": b'{"id":null}',
    "old key: nested too deeply": b"[" * 100_000,
    "old key: a line feed": b'{"id":"\n"}',
}
"""Headers of key changes that cannot be read: their records are good."""
GOOD_KINDS = ("good", *HEADERLESS)

records = st.lists(
    st.one_of(st.just("good"), st.sampled_from(sorted(HEADERLESS)), st.sampled_from(sorted(POISON))),
    min_size=1,
    max_size=10,
)


@pytest.fixture(autouse=True, scope="module")
def _prompt_commits() -> Iterator[None]:
    """Offsets of records without rows are committed periodically; here at once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sink_task, "COMMIT_INTERVAL", 0.02)
        yield


@dataclass
class Run:
    """The result of a run over a topic."""

    names: set[str]
    letters: Sequence[QueuedLetter]
    failure: BaseException | None
    committed: int


def run(kinds: Sequence[str], tolerance: str, **more: str) -> Run:
    """Read a topic of these records with a task of a connector."""
    return asyncio.run(_run(kinds, tolerance, more))


async def _run(kinds: Sequence[str], tolerance: str, more: Mapping[str, str]) -> Run:
    broker, lakehouse = MemoryBroker(), MemoryLakehouse()
    await broker.create_topic(TOPIC)
    for offset, kind in enumerate(kinds):
        if kind in GOOD_KINDS:
            row = {"id": offset + 1, "name": f"row {offset}"}
            headers = [("__debezium.oldkey", HEADERLESS[kind])] if kind in HEADERLESS else []
            broker.append(TOPIC, change("c", row, 10 + offset), key({"id": offset + 1}), headers=headers)
        else:
            broker.append(TOPIC, POISON[kind][1], POISON[kind][0])
    feeds, failures = MemoryFeeds(broker), list[BaseException]()
    given = {
        "name": "items",
        "connector.class": "LakehouseSink",
        "topics": TOPIC,
        "key.converter": JSON,
        "value.converter": JSON,
        "batch.linger.ms": "0",
        "errors.tolerance": tolerance,
        "errors.deadletterqueue.topic.name": "dead",
        "errors.deadletterqueue.context.headers.enable": "true",
        **more,
    }
    config = sink_connector_config(given, WorkerDefaults({}, "1.0"))
    with WorkerThreads.start(2) as threads:
        factory = SinkTaskFactory(
            feeds, lakehouse, lambda database, options: MemoryRowSource(), threads, unlimited(), sources={}
        )
        task = await factory("items", 0, config, failures.append)
        await task.start()
        await eventually(lambda: bool(failures) or broker.committed("connect-items").get(PLACE) == len(kinds))
        await task.stop()
    rows = lakehouse.table("headrace", "shop_public_items", TableOptions()).rows().values()
    committed = broker.committed("connect-items").get(PLACE, 0)
    return Run({row["name"] for row in rows}, feeds.queues["dead"].letters, next(iter(failures), None), committed)


@settings(max_examples=15)
@given(records)
def test_with_tolerance_all_bad_records_are_dead_letters_and_all_good_ones_rows(kinds: list[str]) -> None:
    """Each dead letter equals its record and has the ten headers; all offsets are committed."""
    found = run(kinds, "all")
    bad = [(offset, kind) for offset, kind in enumerate(kinds) if kind not in GOOD_KINDS]
    assert found.failure is None
    assert found.committed == len(kinds)
    assert found.names == {f"row {offset}" for offset, kind in enumerate(kinds) if kind in GOOD_KINDS}
    assert [(letter.key, letter.value) for letter in found.letters] == [POISON[kind][:2] for _, kind in bad]
    for letter, (offset, kind) in zip(found.letters, bad, strict=True):
        context = {name.removeprefix("__connect.errors."): value for name, value in letter.headers}
        assert list(context) == HEADERS
        assert (context["topic"], context["partition"], context["offset"]) == (
            TOPIC.encode(), b"0", str(offset).encode()
        )  # fmt: skip
        assert (context["connector.name"], context["task.id"]) == (b"items", b"0")
        assert context["stage"] == POISON[kind][2].encode(), kind
        assert SECRET.encode() not in (context["exception.message"] or b"")


@settings(max_examples=15)
@given(records)
def test_without_tolerance_the_task_stops_before_the_first_bad_record(kinds: list[str]) -> None:
    """The trace names that record; no later record is written, and no later offset is committed."""
    found = run(kinds, "none")
    first = next((offset for offset, kind in enumerate(kinds) if kind not in GOOD_KINDS), None)
    if first is None:
        assert (found.failure, found.committed) == (None, len(kinds))
        return
    assert found.failure is not None
    trace = render(found.failure)
    assert f"Tolerance exceeded in error handler: {TOPIC}-0 at offset {first}, stage {POISON[kinds[first]][2]}" in trace
    assert f"Caused by: {BadRecord.__module__}" in trace
    assert SECRET not in trace
    assert found.committed <= first
    assert found.names <= {f"row {offset}" for offset in range(first)}


TRANSFORMS = {"transforms": "drop", "transforms.drop.type": "DropHeaders", "transforms.drop.headers": "x"}


@pytest.mark.parametrize("more", [{}, TRANSFORMS], ids=["plain", "transforms"])
@pytest.mark.parametrize("kind", sorted(POISON))
def test_each_poison_alone(kind: str, more: dict[str, str]) -> None:
    """Each kind of bad record alone is refused, also with transforms, which need complete records."""
    found = run(["good", kind, "good"], "all", **more)
    assert (len(found.letters), found.names, found.failure) == (1, {"row 0", "row 2"}, None)


@pytest.mark.parametrize("more", [{}, TRANSFORMS], ids=["plain", "transforms"])
@pytest.mark.parametrize("kind", sorted(HEADERLESS))
def test_no_record_is_refused_for_the_header_of_a_key_change(kind: str, more: dict[str, str]) -> None:
    """A key change header refuses neither its own record nor another one of its block."""
    found = run(["good", kind, "good"], "all", **more)
    assert (found.letters, found.names, found.failure) == ([], {"row 0", "row 1", "row 2"}, None)
