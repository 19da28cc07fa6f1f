"""``kill -9`` of the worker under load: no change is lost, no row is duplicated, no placeholder remains."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from chaos.lane import Lane, pauses

from headrace.runtime import failpoints

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.chaos]

FAILPOINTS = (failpoints.AFTER_LEDGER, failpoints.AFTER_TABLE_COMMIT, failpoints.BEFORE_OFFSET_COMMIT)


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.long)])
@pytest.mark.timeout(900)
def test_kills_in_running_batches(lane: Lane, kills: int) -> None:
    """Each kill hits a worker that has read events and not written them; its successor writes them."""
    lane.begin_load()
    in_hand = []
    for after in pauses(kills):
        in_hand.append(lane.kill_in_a_batch(after))
        lane.restart_worker()
    print(f"{kills} kills, with events in hand: {', '.join(f'{events:.0f}' for events in in_hand)}")
    assert len([events for events in in_hand if events > 0]) == kills
    assert lane.prove() > 0


@pytest.mark.parametrize(
    "steps", [FAILPOINTS[1:2], pytest.param(FAILPOINTS, marks=pytest.mark.long)], ids=["one", "each"]
)
@pytest.mark.timeout(900)
def test_a_kill_at_each_step_of_a_batch(lane: Lane, steps: Sequence[str]) -> None:
    """Kills between ledger and table, between table and offsets, before the offsets: a replay has no second effect."""
    lane.begin_load()
    for name in steps:
        lane.worker.kill()
        lane.start_worker({name: "hold:2"})
        lane.kill_at(name)
        print(f"killed at {name}")
    lane.restart_worker()
    assert lane.prove() > 0
