"""Tests of key changes in a sink task: the row under the new key has the cells of the row under the old key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import PLACEHOLDER, change, key
from support.task.sink_task_harness import FIRST, GROUP, TOPIC, Harness, flattened, running

from headrace.ports import TopicPartition
from headrace.runtime.threads import WorkerThreads
from headrace_dev.memory import MemoryLakehouse
from headrace_dev.memory.feed import MemoryBroker

pytestmark = pytest.mark.anyio

SECOND = TopicPartition(TOPIC, 1)
COLUMNS = {"id": 1, "name": ""}


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    """A harness with one topic of two partitions."""
    broker = MemoryBroker()
    await broker.create_topic(TOPIC, 2)
    with WorkerThreads.start(4) as threads:
        yield Harness(broker, MemoryLakehouse(), threads)


def insert(harness: Harness, number: int, lsn: int, name: str) -> None:
    harness.broker.append(TOPIC, change("c", {"id": number, "name": name}, lsn), key({"id": number}))


def read(harness: Harness, number: int, name: str) -> None:
    row = change("r", {"id": number, "name": name}, 900, snapshot="true")
    harness.broker.append(TOPIC, row, key({"id": number}))


def delete(harness: Harness, number: int, lsn: int, new: int | None = None) -> None:
    headers = [] if new is None else [("__debezium.newkey", key({"id": new}))]
    deletion = change("d", None, lsn, columns=COLUMNS)
    harness.broker.append(TOPIC, deletion, key({"id": number}), headers=headers)
    harness.broker.append(TOPIC, None, key({"id": number}), headers=headers)


def create_moved(
    harness: Harness, number: int, lsn: int, old: int, partition: int = 0, name: str = PLACEHOLDER
) -> None:
    row = change("c", {"id": number, "name": name}, lsn)
    headers = [("__debezium.oldkey", key({"id": old}))]
    harness.broker.append(TOPIC, row, key({"id": number}), partition, headers)


def names(harness: Harness) -> dict[int, str | None]:
    return {row["id"]: row["name"] for row in harness.rows().values()}


async def test_a_row_keeps_its_own_value_when_its_old_key_is_used_again(harness: Harness) -> None:
    """The create event of a key change is in another partition, and arrives after a new row with the old key."""
    insert(harness, 117, 100, "FIRST")
    delete(harness, 117, 200, new=158)
    insert(harness, 117, 300, "SECOND")
    delete(harness, 117, 400)
    create_moved(harness, 158, 200, old=117, partition=1)
    async with running(harness.task(linger=0.2)):
        await eventually(lambda: harness.broker.committed(GROUP).get(SECOND, 0) == 1 or bool(harness.failures))
        await eventually(lambda: harness.offset() == 6 or bool(harness.failures))
    assert not harness.failures
    assert names(harness) == {158: "FIRST"}


async def test_a_snapshot_that_reads_ahead_supplies_nothing_to_a_key_change(harness: Harness) -> None:
    """Without a database the task fails: it does not use the value of the new row 1, which a snapshot read early."""
    read(harness, 1, "new")
    read(harness, 2, "old")
    delete(harness, 1, 100, new=2)
    create_moved(harness, 2, 100, old=1)
    insert(harness, 1, 200, "new")
    async with running(harness.task(linger=0.2)):
        await eventually(lambda: bool(harness.failures) or harness.offset() == 6)
    assert "omits column(s) name" in str(harness.failures[0])
    assert "no database is configured; configure reselect.database.*, or set" in str(harness.failures[0])


@pytest.mark.parametrize("most", [1, 2])
async def test_small_batches_keep_both_halves_together(harness: Harness, most: int) -> None:
    """The table carries over a value that the create event omits, also if a batch has only one or two records."""
    insert(harness, 1, 10, "one")
    async with running(harness.task(max_records=most)):
        await eventually(lambda: harness.offset() == 1)
        delete(harness, 1, 20, new=2)
        create_moved(harness, 2, 20, old=1)
        await eventually(lambda: harness.offset() == 4 or bool(harness.failures))
    assert not harness.failures
    assert names(harness) == {2: "one"}


async def test_a_half_that_is_held_does_not_keep_its_topic_paused(harness: Harness) -> None:
    """A half in another chunk than the first one fills a batch of one record only until it is held: reading goes on."""
    insert(harness, 1, 10, "one")
    async with running(harness.task(max_records=1)) as task:
        await eventually(lambda: harness.offset() == 1)
        delete(harness, 1, 20, new=2)
        await eventually(lambda: task.reports()[0].waiting_bytes > 0 and task.waiting("shop_public_items") == 0)
        create_moved(harness, 2, 20, old=1)
        await eventually(lambda: harness.offset() == 4 or bool(harness.failures))
    assert not harness.failures
    assert names(harness) == {2: "one"}


async def test_a_pause_between_the_halves_does_not_write_the_first(harness: Harness) -> None:
    """The task neither writes nor commits the first half before a pause, so the next worker reads both halves."""
    insert(harness, 1, 10, "one")
    async with running(harness.task()) as task:
        await eventually(lambda: harness.offset() == 1)
        delete(harness, 1, 20, new=2)
        insert(harness, 3, 30, "three")
        await eventually(lambda: names(harness).get(3) == "three")
        await task.pause()
        assert (names(harness), harness.offset()) == ({1: "one", 3: "three"}, 1)
    create_moved(harness, 2, 20, old=1, partition=1)
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 4 or bool(harness.failures))
    assert not harness.failures
    assert names(harness) == {2: "one", 3: "three"}


@pytest.mark.parametrize("most", [1, 500_000])
async def test_halves_in_two_partitions_wait_for_each_other(harness: Harness, most: int) -> None:
    """The task waits for the second half, although the old key is reused. It writes other rows of both partitions."""
    insert(harness, 1, 10, "one")
    async with running(harness.task(max_records=most)):
        await eventually(lambda: harness.offset() == 1)
        delete(harness, 1, 20, new=2)
        insert(harness, 1, 30, "next")
        insert(harness, 3, 40, "three")
        await eventually(lambda: names(harness).get(3) == "three")
        assert (names(harness), harness.offset()) == ({1: "one", 3: "three"}, 1)
        create_moved(harness, 2, 20, old=1, partition=1)
        await eventually(lambda: harness.offset() == 5 or bool(harness.failures))
    assert not harness.failures
    assert names(harness) == {1: "next", 2: "one", 3: "three"}
    assert harness.broker.committed(GROUP)[SECOND] == 1


@pytest.mark.parametrize("restarts", [False, True])
async def test_flattened_halves_are_in_one_commit_although_the_delete_names_no_table(
    harness: Harness, restarts: bool
) -> None:
    """The fields of the rows name their table, the headers of the delete only ``op`` and the position.

    A worker may begin to read with the delete, before it knows the topic's table.
    """

    def row(op: str, number: int, lsn: int, name: str, headers: list[tuple[str, bytes]]) -> None:
        source = {"__name": "shop", "__db": "shop", "__schema": "public", "__table": "items", "__lsn": lsn}
        value = flattened({"id": number, "name": name, "__op": op} | source)
        harness.broker.append(TOPIC, value, key({"id": number}), 0, headers)

    def added(op: str, lsn: int) -> list[tuple[str, bytes]]:
        return [("__op", op.encode()), ("__source_lsn", b"%d" % lsn)]

    def deleted() -> None:
        headers = [*added("d", 20), ("__debezium.newkey", key({"id": 2}))]
        harness.broker.append(TOPIC, None, key({"id": 1}), headers=headers)

    row("c", 1, 10, "one", added("c", 10))
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
        if not restarts:
            deleted()
            row("c", 2, 20, PLACEHOLDER, [*added("c", 20), ("__debezium.oldkey", key({"id": 1}))])
            await eventually(lambda: harness.offset() == 3 or bool(harness.failures))
    async with running(harness.task()):
        if restarts:
            deleted()
            row("c", 2, 20, PLACEHOLDER, [*added("c", 20), ("__debezium.oldkey", key({"id": 1}))])
            await eventually(lambda: harness.offset() == 3 or bool(harness.failures))
    assert not harness.failures
    assert names(harness) == {2: "one"}


async def test_a_second_half_that_arrives_first_waits(harness: Harness) -> None:
    """A create event that omits cells waits for the delete of the old key. A complete create event does not wait."""
    insert(harness, 1, 10, "one")
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
        create_moved(harness, 2, 20, old=1, partition=1)
        create_moved(harness, 4, 50, old=3, partition=1, name="four")
        await eventually(lambda: names(harness) == {1: "one", 4: "four"})
        delete(harness, 1, 20, new=2)
        delete(harness, 3, 50, new=4)
        await eventually(lambda: harness.offset() == 5 or bool(harness.failures))
    assert not harness.failures
    assert names(harness) == {2: "one", 4: "four"}
    assert harness.broker.committed(GROUP)[SECOND] == 2


async def test_a_null_of_an_array_is_carried_from_the_other_partition(harness: Harness) -> None:
    """The table carries over the null of an array, because the event alone does not show that the null is a value."""
    harness.broker.append(TOPIC, with_null_array(change("c", {"id": 1, "name": "one"}, 10)), key({"id": 1}))
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
        row = with_null_array(change("c", {"id": 2, "name": "one"}, 20))
        headers = [("__debezium.oldkey", key({"id": 1}))]
        harness.broker.append(TOPIC, row, key({"id": 2}), 1, headers)
        delete(harness, 1, 20, new=2)
        await eventually(lambda: harness.offset() == 3 or bool(harness.failures))
    assert not harness.failures
    assert harness.rows() == {"=2": {"id": 2, "name": "one", "tags": None}}


def with_null_array(document: bytes) -> bytes:
    """Return a change whose row has an array column with the value null."""
    value = json.loads(document)
    after = value["schema"]["fields"][0]
    after["fields"].append({"type": "array", "optional": True, "items": {"type": "string"}, "field": "tags"})
    value["payload"]["after"]["tags"] = None
    return json.dumps(value).encode()


def of_transaction(document: bytes, number: int) -> bytes:
    value = json.loads(document)
    value["payload"]["source"]["txId"] = number
    return json.dumps(value).encode()


def move(harness: Harness, old: int, new: int, lsn: int, name: str = PLACEHOLDER, transaction: int = 7) -> None:
    """Append both halves of a key change to one partition, with the tombstone that Debezium sends between them."""
    away = of_transaction(change("d", None, lsn, columns=COLUMNS), transaction)
    into = of_transaction(change("c", {"id": new, "name": name}, lsn), transaction)
    headers = [("__debezium.newkey", key({"id": new}))]
    harness.broker.append(TOPIC, away, key({"id": old}), headers=headers)
    harness.broker.append(TOPIC, None, key({"id": old}), headers=headers)
    harness.broker.append(TOPIC, into, key({"id": new}), headers=[("__debezium.oldkey", key({"id": old}))])


@pytest.mark.parametrize("stored", [False, True])
async def test_a_row_that_moves_onto_a_used_key_stays(harness: Harness, stored: bool) -> None:
    """After ``UPDATE t SET id = id + 1`` the new row 2 stays.

    The delete of the old row 2 follows the create of the new one.
    """
    insert(harness, 1, 10, "one")
    insert(harness, 2, 11, "two")
    async with running(harness.task()):
        if stored:
            await eventually(lambda: harness.offset() == 2)
        move(harness, 1, 2, 20)
        move(harness, 2, 3, 21)
        await eventually(lambda: harness.offset() == 8 or bool(harness.failures))
    assert not harness.failures
    assert names(harness) == {2: "one", 3: "two"}


async def test_a_row_that_moves_twice_leaves_no_intermediate_row(harness: Harness) -> None:
    """If no row had the intermediate key, the table has no row with it after the transaction."""
    insert(harness, 1, 10, "one")
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
        move(harness, 1, 2, 20)
        move(harness, 2, 3, 21)
        await eventually(lambda: harness.offset() == 7 or bool(harness.failures))
    assert not harness.failures
    assert names(harness) == {3: "one"}


async def test_a_reused_key_is_kept_over_batches_and_restarts(harness: Harness) -> None:
    """A row that moved onto a used key stays, also if another worker reads the second move, once or twice."""
    insert(harness, 1, 10, "one")
    insert(harness, 2, 11, "two")
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 2)
        move(harness, 1, 2, 20, "one")
        await eventually(lambda: harness.offset() == 5)
    async with running(harness.task()):
        move(harness, 2, 3, 21, "two")
        await eventually(lambda: harness.offset() == 8 or bool(harness.failures))
    assert names(harness) == {2: "one", 3: "two"}
    harness.broker.group(GROUP).committed[FIRST] = 2
    async with running(harness.task(max_records=1)):
        await eventually(lambda: harness.offset() == 8 or bool(harness.failures))
    assert not harness.failures
    assert names(harness) == {2: "one", 3: "two"}
