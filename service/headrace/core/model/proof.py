"""What a verification proves of a table, and what a task reports of its verifications.

Tests: ``tests/unit/core/model/test_proof.py``, ``tests/contracts/lake_sources_suite.py``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace.core.model.instants import iso_text

PREFIX = "headrace.verified."
_MEMBERS = ("position", "at", "rows", "digest", "snapshot", "not.compared")


@dataclass(frozen=True, slots=True)
class Proof:
    """All rows of a table were equal to those of its source, in the columns that can be compared.

    ``position`` is how far the source's log was before its rows were read, as ``connector:part``: the comparison
    includes every change up to it, and may include later ones. ``at`` is when that was, in seconds since the epoch.
    ``rows`` is how many rows the source had. ``digest`` is that of the lake table (``core/verify/table_digest.py``) at
    the commit ``snapshot``, which was compared; both are empty if no digest is known. ``not_compared`` are columns
    whose cells the connector's transforms make.
    """

    position: str
    at: float
    rows: int
    digest: str = ""
    snapshot: str = ""
    not_compared: Sequence[str] = ()

    def properties(self) -> tuple[Mapping[str, str], Collection[str]]:
        """Return the properties of the lake table for readers of any engine, and the names of those to remove.

        The columns that were not compared are a list in JSON.
        """
        names = [f"{PREFIX}{name}" for name in _MEMBERS]
        not_compared = json.dumps(list(self.not_compared), ensure_ascii=False) if self.not_compared else ""
        texts = [self.position, iso_text(self.at), str(self.rows), self.digest, self.snapshot, not_compared]
        known = {name: text for name, text in zip(names, texts, strict=True) if text}
        return known, [name for name in names if name not in known]

    def document(self) -> Mapping[str, Any]:
        """Return the proof as JSON."""
        digest = {"digest": self.digest, "snapshot": self.snapshot} if self.digest else {}
        not_compared = {"not_compared": list(self.not_compared)} if self.not_compared else {}
        return {"position": self.position, "at": iso_text(self.at), "rows": self.rows, **digest, **not_compared}


def stored_proof(properties: Mapping[str, str]) -> Proof | None:
    """Return the proof in the properties of a table; None if there is none, or another program has changed it."""
    try:
        at = datetime.fromisoformat(properties[f"{PREFIX}at"]).timestamp()
        digest, snapshot = (properties.get(f"{PREFIX}{name}", "") for name in ("digest", "snapshot"))
        not_compared = tuple(map(str, json.loads(properties.get(f"{PREFIX}not.compared", "[]"))))
        rows = int(properties[f"{PREFIX}rows"])
        return Proof(properties[f"{PREFIX}position"], at, rows, digest, snapshot, not_compared)
    except (KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class DifferingRow:
    """A row that differs: its key as texts by column, the side that has it, and the columns that differ.

    Not proven is a row that stays as it is on both sides while the source connector confirms no progress.
    """

    key: Mapping[str, str]
    where: str
    columns: Sequence[str] = ()
    proven: bool = True

    def document(self) -> Mapping[str, Any]:
        """Return the row as JSON."""
        proven: Mapping[str, Any] = {} if self.proven else {"proven": False}
        return {"key": dict(self.key), "where": self.where, "columns": list(self.columns), **proven}


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Changes of a table that contradict each other or its rows, so that an event seems to be missing.

    ``kind`` is the label of ``reselect_contradictions_total``, ``at`` when it was found, in seconds since the epoch.
    """

    kind: str
    at: float

    def document(self) -> Mapping[str, Any]:
        """Return the contradiction as JSON."""
        return {"kind": self.kind, "at": iso_text(self.at)}


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """The verifications of one table.

    ``interval`` is in seconds, ``topic`` that of the rows, ``since`` when the task began to verify the table, in
    seconds since the epoch. ``proof`` is the last one at which it was equal, also if that was in an earlier run of the
    task. Of the last verification, ``differing`` rows stayed different, ``undecided`` ones changed at each comparison
    or could not be proven, and ``repaired`` ones were written again. ``rows`` are some of the differing rows, then of
    those that could not be proven. ``not_compared`` are the columns that it did not compare, because the connector's
    transforms make their cells. ``error`` is why it
    could not compare the table; ``ended`` is when it ended. ``reading`` is how many rows of the source the verification
    that runs now has read. ``contradiction`` is why the last verification, or the one that runs, began before the
    interval had passed; None if it began because of the interval.
    """

    interval: float
    topic: str = ""
    since: float = 0.0
    proof: Proof | None = None
    differing: int = 0
    undecided: int = 0
    repaired: int = 0
    rows: Sequence[DifferingRow] = field(default_factory=tuple)
    not_compared: Sequence[str] = ()
    error: str | None = None
    ended: float | None = None
    reading: int | None = None
    contradiction: Contradiction | None = None

    @property
    def is_equal(self) -> bool:
        """Whether the last verification has proven the table equal."""
        return self.proof is not None and not (self.differing or self.undecided or self.error)

    def age(self, now: float) -> float | None:
        """Return the seconds since the table was last proven equal; None if it never was."""
        return None if self.proof is None else max(now - self.proof.at, 0.0)

    def unproven(self, now: float) -> float:
        """Return the seconds since the table was last proven equal, or since the task began to verify it."""
        age = self.age(now)
        return max(now - self.since, 0.0) if age is None else age

    def document(self, now: float) -> Mapping[str, Any]:
        """Return the report as JSON, with the keys of some differing rows and without any value."""
        age = self.age(now)
        answer: dict[str, Any] = {
            "interval_seconds": self.interval,
            "equal": self.is_equal if self.ended is not None or self.proof is not None else None,
            "proof": None if self.proof is None else self.proof.document(),
            "age_seconds": None if age is None else round(age, 1),
            "differing": self.differing,
            "undecided": self.undecided,
            "repaired": self.repaired,
        }
        if self.rows:
            answer["rows"] = [row.document() for row in self.rows]
        if self.not_compared:
            answer["not_compared"] = list(self.not_compared)
        if self.contradiction is not None:
            answer["contradiction"] = self.contradiction.document()
        if self.error is not None:
            answer["error"] = self.error
        if self.ended is not None:
            answer["ended"] = iso_text(self.ended)
        if self.reading is not None:
            answer["running"] = {"rows": self.reading}
        return answer
