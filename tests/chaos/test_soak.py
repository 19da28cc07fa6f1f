"""Steady load with pauses over some minutes; the memory of the worker stays constant."""

from __future__ import annotations

import pytest
from chaos.lane import Lane

from headrace_dev.server import wait_until

pytestmark = [pytest.mark.stack, pytest.mark.spark]

MAY_GROW_MEGABYTES = 40
"""From the first half of the rounds to the second. Caches, pools and arenas have their size by then; batches are larger
or smaller as the machine is busy, so that single rounds differ by 30 MB. It is about 400 bytes an event."""


@pytest.mark.parametrize(
    ("rounds", "transactions"),
    [(1, 200), pytest.param(10, 6000, marks=pytest.mark.long)],
)
@pytest.mark.timeout(1800)
def test_steady_load_with_pauses(lane: Lane, rounds: int, transactions: int) -> None:
    """Rounds of load, pause and resume: memory does not grow with the number of changes, tables are equal."""
    sizes = []
    for number in range(1, rounds + 1):
        lane.begin_load(200)
        wait_until(lambda: lane.transactions > transactions / 2, "half of the load", 120)
        lane.order("pause", "PAUSED")
        wait_until(lambda: lane.transactions > transactions, "the other half, during the pause", 120)
        lane.order("resume", "RUNNING")
        rows = lane.prove()
        sizes.append(lane.resident_megabytes())
        written = lane.counted("kafka_connect_sink_task_sink_record_send_total")
        files = sum(1 for path in lane.warehouse.rglob("*") if path.is_file())
        print(f"round {number}: {written:.0f} events, {rows} rows, worker and JVM {sizes[-1]} MB, {files} files")
    own = [worker for worker, _ in sizes]
    assert max(own) - max(own[: -(-rounds // 2)]) < MAY_GROW_MEGABYTES
