"""Source positions that restart fail the task once; repeated records do not (``merge.md`` section 2.6)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from contracts.pipeline_suite import opened
from properties.columns import changes_of, table_id
from properties.reference_model import Event
from support.lake.lake_actions import commit, text

from headrace.core.batch.combine import combine
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.model.errors import Fatal
from headrace.core.model.events import CellState, Changes, Operation, RowVersion, Truncate
from headrace.ports import TableOptions
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace_dev.memory import MemoryLakehouse, MemoryTable

UUIDS = {1: "3e11fa47-71ca-11e1-9e33-c80aa9429562", 2: "7b21fa47-71ca-11e1-9e33-c80aa9429562"}


@dataclass(frozen=True)
class Log:
    """The log of a server: ``server_id`` of its transactions, and what its connector sends of them."""

    server_id: int
    file: int
    connector: str = "mysql"
    gtids: bool = True

    def source(self, number: int, place: int, minute: int) -> dict[str, Any]:
        """The source block of a change in transaction ``number``."""
        uuid = UUIDS[self.server_id]
        gtid = f"0-{self.server_id}-{number}" if self.connector == "mariadb" else f"{uuid}:{number}"
        return {
            "connector": self.connector,
            "name": "shop",
            "db": "shop",
            "table": "orders",
            "ts_ms": minute * 60_000,
            "snapshot": "false",
            "server_id": self.server_id,
            "gtid": gtid if self.gtids else None,
            "file": f"mysql-bin.{self.file:06d}",
            "pos": place,
            "row": 0,
        }


@dataclass(frozen=True)
class Record:
    """A record as decoders read it."""

    key: bytes
    value: bytes
    offset: int
    partition: int = 0
    timestamp: int = 0
    headers: Sequence[tuple[str, bytes]] = ()


def record(
    log: Log, op: str, key: int, number: int, offset: int, partition: int = 0, place: int | None = None, minute: int = 0
) -> Record:
    """Return a change of the row ``key`` by transaction ``number``, which is its value."""
    source = log.source(number, number if place is None else place, minute)
    after = {"id": key, "a": number} if op in "cu" else None
    value = {"op": op, "source": source, "before": None, "after": after}
    return Record(json.dumps({"id": key}).encode(), json.dumps(value).encode(), offset, partition)


class Worker:
    """A worker that begins to read, with the epoch of its configuration."""

    def __init__(self, table: MemoryTable, epoch: int = 0) -> None:
        self._decoder = TopicDecoder("orders", EnvelopeOptions(False, False, position_epoch=epoch))
        self._pipeline = opened("shop.orders", table)
        self._table = table

    def write(self, *records: Record) -> dict[int, int]:
        """Write the records of one or more partitions as one batch; return the values of all rows."""
        contents = []
        for partition in sorted({each.partition for each in records}):
            contents += self._decoder.decode([each for each in records if each.partition == partition]).events
        changes = [each for each in contents if isinstance(each, Changes)]
        truncates = [each for each in contents if isinstance(each, Truncate)]
        for content in (*([combine(changes)] if changes else ()), *truncates):
            self._pipeline.write(content, commit())
        return {row["id"]: row["a"] for row in self._table.rows().values()}


@pytest.fixture
def table() -> MemoryTable:
    return MemoryLakehouse().table("shop", "orders", TableOptions())


LOGS = [
    (Log(1, 100, connector, gtids), Log(2, 3, connector, gtids))
    for connector in ("mysql", "mariadb")
    for gtids in (True, False)
]


@pytest.mark.parametrize("minute", [0, 10])
@pytest.mark.parametrize("how", ["one batch", "two batches", "restart"])
@pytest.mark.parametrize(("primary", "replica"), LOGS, ids=str)
def test_a_failover_fails_the_table_until_the_epoch_is_raised(
    table: MemoryTable, primary: Log, replica: Log, how: str, minute: int
) -> None:
    """The change after it is never dropped. With the next epoch, all records that are read again count as they should.

    That includes records from before the failover, which keep the epoch that they had.
    """
    before = [record(primary, "c", 1, 8, 0), record(primary, "u", 1, 9, 1)]
    after = [record(replica, "u", 1, 10, 2, minute=minute), record(replica, "u", 1, 11, 3, minute=minute)]
    worker = Worker(table)
    if how != "one batch":
        worker.write(*before)
    if how == "restart":
        worker = Worker(table)
    for _ in range(2):
        with pytest.raises(
            Fatal, match=r"orders-0 at offset 2 is .*server_id 2.* file 3, position 10.*server_id 1"
        ) as error:
            worker.write(*([*before, *after] if how == "one batch" else after))
        assert "file 100, position 9" in str(error.value)
        assert "set source.position.epoch to 1" in str(error.value)
    raised = Worker(table, epoch=1)
    assert raised.write(*before) == {1: 9}
    assert raised.write(*before, *after[:1]) == {1: 10}
    assert Worker(table, epoch=1).write(*before, *after) == {1: 11}
    assert Worker(table, epoch=1).write(record(replica, "u", 1, 12, 4)) == {1: 12}


def test_the_log_of_another_replica_has_the_same_servers(table: MemoryTable) -> None:
    """A connector with GTIDs connects to another replica: server_id and UUID stay, files and positions do not."""
    Worker(table).write(record(Log(1, 100), "c", 1, 8, 0), record(Log(1, 100), "c", 2, 9, 1))
    with pytest.raises(Fatal, match="new change of server_id 1"):
        Worker(table).write(record(Log(1, 3), "u", 1, 10, 2))
    assert Worker(table, epoch=1).write(record(Log(1, 3), "u", 1, 10, 2)) == {1: 10, 2: 9}


@pytest.mark.parametrize("gtids", [True, False])
def test_a_log_whose_positions_are_higher_needs_nothing(table: MemoryTable, gtids: bool) -> None:
    """No change can be dropped: each is higher than all before it. What the connector sends again is sent in order."""
    primary, replica = Log(1, 3, gtids=gtids), Log(2, 100, gtids=gtids)
    worker = Worker(table)
    worker.write(record(primary, "c", 1, 8, 0), record(primary, "u", 1, 9, 1))
    assert worker.write(record(replica, "u", 1, 10, 2)) == {1: 10}
    back = record(Log(1, 4, gtids=gtids), "u", 1, 12, 3)
    with pytest.raises(Fatal, match="server_id 1"):
        worker.write(back)
    assert Worker(table, epoch=1).write(back) == {1: 12}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("gtids", [True, False])
def test_changes_of_several_servers_in_one_log_may_be_sent_again(
    table: MemoryTable, gtids: bool, restarts: bool
) -> None:
    """A log with transactions of two primaries, from which a restarted connector sends a range again."""
    one, two = Log(1, 100, gtids=gtids), Log(2, 100, gtids=gtids)
    sent = [(one, 70, 1), (two, 5, 2), (one, 71, 3), (two, 6, 4)]
    worker = Worker(table)
    worker.write(*(record(log, "u", 1, number, place, place=place) for log, number, place in sent))
    again = [record(log, "u", 1, number, 10 + place, place=place) for log, number, place in sent]
    for each in again:
        worker = Worker(table) if restarts else worker
        assert worker.write(each) == {1: 6}
    assert worker.write(*again, record(one, "u", 1, 72, 20, place=5)) == {1: 72}


def test_a_partition_that_is_behind_is_not_a_restart(table: MemoryTable) -> None:
    """Each partition is compared with itself: another one may be read further, also across a truncate."""
    log, worker = Log(1, 100), Worker(table)
    worker.write(record(log, "c", 1, 50, 0), record(log, "c", 1, 51, 1))
    worker.write(record(log, "t", 0, 60, 2))
    late = record(log, "c", 2, 40, 0, partition=1)
    assert worker.write(late) == {}
    assert Worker(table).write(late, record(log, "c", 3, 61, 1, partition=1)) == {3: 61}


def test_a_truncate_drops_no_change_that_comes_after_it_on_another_server(table: MemoryTable) -> None:
    """The change is in another partition, in which all positions are lower than that of the truncate."""
    primary, replica = Log(1, 100), Log(2, 3)
    Worker(table).write(record(Log(1, 1), "c", 1, 1, 0, partition=1))
    Worker(table).write(record(primary, "t", 0, 60, 0))
    after = record(replica, "c", 2, 61, 1, partition=1, minute=5)
    with pytest.raises(Fatal, match=r"orders-1 at offset 1 .*although records of server_id 1.* reached .* file 100"):
        Worker(table).write(after)
    assert Worker(table, epoch=1).write(after) == {2: 61}


def test_a_truncate_at_which_positions_start_again(table: MemoryTable) -> None:
    """It fails the table as a change does, and removes the rows with the next epoch."""
    Worker(table).write(record(Log(1, 100), "c", 1, 8, 0))
    truncate = record(Log(2, 3), "t", 0, 9, 1)
    with pytest.raises(Fatal, match=r"source\.position\.epoch to 1"):
        Worker(table).write(truncate)
    assert Worker(table, epoch=1).write(truncate) == {}


@pytest.mark.parametrize("gtids", [True, False])
def test_all_partitions_need_one_answer(table: MemoryTable, gtids: bool) -> None:
    """Partitions that were read less far get the new epoch where their records reach the log of the other server."""
    primary, replica = Log(1, 100, gtids=gtids), Log(2, 3, gtids=gtids)
    Worker(table).write(record(primary, "c", 1, 8, 0), record(primary, "c", 2, 7, 0, partition=1))
    with pytest.raises(Fatal):
        Worker(table).write(record(replica, "u", 1, 30, 1))
    for _ in range(2):  # read once more after a kill
        others = [
            record(primary, "u", 2, 9, 1, partition=1),
            record(replica, "u", 2, 31, 2, partition=1),
            record(primary, "c", 3, 9, 0, partition=2),
            record(replica, "u", 3, 32, 1, partition=2),
        ]
        raised = Worker(table, epoch=1)
        assert raised.write(record(replica, "u", 1, 30, 1), *others) == {1: 30, 2: 31, 3: 32}


def test_a_second_failover_needs_a_second_answer(table: MemoryTable) -> None:
    """A partition that was not read in between finds both places."""
    logs = [Log(1, 100), Log(2, 50), Log(1, 3)]
    first = [record(log, "c", 1, 10 + place, place) for place, log in enumerate(logs)]
    other = [record(log, "c", 2, 20 + place, place, partition=1) for place, log in enumerate(logs)]
    Worker(table).write(first[0], other[0])
    for epoch in (1, 2):
        with pytest.raises(Fatal, match=f"source.position.epoch to {epoch}"):
            Worker(table, epoch=epoch - 1).write(*first[1:])
    assert Worker(table, epoch=2).write(*first, *other) == {1: 12, 2: 22}
    assert Worker(table, epoch=2).write(*other[1:2]) == {1: 12, 2: 22}


def test_an_epoch_that_is_raised_without_a_restart_counts_at_once(table: MemoryTable) -> None:
    """After a restore from a backup, a server may send the same GTIDs again: only the operator knows."""
    log = Log(1, 100)
    Worker(table).write(record(log, "c", 1, 8, 0))
    Worker(table).write(record(log, "u", 1, 9, 1))
    assert Worker(table).write(record(log, "u", 1, 8, 2)) == {1: 9}
    assert Worker(table, epoch=1).write(record(log, "u", 1, 8, 2)) == {1: 8}


def test_records_without_servers_have_no_part_in_it(table: MemoryTable) -> None:
    """Flattened records, for example, may have a position without server_id and gtid."""

    def unnamed(each: Record) -> Record:
        value = json.loads(each.value)
        value["source"] |= {"server_id": None, "gtid": None}
        return replace(each, value=json.dumps(value).encode())

    worker = Worker(table)
    worker.write(record(Log(1, 100), "c", 1, 8, 0))
    assert worker.write(unnamed(record(Log(2, 3), "u", 1, 9, 1))) == {1: 8}


HOUR = 3_600_000_000


@pytest.fixture
def pipeline(table: MemoryTable) -> TablePipeline:
    return opened("shop.orders", table)


def event(operation: Operation, position: int, offset: int, hour: float, key: int = 1) -> Event:
    version = RowVersion(text(position), "t", 0, offset, int(hour * HOUR))
    return Event(operation, key, version, {"a": (CellState.VALUE, position)})


def write(pipeline: TablePipeline, *events: Event) -> None:
    pipeline.write(changes_of(list(events)), commit())


def test_positions_that_start_again_below_a_row(pipeline: TablePipeline) -> None:
    """An update a day later with a later offset but a lower position than the stored row fails the task."""
    write(pipeline, event(Operation.CREATE, 1000, 0, 0))
    with pytest.raises(Fatal, match=r"t-0 at offset 1 has position \S+10, the stored row has \S+1000.* 86400 s"):
        write(pipeline, event(Operation.UPDATE, 10, 1, 24))


def test_a_record_before_the_row_is_read_again(pipeline: TablePipeline, table: MemoryTable) -> None:
    """A repeated record with a lower position is dropped, although its source time is later than the stored row's."""
    before, long_statement = event(Operation.UPDATE, 100, 0, 2), event(Operation.UPDATE, 200, 1, 0.5)
    write(pipeline, before, long_statement)
    again = opened("shop.orders", table)
    write(again, before)
    write(again, before, long_statement)
    assert [row["a"] for row in table.rows().values()] == [200]


def test_positions_that_start_again_below_a_delete(pipeline: TablePipeline, table: MemoryTable) -> None:
    """An insert a day later with a position below the row's delete fails the task. A late update is dropped."""
    write(pipeline, event(Operation.CREATE, 1000, 0, 0))
    write(pipeline, event(Operation.DELETE, 1001, 1, 0))
    write(pipeline, event(Operation.UPDATE, 10, 2, 0.5), event(Operation.CREATE, 1002, 3, 0.5, key=2))
    assert list(table.rows()) == ["=2"]
    with pytest.raises(Fatal, match=r"t-0 at offset 4 has position \S+11, the row's delete has \S+1001 "):
        write(pipeline, event(Operation.CREATE, 11, 4, 24), event(Operation.CREATE, 1003, 5, 24, key=3))


def test_positions_that_start_again_below_a_truncate(pipeline: TablePipeline, table: MemoryTable) -> None:
    """A truncate or insert a day later with a position below the last truncate fails. A repeated truncate does not."""
    first, second = truncate(1001, 1, 0), truncate(1005, 2, 0)
    write(pipeline, event(Operation.CREATE, 1000, 0, 0))
    for each in (first, second, first):
        pipeline.write(each, commit())
    for again in (truncate(10, 3, 24), changes_of([event(Operation.CREATE, 10, 3, 24)])):
        with pytest.raises(Fatal, match=r"t-0 at offset 3 has position \S+10, the table's last truncate has \S+1005 "):
            pipeline.write(again, commit())
    assert not table.rows()


def truncate(position: int, offset: int, hour: int) -> Truncate:
    return Truncate(table_id(0), RowVersion(text(position), "t", 0, offset, hour * HOUR))
