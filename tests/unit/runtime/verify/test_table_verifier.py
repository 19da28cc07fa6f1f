"""Comparing and mending a table in memory: what is said, and what is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from contracts.lake_actions import TOPIC
from verify_world import World

from headrace.core.model.errors import Fatal, Retriable
from headrace.core.verify.verification import Verdict, Where
from headrace.ports import MergeCounts, TableOptions


@pytest.fixture
def world() -> World:
    """Thirty rows that are the same on both sides."""
    world = World()
    for key in range(30):
        world.change(key, f"row {key}")
    world.settle()
    return world


def test_equal_tables_have_no_differences(world: World, tmp_path: Path) -> None:
    """Nothing is found, every row was looked at, and no digest is left behind."""
    verifier = world.verifier(tmp_path)
    assert list(verifier.differences()) == []
    assert verifier.rows == 30
    assert list(tmp_path.iterdir()) == []


def test_one_cell_is_named(world: World, tmp_path: Path) -> None:
    """By key and column, without its value."""
    world.corrupt(17, "wrong")
    [found] = world.differences(tmp_path)
    assert (found.verdict, found.where, found.columns) == (Verdict.DIFFERENT, Where.BOTH, ("name",))
    assert found.key.to_pydict() == {"id": [17]}
    assert found.values == {}


def test_values_are_kept_when_asked_for(world: World, tmp_path: Path) -> None:
    """Source first, then lake; a null is no text."""
    world.corrupt(17, None)
    [found] = world.differences(tmp_path, show=True)
    assert found.values == {"name": ("'row 17'", "null")}


def test_rows_of_one_side_are_named(world: World, tmp_path: Path) -> None:
    """What the lake lost, and what the source does not have."""
    world.lose(3)
    del world.rows[5]
    found = world.differences(tmp_path, show=True)
    assert {(each.where, each.key["id"][0].as_py()) for each in found} == {(Where.SOURCE, 3), (Where.LAKE, 5)}


def test_every_kind_of_difference_is_mended(world: World, tmp_path: Path) -> None:
    """A wrong cell, a lost row and a row too many; afterwards the tables are equal."""
    world.corrupt(17, "wrong")
    world.lose(3)
    del world.rows[5]
    assert world.repair(tmp_path, world.differences(tmp_path)) == 3
    assert world.stored() == world.rows
    assert world.differences(tmp_path) == []


def test_a_change_after_the_repair_applies(world: World, tmp_path: Path) -> None:
    """The repaired row keeps its position, so whatever the stream brings later wins."""
    world.corrupt(17, "wrong")
    del world.rows[5]
    world.repair(tmp_path, world.differences(tmp_path))
    world.change(17, "later")
    world.change(5, "again")
    world.settle()
    assert (world.stored()[17], world.stored()[5]) == ("later", "again")


def test_a_repair_gives_way_to_what_was_applied_meanwhile(world: World, tmp_path: Path) -> None:
    """The row changed after the offsets were asked for and before it was written: the change stays."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)
    ends = world.ends(TOPIC)
    world.change(17, "later")
    world.settle()
    world.rows[17] = "as it was read"
    world.ends = lambda topic: ends  # type: ignore[method-assign] # the world stands still at that moment
    world.repair(tmp_path, differences)
    assert world.stored()[17] == "later"


def test_a_table_that_is_not_there_is_made(tmp_path: Path) -> None:
    """All rows are only in the source; the repair creates the table."""
    world = World()
    world.change(1, "one")
    world.publish()
    world.applied = 1  # events that left no trace
    found = world.differences(tmp_path)
    assert [each.where for each in found] == [Where.SOURCE]
    world.repair(tmp_path, found)
    assert world.stored() == {1: "one"}


def test_without_progress_of_the_source_connector_the_verdict_says_so(world: World, tmp_path: Path) -> None:
    """Nothing proves that the lake should have the row by now; the wait is not repeated for every row."""
    world.confirms = False
    for key in range(5):
        world.corrupt(key, "wrong")
    found = world.differences(tmp_path, patience=30.0)
    assert {each.verdict for each in found} == {Verdict.UNPROVEN}
    assert len(found) == 5
    assert world.time < 40


def test_a_row_that_never_stands_still_is_no_difference(world: World, tmp_path: Path) -> None:
    """Its stored position tells that it is newer than what was read."""
    names = iter(range(10**6))
    usual = world.step

    def step() -> None:
        world.change(1, f"n{next(names)}")
        usual()

    world.step = step  # type: ignore[method-assign] # a source that never rests
    world.corrupt(17, "wrong")
    found = world.differences(tmp_path, patience=20.0)
    assert {each.key["id"][0].as_py() for each in found if each.verdict is Verdict.DIFFERENT} == {17}
    assert {each.verdict for each in found if each.key["id"][0].as_py() == 1} <= {Verdict.EXPLAINED}


def test_errors_of_the_edges_come_through(world: World, tmp_path: Path) -> None:
    """A database that is gone says so."""
    world.source.failures.append(Retriable("gone"))
    with pytest.raises(Retriable, match="gone"):
        world.differences(tmp_path)


def test_a_repair_needs_the_topic(world: World, tmp_path: Path) -> None:
    """Without offsets there is no place for the repaired rows."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)
    world.ends = lambda topic: {}  # type: ignore[method-assign] # the topic was deleted
    with pytest.raises(Fatal, match="does not exist any more"):
        world.repair(tmp_path, differences)


def test_a_row_that_is_deleted_meanwhile_stays_deleted(world: World, tmp_path: Path) -> None:
    """No gate holds an upsert back where no row stands; the ledger tells of it afterwards."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)
    world.plan = [("merge", 17, None)]
    world.repair(tmp_path, differences)
    assert not world.plan
    assert 17 not in world.stored()


def test_a_row_that_may_wait_for_its_delete_is_left(world: World, tmp_path: Path) -> None:
    """Nothing proves that no change of it is on its way, and a change that finds no row to keep cells of has nowhere to
    go."""
    world.confirms = False
    world.corrupt(17, "wrong")
    del world.rows[5]
    found = world.differences(tmp_path, patience=10.0)
    assert {each.verdict for each in found} == {Verdict.UNPROVEN}
    assert world.repair(tmp_path, found) == 1
    assert world.stored() == world.rows | {5: "row 5"}


def test_a_row_that_is_deleted_before_it_is_written_is_left(world: World, tmp_path: Path) -> None:
    """Its delete is on its way, behind other changes perhaps."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)
    del world.rows[17]
    world.repair(tmp_path, differences)
    assert world.stored()[17] == "wrong"


def test_rows_that_never_rest_are_written_in_the_end(world: World, tmp_path: Path) -> None:
    """Changed, deleted and made anew between the steps of one write: the next attempt sees how it ended."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)
    world.plan = [("merge", 17, "a"), ("stored", 17, None), ("merge", 17, "b")]
    world.repair(tmp_path, differences)
    assert not world.plan
    assert world.stored() == world.rows


def test_a_repair_tries_again_with_a_fresh_look(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task commits first, again and again, and the row changes meanwhile."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)
    merge, names = world.lake.merge, iter(("first", "second"))

    def conflict(*arguments: Any) -> MergeCounts:
        name = next(names, None)
        if name is None:
            return merge(*arguments)
        world.rows[17] = name  # a change that nobody captures
        raise Retriable("another writer changed the table in between")

    monkeypatch.setattr(world.lake, "merge", conflict)
    world.repair(tmp_path, differences)
    assert world.stored()[17] == "second"


def test_a_repair_carries_the_offsets_on(world: World, tmp_path: Path) -> None:
    """Only the connector's own commits move them."""
    world.corrupt(17, "wrong")
    before = world.lake.offsets("connect-sink")
    world.repair(tmp_path, world.differences(tmp_path))
    assert world.lake.offsets("connect-sink") == before
    carried = {"headrace.group", "headrace.offsets"}
    assert set(world.lake.summaries[-1]) == {"headrace.connector", "headrace.format-version", *carried}


def test_a_row_that_was_marked_as_deleted_is_mended(tmp_path: Path) -> None:
    """Where deleted rows stay, one that the source has is missing, and one that it does not have is marked."""
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


def test_a_task_that_is_always_first_is_asked_to_rest(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the time of the write, and only after it was first; from then on at once."""
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


def test_a_repair_that_loses_against_the_task_says_what_to_do(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commits to one table exclude each other; it is not tried for ever."""
    world.corrupt(17, "wrong")
    differences = world.differences(tmp_path)

    def conflict(*arguments: object) -> None:
        raise Retriable("another writer changed the table in between")

    monkeypatch.setattr(world.lake, "merge", conflict)
    with pytest.raises(Retriable, match=r"another writer .* pause it"):
        world.repair(tmp_path, differences)
