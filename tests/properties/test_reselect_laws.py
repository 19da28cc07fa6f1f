"""The property of reselect: for any batches, cache and moment of a SELECT, the table equals the source at the end.

A source table has random changes; events omit the cells that PostgreSQL omits. The events then arrive in random
batches, while SELECTs read the source's last state: the largest possible backlog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st
from properties.searching import examples
from support.task.reselect_harness import CACHE, DOUBT, TABLE, Event, Lake, P, c, d, database, u

KEYS = st.integers(1, 3)
TEXTS = st.sampled_from(["A", "B", None])
CHANGES = st.lists(
    st.tuples(st.sampled_from(["put", "touch", "null", "delete", "move"]), KEYS, KEYS, TEXTS), max_size=25
)


@dataclass
class Source:
    """The rows of the source, and the events of its changes; events that belong together form one group."""

    doubtful: bool
    rows: dict[int, dict[str, str | None]] = field(default_factory=dict)
    groups: list[list[Event]] = field(default_factory=list)
    touched: int = 0

    def change(self, what: str, key: int, other: int, text: str | None) -> None:
        """Run one statement, if the stored rows allow it."""
        row = self.rows.get(key)
        if row is None:
            if what == "put":
                self._insert(key, text)
        elif what == "delete":
            del self.rows[key]
            self.groups.append([d(key)])
        elif what == "move" and other not in self.rows:
            self._move(key, other)
        elif what == "touch":
            row["doc"] = self._next_doc()
            self.groups.append([u(key, big=self._unchanged(row["big"]), doc=row["doc"])])
        elif what in ("put", "null"):
            row["big"] = text if what == "put" else None
            self.groups.append([u(key, big=self._told(row["big"]), doc=row["doc"])])

    def _insert(self, key: int, text: str | None) -> None:
        self.rows[key] = {"big": text, "doc": self._next_doc()}
        self.groups.append([c(key, **self.rows[key])])

    def _move(self, key: int, other: int) -> None:
        row = self.rows[other] = self.rows.pop(key)
        self.groups.append([d(key), c(other, old=key, big=P if row["big"] else None, doc=row["doc"])])

    def _unchanged(self, text: str | None) -> str | None:
        """An unavailable cell if it was stored out of line: as the placeholder, or as a null that hides it."""
        if text is None:
            return DOUBT if self.doubtful else None
        return DOUBT if self.doubtful else P

    def _told(self, text: str | None) -> str | None:
        return DOUBT if self.doubtful and text is None else text

    def _next_doc(self) -> str:
        self.touched += 1
        return f"doc {self.touched}"


@examples(200)
@given(
    changes=CHANGES,
    cuts=st.lists(st.booleans(), min_size=25, max_size=25),
    lost=st.lists(st.booleans(), min_size=25, max_size=25),
    cached=st.booleans(),
    doubtful=st.booleans(),
)
def test_table_ends_as_the_source(
    changes: Sequence[tuple[str, int, int, str | None]],
    cuts: Sequence[bool],
    lost: Sequence[bool],
    cached: bool,
    doubtful: bool,
) -> None:
    """The table equals the source with placeholders or hidden values, with or without cache, and lost assignments."""
    source = Source(doubtful)
    for change in changes:
        source.change(*change)
    rows = [{"id": key, **row} for key, row in source.rows.items()]
    lake = Lake(database(*rows), replace(CACHE, cache_enabled=cached))
    batch: list[Event] = []
    for group, cut, gone in zip(source.groups, cuts, lost, strict=False):
        batch += group
        if cut:
            _deliver(lake, batch, gone)
            batch = []
    if batch:
        _deliver(lake, batch, False)
    assert lake.rows == source.rows


def _deliver(lake: Lake, batch: Sequence[Event], assignment_lost: bool) -> None:
    if assignment_lost:
        lake.resolve(*batch)
        lake.offset -= len(batch)
        lake.post.cache.discard(TABLE)
        lake.post.cache.revoke([(lake.topic, 0)])
        lake.post.cache.assign([(lake.topic, 0)])
    lake.batch(*batch)
