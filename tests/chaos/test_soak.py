"""Steady load with pauses over some minutes; the memory of the worker stays constant.

``test_pauses.py::test_pause_under_load`` is the short form: one round.
"""

from __future__ import annotations

import pytest
from chaos.lane import Lane

from headrace_dev.server import wait_until

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.long]

ROUNDS = 10
TRANSACTIONS = 6000
"""In each round."""
MAY_GROW_MEGABYTES = 40
"""From the first half of the rounds to the second. Caches, pools and arenas have their size by then; batches are larger
or smaller as the machine is busy, so that single rounds differ by 30 MB. It is about 400 bytes an event."""


@pytest.mark.timeout(1800)
def test_steady_load_with_pauses(lane: Lane) -> None:
    """Rounds of load, pause and resume: memory does not grow with the number of changes, tables are equal."""
    sizes = []
    for number in range(1, ROUNDS + 1):
        lane.begin_load(200)
        wait_until(lambda: lane.transactions > TRANSACTIONS / 2, "half of the load", 120)
        lane.order("pause", "PAUSED")
        wait_until(lambda: lane.transactions > TRANSACTIONS, "the other half, during the pause", 120)
        lane.order("resume", "RUNNING")
        rows = lane.prove()
        sizes.append(lane.resident_megabytes())
        written = lane.written()
        files = sum(1 for path in lane.warehouse.rglob("*") if path.is_file())
        print(f"round {number}: {written:.0f} events, {rows} rows, worker and JVM {sizes[-1]} MB, {files} files")
    own = [worker for worker, _ in sizes]
    assert max(own) - max(own[: ROUNDS // 2]) < MAY_GROW_MEGABYTES
