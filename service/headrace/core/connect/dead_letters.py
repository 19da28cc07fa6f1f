"""The counts of a connector's dead letters, and the state of their replay, as the config topic stores it.

The leader replays, and stores the state of the replay as the record ``headrace-replay-<n>``. While ``pauses`` is set,
no worker runs the connector's tasks. A leader that finds a replay of another process ends it, so a worker that is
killed in the middle leaves no connector paused. The record is independent of the connector's target state: the tasks
resume as that requests when the replay has ended.

Tests: ``tests/unit/core/connect/test_dead_letters.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from headrace.core.connect.stored_members import seconds_of, text_of
from headrace.core.model.instants import iso_text

_MOST_LISTED = 100
"""Reasons and connectors that a document lists: anybody may write headers to a queue."""
MOST_REFUSED = 20
"""Letters that cannot be used again and that a document names; the others are counted."""


@dataclass(slots=True)
class LetterCounts:
    """How many letters of one connector a queue has, by topic and reason, and how many of others.

    ``too_old`` are from before the time since which the tables keep tombstones, and are not part of ``reasons``.
    """

    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    too_old: int = 0
    without_coordinate: int = 0
    connectors: Counter[str] = field(default_factory=Counter)

    @property
    def complete(self) -> bool:
        """Whether all of the connector's letters can be sent."""
        return not self.without_coordinate and not self.too_old

    @property
    def count(self) -> int:
        """The letters that can be sent."""
        return self.reasons.total()

    def document(self) -> Mapping[str, Any]:
        """Return the counts as JSON, most frequent ones first."""
        reasons, connectors = self.reasons.most_common(_MOST_LISTED), self.connectors.most_common(_MOST_LISTED)
        return {
            "letters": self.count,
            "reasons": [{"topic": topic, "reason": reason, "count": count} for (topic, reason), count in reasons],
            "more_reasons": len(self.reasons) - len(reasons),
            "too_old": self.too_old,
            "without_coordinate": self.without_coordinate,
            "other_connectors": [{"connector": name, "count": count} for name, count in connectors],
        }


class ReplayState(StrEnum):
    """The state of a replay. It has FAILED, or was CANCELLED by a request, before all letters were sent."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class RefusedLetter:
    """A letter that could not be used this time either, at its original coordinate."""

    topic: str
    partition: int
    offset: int
    stage: str
    error: str


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay of a connector's dead letters, or a dry run. Times in seconds since the epoch.

    ``run`` is the name of this replay. ``counts`` is a document of ``LetterCounts``, None until the queue was read.
    ``sent`` letters are durable. ``refused`` has at most ``MOST_REFUSED`` of those that cannot be used. ``pauses`` is
    whether the connector's tasks are paused for it.
    """

    run: str
    worker_id: str
    dry_run: bool
    old: bool
    began: float
    state: ReplayState = ReplayState.RUNNING
    pauses: bool = False
    ended: float | None = None
    counts: Mapping[str, Any] | None = None
    sent: int = 0
    refused: tuple[RefusedLetter, ...] = ()
    refused_count: int = 0
    error: str | None = None

    @property
    def is_running(self) -> bool:
        return self.state is ReplayState.RUNNING

    @property
    def result(self) -> str:
        """The result as a line, without values of records."""
        letters = self.counts["letters"] if self.counts else None
        text = f"{self.state}: {replay_text(self.sent, letters, self.refused_count)}"
        return f"{text}: {self.error}" if self.error else text

    def with_failure(self, now: float, error: str) -> Replay:
        """Return the replay as it has failed."""
        return replace(self, state=ReplayState.FAILED, pauses=False, ended=now, error=error)

    def with_cancellation(self, now: float) -> Replay:
        """Return the replay as a request has cancelled it."""
        return replace(self, state=ReplayState.CANCELLED, pauses=False, ended=now)

    def with_interruption(self, now: float) -> Replay:
        """Return the replay as it has failed because its worker stopped, or is not the leader any more."""
        return self.with_failure(
            now,
            f"worker {self.worker_id} stopped during the replay, or is not the leader any more; the tasks are not "
            "paused for it any more, and all letters are in their topic: replay them again",
        )

    def document(self) -> Mapping[str, Any]:
        """Return the replay as JSON, as in the config topic and in REST answers."""
        return {
            "run": self.run,
            "state": self.state,
            "dry_run": self.dry_run,
            "old": self.old,
            "worker_id": self.worker_id,
            "began": iso_text(self.began),
            "ended": None if self.ended is None else iso_text(self.ended),
            "pauses": self.pauses,
            "counts": self.counts,
            "sent": self.sent,
            "refused": [asdict(letter) for letter in self.refused],
            "refused_count": self.refused_count,
            "error": self.error,
        }


def replay_text(sent: int, letters: int | None, refused: int) -> str:
    """Return how many letters were sent, of how many if that is known, and how many of them cannot be used."""
    of = "" if letters is None else f" of {letters:,}"
    return f"{sent:,}{of} letters sent, {refused:,} cannot be used"


def replay_of(document: Mapping[str, Any]) -> Replay:
    """Return the replay of a stored document. Raises an exception for one that is not usable."""
    counts, ended, state = document["counts"], document["ended"], ReplayState(document["state"])
    if counts is not None and not isinstance(counts, dict):
        raise TypeError("the counts are not an object")
    return Replay(
        text_of(document["run"]),
        text_of(document["worker_id"]),
        bool(document["dry_run"]),
        bool(document["old"]),
        seconds_of(document["began"]),
        state,
        bool(document["pauses"]) and state is ReplayState.RUNNING,
        None if ended is None else seconds_of(ended),
        counts,
        int(document["sent"]),
        tuple(
            RefusedLetter(
                text_of(letter["topic"]),
                int(letter["partition"]),
                int(letter["offset"]),
                text_of(letter["stage"]),
                text_of(letter["error"]),
            )
            for letter in document["refused"]
        ),
        int(document["refused_count"]),
        None if document["error"] is None else text_of(document["error"]),
    )
