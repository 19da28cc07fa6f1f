"""Statements of a simulated database, as plain values that can be removed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

KEYS = 4


@dataclass(frozen=True)
class Statement:
    """``session`` does ``what`` to the row ``key`` of ``table``.

    ``other`` is a second key, or a number whose meaning depends on ``what``; ``pick`` chooses columns and values.
    """

    number: int
    session: int
    what: str
    table: int = 0
    key: int = 0
    other: int = 0
    pick: int = 0

    def __str__(self) -> str:
        target = f"table {self.table} key {self.key}" if self.key else f"table {self.table}"
        return f"#{self.number} session {self.session}: {self.what} {target} (other {self.other}, pick {self.pick})"


ROWS = ("insert", "insert", "insert", "update", "update", "update", "delete", "commit", "commit")
MOVES = ("move", "move", "there and back", "take over", "reuse", "reuse")
"""A key change; one and back again; a row takes the key of one that is deleted in the same transaction; another row is
inserted under the key that was left, and perhaps deleted."""


@dataclass(frozen=True)
class Features:
    """The kinds of statements in a history."""

    moves: bool = True
    deferred: bool = False
    truncates: bool = False
    alters: bool = False
    drops: bool = False
    snapshots: bool = False
    incremental: bool = False
    restarts: bool = False
    failovers: bool = False
    added_partitions: bool = False

    @property
    def whats(self) -> tuple[str, ...]:
        """The statements to choose from, frequent ones several times."""
        found = list(ROWS)
        for flag, words in (
            (self.moves, MOVES),
            (self.deferred, ("shift", "shift", "swap")),
            (self.truncates, ("truncate", "truncate")),
            (self.alters, ("add column", "widen")),
            (self.drops, ("drop column",)),
            (self.snapshots, ("snapshot", "snapshot")),
            (self.incremental, ("incremental",)),
            (self.restarts, ("restart", "restart")),
            (self.failovers, ("failover", "failover")),
            (self.added_partitions, ("add partitions",) * 2),
        ):
            found += words if flag else ()
        return tuple(found)


def statements(choose: Random, features: Features, tables: int, most: int) -> Sequence[Statement]:
    """A random history: first rows for an initial snapshot, then concurrent sessions."""
    initial = choose.choice((0, 0, 1, 2, 3))
    found = [
        Statement(n, 0, "insert", choose.randrange(tables), choose.randint(1, KEYS), pick=choose.randrange(1 << 16))
        for n in range(initial)
    ]
    found.append(Statement(initial, 0, "start connector"))
    for number in range(initial + 1, initial + 1 + choose.randint(3, most)):
        what = choose.choice(features.whats)
        found.append(
            Statement(
                number,
                choose.randrange(2),
                what,
                choose.randrange(tables),
                choose.randint(1, KEYS),
                choose.randint(1, KEYS),
                choose.randrange(1 << 16),
            )
        )
    return found
