"""The column cache on disk across restarts (``reselect.md`` section 5.4).

Entries are kept only if the task resumes at their exact position.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.task.cache_harness import OTHER, P0, TABLE, Clock, begin, drop, get, put

from headrace.core.reselect.cache.column_cache import ReselectColumnCache
from headrace.core.reselect.cache.rows import CacheLimits, Hit, Stamp, StoreFailed
from headrace_connectors.rocksdb import RocksRowStore


@dataclass
class Process:
    """Consecutive processes over the same directory. ``clock`` is monotonic in each process, ``wall`` is not."""

    path: Path
    limits: CacheLimits = field(default_factory=CacheLimits)
    settings: str = "as they are"
    clock: Clock = field(default_factory=Clock)
    wall: int = 1_000_000

    def __post_init__(self) -> None:
        self.cache = self.start()
        self.cache.assign([P0])

    def start(self) -> ReselectColumnCache:
        self.store = RocksRowStore(self.path, self.limits)
        self.clock.now = 7
        return ReselectColumnCache(
            self.store, self.limits, self.clock, lambda value: False, self.settings, lambda: self.wall
        )

    def restart(self, position: int | None, *, crash: bool = False, away: int = 0) -> ReselectColumnCache:
        """Start the next process ``away`` ms later; its consumer resumes at ``position``."""
        if crash:
            self.store.close()
        else:
            self.cache.close()
        self.wall += away
        self.cache = self.start()
        self.cache.assign([P0])
        if position is not None:
            self.cache.resume(P0, position)
        return self.cache


@pytest.fixture
def process(tmp_path: Path) -> Process:
    """A process that has cached A from offset 10 and has resolved everything before 11."""
    process = Process(tmp_path / "rows")
    put(process.cache, "1", 10, big="A")
    process.cache.mark_durable({P0: 11})
    return process


def test_entries_are_served_after_a_restart_in_good_order(process: Process) -> None:
    """The cache serves entries if the consumer resumes at the first event after them."""
    assert get(process.restart(11), "1", 11) == Hit("A")
    assert get(process.restart(11), "1", 11) == Hit("A")


@pytest.mark.parametrize("position", [None, 0, 10, 12])
def test_s09_other_position_invalidates_them(process: Process, position: int | None) -> None:
    """S9: the cache is empty after offsets were reset or another worker consumed the partition."""
    cache = process.restart(position)
    assert get(cache, "1", 12) is None
    cache.mark_durable({P0: 13})
    assert get(process.restart(13), "1", 13) is None


def test_crash_invalidates_them(process: Process) -> None:
    """A crash invalidates entries, because the last drops may not be on disk."""
    cache = process.restart(11, crash=True)
    assert get(cache, "1", 11) is None
    assert len(cache) == 0


def test_failed_write_invalidates_them(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache does not serve a value whose drop failed on disk.

    Upstream's storageRemovalFailureDuringInvalidateIsNotFatal proves the inverse.
    """

    def fail(key: object) -> None:
        raise StoreFailed

    with monkeypatch.context() as broken:
        broken.setattr(process.store, "drop", fail)
        drop(process.cache, "1", 11)
    assert get(process.cache, "1", 12) is None
    process.cache.mark_durable({P0: 12})
    assert get(process.restart(12), "1", 12) is None


def test_failed_drop_of_a_table_invalidates_it(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache serves none of the table's rows until the drop has succeeded; other tables continue."""

    def fail(table: object) -> int:
        raise StoreFailed

    put(process.cache, "1", 10, OTHER, big="O")
    with monkeypatch.context() as broken:
        broken.setattr(process.store, "drop_table", fail)
        process.cache.drop_table(TABLE, "truncate")
        assert get(process.cache, "1", 12) is None
    assert get(process.cache, "1", 12) is None
    assert len(process.store.keys(None)) == 1


def test_storage_read_failure_degrades_to_miss(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that cannot be read is a miss, and a hit when the disk works again."""

    def fail(key: object) -> None:
        raise StoreFailed

    with monkeypatch.context() as broken:
        broken.setattr(process.store, "get", fail)
        assert get(process.cache, "1", 12) is None
    assert get(process.cache, "1", 12) == Hit("A")


def test_other_settings_invalidate_them(process: Process) -> None:
    """N13: placeholder, handling modes and patterns decide the form of values and which of them are cached."""
    process.settings = "decimal.handling.mode=string"
    assert get(process.restart(11), "1", 11) is None


@pytest.mark.parametrize("key_schema", ["long", "region, id"])
def test_key_schema_change_yields_miss(process: Process, key_schema: str) -> None:
    """Another key schema is a miss, as in upstream's primaryKeyReorderYieldsMiss, also between processes."""
    batch = begin(process.restart(11), key_schema=key_schema)
    assert batch.for_row("1", Stamp(P0, 11)).get("big") is None


def test_other_fingerprint_yields_miss(tmp_path: Path) -> None:
    """S22: the type of the column changed while no process ran."""
    process = Process(tmp_path / "rows")
    batch = begin(process.cache, big="text 3")
    put_cells(batch, 10)
    process.cache.mark_durable({P0: 11})
    cache = process.restart(11)
    assert read(cache, big="text 3") == Hit("A")
    assert read(cache, big="text 4") is None


def put_cells(batch: Any, offset: int) -> None:
    batch.for_row("1", Stamp(P0, offset)).put("big", "A")
    batch.publish()


def read(cache: ReselectColumnCache, **prints: str) -> Hit | None:
    batch = begin(cache, **prints)
    hit = batch.for_row("1", Stamp(P0, 20)).get("big")
    batch.publish()
    return hit


@pytest.mark.parametrize(("away", "hit"), [(0, True), (50, True), (51, False), (-10_000, True)])
def test_age_counts_across_restarts(tmp_path: Path, away: int, hit: bool) -> None:
    """The age of an entry includes the time between two processes; a wall clock step back does not reduce it (S30)."""
    process = Process(tmp_path / "rows", CacheLimits(ttl=100))
    put(process.cache, "1", 10, big="A")
    process.cache.mark_durable({P0: 11})
    process.clock.now += 49
    assert (get(process.restart(11, away=away), "1", 11) is not None) is hit


def test_step_back_makes_no_entry_younger(tmp_path: Path) -> None:
    """S30: a wall clock that steps back by an hour does not extend the life of an entry."""
    process = Process(tmp_path / "rows", CacheLimits(ttl=100))
    put(process.cache, "1", 10, big="A")
    process.cache.mark_durable({P0: 11})
    process.clock.now += 49
    cache = process.restart(11, away=-3_600_000)
    process.clock.now += 51
    assert get(cache, "1", 11) is None


def test_zero_ttl_never_expires(process: Process) -> None:
    """N11: an entry without a TTL does not expire, even after a year."""
    process.limits = CacheLimits(ttl=0)
    assert get(process.restart(11, away=365 * 86_400_000), "1", 11) == Hit("A")


def test_s06_partition_that_came_back(process: Process) -> None:
    """S6: the entries of a partition that returns are kept, unless another worker has consumed it."""
    for position, expected in ((11, Hit("A")), (12, None)):
        process.cache.revoke([P0])
        assert get(process.cache, "1", 12) is None
        process.cache.assign([P0])
        assert get(process.cache, "1", 12) is None
        process.cache.resume(P0, position)
        assert get(process.cache, "1", 12) == expected


def test_operators_flush_holds(process: Process) -> None:
    """S23: flushed entries do not come back with the next process or the next assignment of the partition."""
    process.cache.drop_topic("orders", "operator")
    assert get(process.restart(11), "1", 11) is None


def test_lost_event_holds(process: Process) -> None:
    """N9: entries from before a record that could not be applied stay invalid."""
    process.cache.lose(P0, 11)
    process.cache.mark_durable({P0: 12})
    assert get(process.restart(12), "1", 12) is None


def test_tables_keep_their_rows(process: Process) -> None:
    """Two tables with equal keys, opened in another order later, keep their own rows; a third table has none."""
    put(process.cache, "1", 10, OTHER, big="O")
    third = replace(TABLE, table="third")
    cache = process.restart(11)
    put(cache, "2", 11, third, big="T")
    batch = begin(cache, OTHER)
    assert batch.for_row("1", Stamp(P0, 12)).get("big") == Hit("O")
    assert get(cache, "1", 12) == Hit("A")
    assert begin(cache, third).for_row("1", Stamp(P0, 12)).get("big") is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("ab")),
        st.tuples(st.just("drop"), st.sampled_from("ab")),
        st.tuples(st.sampled_from(["truncate", "stop", "crash", "elsewhere", "revoke"]), st.none()),
    ),
    max_size=12,
)


@given(steps=STEPS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_history_serves_a_stale_value(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]
) -> None:
    """For any sequence of steps a hit is the value of the last event. Only a miss may be wrong."""
    process = Process(tmp_path_factory.mktemp("history") / "rows")
    truth: dict[str, str] = {}
    offset = 0
    for step, key in steps:
        if step in ("put", "drop"):
            offset += 1
            truth.pop(key, None)
            if step == "put":
                truth[key] = str(offset)
                put(process.cache, key, offset, big=str(offset))
            else:
                drop(process.cache, key, offset)
        elif step == "truncate":
            truth.clear()
            process.cache.drop_table(TABLE, "truncate")
        elif step == "elsewhere":  # another worker applies an update of both rows
            process.cache.revoke([P0])
            offset += 1
            truth = dict.fromkeys("ab", str(offset))
            process.cache.assign([P0])
            process.cache.resume(P0, offset + 1)
        elif step == "revoke":
            process.cache.revoke([P0])
            process.cache.assign([P0])
            process.cache.resume(P0, offset + 1)
        else:
            process.restart(offset + 1, crash=step == "crash")
        process.cache.mark_durable({P0: offset + 1})
        for each in "ab":
            hit = get(process.cache, each, offset + 1)
            assert hit is None or hit.value == truth.get(each)
    process.cache.close()
