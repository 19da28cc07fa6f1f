"""Several workers of one cluster under load: killed, suspended, restarted in turn; the tables equal the database."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from chaos.cluster import ClusterLane, Twins
from chaos.lane import SETTLE_SECONDS

from headrace_dev.server import http, wait_until
from headrace_dev.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.chaos]
PAIR = ("customers", "orders")
SLACK_SECONDS = 6
"""For noticing, on a busy machine."""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_workers_and_a_kill(stack: Stack, tmp_path: Path) -> None:
    """Each worker has a task and answers for both; when one is killed, the other one runs both tasks."""
    with ClusterLane(stack, "twoworkers", tmp_path, count=2, session_seconds=6, tables=PAIR) as lane:
        first, second = lane.workers
        lane.wait_until_spread()
        lane.begin_load()
        wait_until(lambda: all(map(lane.rows, PAIR)), "rows in every table", SETTLE_SECONDS)
        for verb, state in (("pause", "PAUSED"), ("resume", "RUNNING")):
            for worker in lane.workers:
                worker.call("PUT", f"/connectors/{lane.name}/{verb}")
            lane.wait_until_all_are(state)
        for number in range(2):
            restart = f"{second.url}/connectors/{lane.name}/tasks/{number}/restart"
            assert http.post(restart, timeout=60).status_code == 204
        lane.wait_until_all_are("RUNNING")
        with Twins(lane) as twins:
            began = time.monotonic()
            lane.kill(first)
            wait_until(lambda: len(lane.owners(second)) == 1, "all tasks on the other", lane.session_seconds + 20)
            moved = time.monotonic() - began
            lane.wait_until_all_are("RUNNING")
        print(f"tasks moved after {moved:.1f} s; one stood twice in its group for {twins.longest:.1f} s at most")
        assert moved < lane.session_seconds + SLACK_SECONDS
        assert twins.longest < lane.session_seconds + SLACK_SECONDS
        assert lane.prove() > 0


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("kills", "seconds"), [(6, 45)])
def test_three_workers_under_chaos(stack: Stack, tmp_path: Path, kills: int, seconds: float) -> None:
    """Kills with -9, each followed by an immediate restart; a suspension longer than the session; a rolling restart."""
    with ClusterLane(stack, "threeworkers", tmp_path, count=3, session_seconds=10) as lane:
        lane.wait_until_spread()
        lane.begin_load()
        with Twins(lane) as twins:
            for kill in range(kills):
                time.sleep(seconds)
                lane.kill(lane.workers[kill % 3])
                lane.start(lane.workers[kill % 3])
                print(f"killed and restarted worker {kill % 3}")
            lane.wait_until_all_are("RUNNING")
            with lane.asleep(lane.workers[1]):
                time.sleep(lane.session_seconds + 5)
                lane.wait_until_all_are("RUNNING")
            lane.wait_until_all_are("RUNNING")
        print(f"a task stood twice in its group for {twins.longest:.1f} s at most")
        assert twins.longest < lane.session_seconds + SLACK_SECONDS
        lane.wait_until_spread()
        for worker in lane.workers:
            before = len(lane.errors())
            worker.stop()
            lane.start(worker)
            lane.wait_until_spread()
            assert lane.errors()[before:] == []
        assert lane.prove() > 0
