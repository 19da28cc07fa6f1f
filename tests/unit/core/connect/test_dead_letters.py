"""Counts of dead letters, and the replay that the config topic stores."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from headrace.core.connect.config_state import (
    ClusterConfigState,
    connector_records,
    removal_records,
    replay_record,
)
from headrace.core.connect.dead_letters import LetterCounts, RefusedLetter, Replay, ReplayState, replay_of

REPLAY = Replay("run", "worker:8083", dry_run=False, old=True, began=1_700_000_000.0, pauses=True)
DONE = replace(
    REPLAY,
    state=ReplayState.DONE,
    pauses=False,
    ended=1_700_000_009.0,
    counts=LetterCounts().document(),
    sent=7,
    refused=(RefusedLetter("t", 1, 2, "TASK_PUT", "the cause"),),
    refused_count=3,
)


@pytest.mark.parametrize("replay", [REPLAY, DONE, REPLAY.with_failure(1_700_000_009.0, "the cause")])
def test_a_replay_is_stored_beside_the_connector(replay: Replay) -> None:
    """It is read as it was written; a removal of the connector removes it."""
    key, value = replay_record("n", replay)
    assert (key, json.loads(value or b"")["began"]) == ("headrace-replay-n", "2023-11-14T22:13:20Z")
    state = ClusterConfigState()
    for record in (*connector_records("n", {}), (key, value)):
        assert state.apply(*record) == "n"
    assert state.replay("n") == replay
    for record in removal_records("n", 0, [replay_record("n", None)]):
        state.apply(*record)
    assert state.replay("n") is None


@pytest.mark.parametrize(
    ("member", "value"),
    [("state", "LOST"), ("began", None), ("run", 1), ("worker_id", "\ud800"), ("counts", []), ("refused", [{}])],
)
def test_a_record_that_is_not_usable_is_refused(member: str, value: Any) -> None:
    """So that an answer never contains it, and the replay before stays."""
    with pytest.raises((ValueError, TypeError, KeyError)):
        replay_of({**DONE.document(), member: value})


def test_a_replay_that_has_ended_pauses_nothing() -> None:
    """Whatever another tool writes: a connector must not stay paused."""
    assert not replay_of({**DONE.document(), "pauses": True}).pauses


def test_a_document_lists_the_most_frequent_reasons() -> None:
    """Anybody may write headers to a queue, so their number is bounded."""
    counts = LetterCounts(too_old=1)
    for number in range(300):
        counts.reasons["topic", f"reason-{number}"] += 1 + number
        counts.connectors[f"connector-{number}"] += 1
    document = counts.document()
    assert document["reasons"][0] == {"topic": "topic", "reason": "reason-299", "count": 300}
    assert (len(document["reasons"]), document["more_reasons"], len(document["other_connectors"])) == (100, 200, 100)
    assert document["letters"] == counts.count == sum(range(1, 301))
    assert not counts.complete
