"""Tests of the comparison and repair of a table in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.lake.lake_actions import TOPIC
from support.sources.verify_world import World

from headrace.core.model.errors import Fatal, Retriable
from headrace.core.verify.verification import Verdict, Where
from headrace.ports import LogPosition, MergeCounts, TableOptions, TopicPartition
from headrace.runtime.verify.table_verifier import LakeProgress
from headrace_dev.memory import MemoryRowSource


@pytest.fixture
def world() -> World:
    """Return a source and a lake table with thirty equal rows."""
    world = World()
    for key in range(30):
        world.change(key, f"row {key}")
    world.settle()
    return world


def test_equal_tables_have_no_differences(world: World, tmp_path: Path) -> None:
    """The verifier compares every row of equal tables, finds no difference, and removes its digests."""
    verifier = world.verifier(tmp_path)
    assert list(verifier.differences()) == []
    assert verifier.rows == 30
    assert list(tmp_path.iterdir()) == []


def test_one_cell_is_named(world: World, tmp_path: Path) -> None:
    """A difference contains key and column of a wrong cell, without its value."""
    world.corrupt(17, "wrong")
    [found] = world.differences(tmp_path)
    assert (found.verdict, found.where, found.columns) == (Verdict.DIFFERENT, Where.BOTH, ("name",))
    assert found.key.to_pydict() == {"id": [17]}
    assert found.values == {}


def test_values_are_kept_on_request(world: World, tmp_path: Path) -> None:
    """A difference contains the value of the source, then that of the lake. A null is not quoted."""
    world.corrupt(17, None)
    [found] = world.differences(tmp_path, show=True)
    assert found.values == {"name": ("'row 17'", "null")}


def test_rows_of_one_side_are_named(world: World, tmp_path: Path) -> None:
    """The verifier finds rows that only the source has, and rows that only the lake has."""
    world.lose(3)
    del world.rows[5]
    found = world.differences(tmp_path, show=True)
    assert {(each.where, each.key["id"][0].as_py()) for each in found} == {(Where.SOURCE, 3), (Where.LAKE, 5)}


def test_every_type_of_difference_is_repaired(world: World, tmp_path: Path) -> None:
    """A repair corrects a wrong cell, a missing row and an extra row. The tables are equal afterwards."""
    world.corrupt(17, "wrong")
    world.lose(3)
    del world.rows[5]
    assert world.repair(tmp_path, world.differences(tmp_path)) == 3
    assert world.stored() == world.rows
    assert world.differences(tmp_path) == []


def test_a_change_after_the_repair_applies(world: World, tmp_path: Path) -> None:
    """A repaired row keeps its position, so that later change events replace it."""
    world.corrupt(17, "wrong")
    del world.rows[5]
    world.repair(tmp_path, world.differences(tmp_path))
    world.change(17, "later")
    world.change(5, "again")
    world.settle()
    assert (world.stored()[17], world.stored()[5]) == ("later", "again")


def test_a_repair_does_not_overwrite_a_later_change(world: World, tmp_path: Path) -> None:
    """A repair keeps a change that the connector applied after the repair read the offsets of the topic."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)
    ends = world.ends(TOPIC)
    world.change(17, "later")
    world.settle()
    world.rows[17] = "as it was read"
    world.ends = lambda topic: ends  # type: ignore[method-assign] # the offsets of that moment
    world.repair(tmp_path, differences)
    assert world.stored()[17] == "later"


def test_a_missing_table_is_created(tmp_path: Path) -> None:
    """If the lake table does not exist, all rows are only in the source, and the repair creates the table."""
    world = World()
    world.change(1, "one")
    world.publish()
    world.applied = 1  # the connector applied events without a result
    found = world.differences(tmp_path)
    assert [each.where for each in found] == [Where.SOURCE]
    world.repair(tmp_path, found)
    assert world.stored() == {1: "one"}


def test_no_progress_of_the_source_connector_is_unproven(world: World, tmp_path: Path) -> None:
    """Without progress of the source connector differences are unproven. The verifier waits once, not for every row."""
    world.confirms = False
    for key in range(5):
        world.corrupt(key, "wrong")
    found = world.differences(tmp_path, timeout=30.0)
    assert {each.verdict for each in found} == {Verdict.UNPROVEN}
    assert len(found) == 5
    assert world.time < 40


def test_a_row_that_changes_continuously_is_no_difference(world: World, tmp_path: Path) -> None:
    """The stored position of a row shows that it is newer than the row that was read from the source."""
    names = iter(range(10**6))
    usual = world.step

    def step() -> None:
        world.change(1, f"n{next(names)}")
        usual()

    world.step = step  # type: ignore[method-assign] # a source with continuous changes
    world.corrupt(17, "wrong")
    found = world.differences(tmp_path, timeout=20.0)
    assert {each.key["id"][0].as_py() for each in found if each.verdict is Verdict.DIFFERENT} == {17}
    assert {each.verdict for each in found if each.key["id"][0].as_py() == 1} <= {Verdict.EXPLAINED}


def test_errors_of_the_database_are_raised(world: World, tmp_path: Path) -> None:
    """The verifier raises the error of an unavailable database."""
    world.source.failures.append(Retriable("gone"))
    with pytest.raises(Retriable, match="gone"):
        world.differences(tmp_path)


def test_a_repair_needs_the_topic(world: World, tmp_path: Path) -> None:
    """A repair fails if the topic does not exist, because the repaired rows would have no offset."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)
    world.ends = lambda topic: {}  # type: ignore[method-assign] # the topic was deleted
    with pytest.raises(Fatal, match="does not exist any more"):
        world.repair(tmp_path, differences)


def test_a_row_that_is_deleted_during_the_repair_stays_deleted(world: World, tmp_path: Path) -> None:
    """If the connector deletes a row during the repair, the repair deletes the upserted row again by the ledger."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)
    world.plan = [("merge", 17, None)]
    world.repair(tmp_path, differences)
    assert not world.plan
    assert 17 not in world.stored()


def test_a_row_that_may_wait_for_its_delete_is_not_repaired(world: World, tmp_path: Path) -> None:
    """A repair does not delete a row without a proof that no change event of it follows.

    Such an event could omit cells, which only the stored row has.
    """
    world.confirms = False
    world.corrupt(17, "wrong")
    del world.rows[5]
    found = world.differences(tmp_path, timeout=10.0)
    assert {each.verdict for each in found} == {Verdict.UNPROVEN}
    assert world.repair(tmp_path, found) == 1
    assert world.stored() == world.rows | {5: "row 5"}


def test_a_row_deleted_in_the_source_is_not_repaired(world: World, tmp_path: Path) -> None:
    """A repair does not write a row that the source has deleted since, because its delete event follows."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)
    del world.rows[17]
    world.repair(tmp_path, differences)
    assert world.stored()[17] == "wrong"


def test_rows_that_change_during_the_repair_are_written(world: World, tmp_path: Path) -> None:
    """A repair is attempted again if its row is changed, deleted and inserted between the steps of the write."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)
    world.plan = [("merge", 17, "a"), ("stored", 17, None), ("merge", 17, "b")]
    world.repair(tmp_path, differences)
    assert not world.plan
    assert world.stored() == world.rows


def test_a_repair_reads_the_row_again_after_a_conflict(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each commit conflict with the task the repair reads the row from the source again."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)
    merge, names = world.lake.merge, iter(("first", "second"))

    def conflict(*arguments: Any) -> MergeCounts:
        name = next(names, None)
        if name is None:
            return merge(*arguments)
        world.rows[17] = name  # a change without an event
        raise Retriable("another writer changed the table in between")

    monkeypatch.setattr(world.lake, "merge", conflict)
    world.repair(tmp_path, differences)
    assert world.stored()[17] == "second"


def test_a_repair_keeps_the_offsets(world: World, tmp_path: Path) -> None:
    """The commit of a repair contains the connector's offsets unchanged."""
    world.corrupt(17, "wrong")
    before = world.lake.offsets("connect-sink")
    world.repair(tmp_path, world.differences(tmp_path))
    assert world.lake.offsets("connect-sink") == before
    carried = {"headrace.group", "headrace.offsets"}
    assert set(world.lake.summaries[-1]) == {"headrace.connector", "headrace.format-version", *carried}


def test_a_row_that_was_marked_as_deleted_is_repaired(tmp_path: Path) -> None:
    """With soft deletes a repair restores a marked row that the source has, and marks a row that it does not have."""
    world = World(options=TableOptions(soft_delete=True))
    for key in range(3):
        world.change(key, "right")
    world.change(0, None)
    world.settle()
    world.rows[0] = "back"
    del world.rows[1]
    found = world.differences(tmp_path)
    assert {(each.where, each.key["id"][0].as_py()) for each in found} == {(Where.SOURCE, 0), (Where.LAKE, 1)}
    world.repair(tmp_path, found)
    assert world.stored() == world.rows == {0: "back", 2: "right"}
    assert world.differences(tmp_path) == []


def test_a_task_that_causes_conflicts_is_paused(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first commit conflict the repair pauses the task during this write and during every later one."""
    merge, held = world.lake.merge, [False]
    calls: list[str] = []

    @contextmanager
    def paused() -> Iterator[None]:
        held[0] = True
        calls.append("pause")
        yield
        calls.append("resume")
        held[0] = False

    def conflict(*arguments: Any) -> MergeCounts:
        calls.append("merge")
        if not held[0]:
            raise Retriable("another writer changed the table in between")
        return merge(*arguments)

    world.corrupt(17, "wrong")
    world.corrupt(18, "wrong")
    first, second = world.differences(tmp_path)
    monkeypatch.setattr(world.lake, "merge", conflict)
    repair = world.repairing(tmp_path, paused)
    assert repair.repair([first]) + repair.repair([second]) == 2
    assert calls == ["merge", "pause", "merge", "resume", "pause", "merge", "resume"]
    assert world.stored() == world.rows


def test_a_repair_that_always_conflicts_advises_a_pause(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After repeated commit conflicts the repair fails, and the error advises to pause the connector."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)

    def conflict(*arguments: object) -> None:
        raise Retriable("another writer changed the table in between")

    monkeypatch.setattr(world.lake, "merge", conflict)
    with pytest.raises(Retriable, match=r"another writer .* pause it"):
        world.repair(tmp_path, differences)


ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class AdvancingConnector:
    """A source connector and a sink group whose positions increase by one with each sleep."""

    def __init__(self, published: int | None, group: int) -> None:
        self.source = MemoryRowSource()
        self.time = 0.0
        self.group = group
        self.queried_topics: list[str] = []
        self._publish(published)

    def _publish(self, published: int | None) -> None:
        self.source.position = LogPosition("postgresql", (100,), None if published is None else (published,))

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.group += 1
        known = self.source.position.published
        self._publish(None if known is None else known[0] + 1)

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        self.queried_topics.append(topic)
        return {ONE: 10, TWO: 0}

    def committed_offsets(self) -> Mapping[TopicPartition, int]:
        return {ONE: self.group}

    def wait(self, end: int, deadline: float = 60.0) -> bool:
        position = LogPosition("postgresql", (end,))
        return LakeProgress(self.source, self, "t", lambda: self.time, self.sleep).wait(position, deadline)


def test_source_connector_and_group_have_to_pass() -> None:
    """The source connector has published the position, then the group has committed the end of the topic."""
    connector = AdvancingConnector(published=5, group=0)
    assert connector.wait(7)
    assert (connector.group, connector.queried_topics) == (10, ["t"])


def test_the_group_counts_only_after_the_source_connector() -> None:
    """The group's offset proves nothing before the source connector has published, as the events are not in Kafka."""
    connector = AdvancingConnector(published=5, group=99)
    assert connector.wait(8)
    assert connector.source.position.published == (8,)


def test_a_source_without_published_positions_is_waited_for_once() -> None:
    """If the source reports no published position, the first wait ends at its deadline and the second one at once."""
    connector = AdvancingConnector(published=None, group=99)
    progress = LakeProgress(connector.source, connector, "t", lambda: connector.time, connector.sleep)
    assert not progress.wait(LogPosition("postgresql", (1,)), 5.0)
    assert connector.time == 5.0
    assert not progress.wait(LogPosition("postgresql", (1,)), 60.0)
    assert connector.time == 5.0


@pytest.mark.parametrize(
    ("known", "source", "differs"),
    [("known", "known", False), ("known", "other", True), ("known", None, False), (None, "other", False)],
)
def test_omitted_cells_of_a_history(known: str | None, source: str | None, differs: bool, tmp_path: Path) -> None:
    """A cell that the last event omits has its last known value.

    Nothing is known without such a value, and a null of the source may be what the event has omitted.
    """
    world = World(options=TableOptions(history=True))
    for key in range(3):
        world.change(key, "first")
        world.change(key, "second")
    world.settle()
    world.omit(1, known)
    world.rows[1] = source
    assert [each.columns for each in world.differences(tmp_path)] == ([("name",)] if differs else [])
