"""Properties of `headrace verify`: it reports no correct row, and finds every wrong cell."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from support.sources.verify_world import World

from headrace.core.verify.verification import Verdict
from headrace.ports import TableOptions

SCRIPTS = st.lists(st.integers(0, 8 * 4 * 3 - 1), max_size=120)


@given(before=SCRIPTS, meanwhile=SCRIPTS, in_parts=st.booleans(), history=st.booleans())
def test_a_correct_lake_is_never_accused(
    before: list[int], meanwhile: list[int], in_parts: bool, history: bool
) -> None:
    """During changes, lag and open cells, rows are equal, or a later change explains the difference.

    So it is if the source is read in parts, each of another time, and if the lake has a history.
    """
    world = World(options=TableOptions(history=history))
    for choice in before:
        world.script = [choice]
        world.step()
    world.script = list(meanwhile)
    with tempfile.TemporaryDirectory() as folder:
        found = world.differences(Path(folder), timeout=10_000.0, in_parts=in_parts)
    assert [each for each in found if each.verdict is not Verdict.EXPLAINED] == []


def damage(world: World, key: int, wrong: str) -> None:
    """Let the lake lose a row, or keep one that the source does not have any more, or give it a wrong cell."""
    if wrong == "lost":
        world.lose(key)
    elif wrong == "left":
        del world.rows[key]
    else:
        world.corrupt(key, None if wrong == "null" else "wrong")


@given(meanwhile=SCRIPTS, wrong=st.sampled_from(["cell", "null", "lost"]), in_parts=st.booleans())
def test_a_wrong_row_is_found_while_others_change(meanwhile: list[int], wrong: str, in_parts: bool) -> None:
    """A row that no change repairs is reported, and no other row; after the repair there is no difference."""
    world = World(keys=3)
    for key in range(4):
        world.change(key, "right")
    world.settle()
    damage(world, 3, wrong)
    world.script = list(meanwhile)
    with tempfile.TemporaryDirectory() as folder:
        found = world.differences(Path(folder), timeout=10_000.0, in_parts=in_parts)
        real = [each for each in found if each.verdict is not Verdict.EXPLAINED]
        assert [(each.verdict, each.key["id"].to_pylist()) for each in real] == [(Verdict.DIFFERENT, [3])]
        world.script = list(meanwhile)
        assert world.repair(Path(folder), real) == 1
        world.script = []
        world.settle()
        assert world.stored() == world.rows


@given(meanwhile=SCRIPTS, wrong=st.sampled_from(["cell", "null", "lost", "left"]), in_parts=st.booleans())
def test_a_wrong_last_state_of_a_history_is_found(meanwhile: list[int], wrong: str, in_parts: bool) -> None:
    """A history is reported as other tables are, and never repaired."""
    world = World(keys=3, options=TableOptions(history=True))
    for name in ("first", "right"):
        for key in range(4):
            world.change(key, name)
    world.settle()
    damage(world, 3, wrong)
    world.script = list(meanwhile)
    with tempfile.TemporaryDirectory() as folder:
        found = world.differences(Path(folder), timeout=10_000.0, in_parts=in_parts)
        real = [each for each in found if each.verdict is not Verdict.EXPLAINED]
        assert [(each.verdict, each.key["id"].to_pylist()) for each in real] == [(Verdict.DIFFERENT, [3])]
        events = world.lake.to_arrow()
        assert world.repair(Path(folder), real) == 0
        assert world.lake.to_arrow().slice(0, len(events)) == events


@example(meanwhile=[0, 0, 2], wrong="cell")  # deleted between the comparison and the write
@given(meanwhile=SCRIPTS, wrong=st.sampled_from(["cell", "lost", "left"]))
def test_a_repair_undoes_no_change(meanwhile: list[int], wrong: str) -> None:
    """Changes of the row during its repair apply: when all are applied, the row equals its source."""
    world = World(keys=2)
    for key in range(3):
        world.change(key, "right")
    world.settle()
    with tempfile.TemporaryDirectory() as folder:
        damage(world, 0, wrong)
        found = world.differences(Path(folder))
        world.script = list(meanwhile)
        world.repair(Path(folder), found)
        world.script = []
        world.settle()
        assert world.stored() == world.rows
