"""The timeline keeps the newest events, in whatever order their records are read, and no event replaces another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.connect.timeline import (
    REPEATED_WITHIN_MS,
    Kind,
    TimelineEvent,
    TimelineState,
    Trigger,
    TriggerType,
    changed_options,
    decode_event,
    encode_event,
    is_timeline_key,
    moved_tasks,
    name_list,
    short,
)

TEXTS = st.text(max_size=20)
EVENTS = st.builds(
    TimelineEvent,
    st.sampled_from(Kind),
    st.integers(0, 2_000_000_000_000),
    st.sampled_from(["a:8083", "https://b:8443"]),
    st.none() | st.sampled_from(["shop", "crm", "s-1-2"]),
    st.none() | st.integers(0, 99),
    st.none() | TEXTS,
    TEXTS,
    st.builds(Trigger, st.sampled_from(TriggerType), TEXTS, TEXTS, TEXTS),
    st.integers(1, 9),
    st.none() | st.integers(0, 2_000_000_000_000),
)
HISTORIES = st.lists(EVENTS, max_size=40, unique_by=lambda event: event.key)


def event(time: int, connector: str | None = "shop", kind: Kind = Kind.TASK_FAILED, text: str = "") -> TimelineEvent:
    return TimelineEvent(kind, time, "a:8083", connector, text=text)


def apply(state: TimelineState, *events: TimelineEvent) -> TimelineState:
    for each in events:
        state.apply(each.key, encode_event(each))
    return state


def clean_up(state: TimelineState) -> None:
    """Apply the records that remove what is outside of the bound."""
    for key in state.outside(1_000_000):
        state.apply(key, None)


@given(EVENTS)
def test_a_record_has_the_complete_event(written: TimelineEvent) -> None:
    assert decode_event(encode_event(written)) == written
    assert is_timeline_key(written.key)


@given(HISTORIES, st.randoms(use_true_random=False))
def test_the_newest_of_each_connector_remain_in_any_order(history: list[TimelineEvent], random: object) -> None:
    """Workers read the partitions of a topic in different orders, and have the same timeline."""
    shuffled = list(history)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    state = apply(TimelineState(of_connector=3), *shuffled)
    for connector in {each.connector for each in history}:
        newest = sorted((each for each in history if each.connector == connector), key=lambda each: each.key)[-3:]
        expected = newest[::-1]
        assert [each for each in state.events(limit=99) if each.connector == connector] == expected
        if connector is not None:
            assert state.events(connector) == expected


@given(HISTORIES)
def test_the_bound_of_all_holds_whatever_is_read(history: list[TimelineEvent]) -> None:
    """Events of deleted connectors cannot fill the topic: what is kept or not yet removed is all that was written."""
    state = TimelineState(of_connector=5, of_all=7)
    for count, each in enumerate(sorted(history, key=lambda each: each.key), 1):
        apply(state, each)
        assert len(state) <= 7
        assert len(state) + len(state.outside(99)) == count
    assert {each.key for each in state.events()} | set(state.outside(99)) == {each.key for each in history}
    clean_up(state)
    assert state.outside(99) == []


@given(HISTORIES)
def test_a_restart_reads_what_was_kept(history: list[TimelineEvent]) -> None:
    """After the removal of what is outside, the records of the topic are the timeline, also for a new worker."""
    state = apply(TimelineState(of_connector=3, of_all=9), *history)
    clean_up(state)
    topic = state.events()
    again = apply(TimelineState(of_connector=3, of_all=9), *reversed(topic))
    assert again.events() == topic
    assert again.outside(99) == []
    for worker in ("a:8083", "https://b:8443"):
        times = [each.time for each in topic if each.worker_id == worker]
        assert again.last_time(worker) == max(times, default=0)


def test_events_of_two_workers_at_the_same_time_are_two() -> None:
    one, other = event(5), replace(event(5), worker_id="b:8083")
    assert apply(TimelineState(), one, other).events("shop") == [other, one]


def test_events_are_chosen_by_connector_table_and_kind() -> None:
    of_table = replace(event(2), table="orders")
    started = event(3, None, Kind.WORKER_STARTED)
    state = apply(TimelineState(), event(1), of_table, started, event(4, "crm"))
    assert [each.time for each in state.events()] == [4, 3, 2, 1]
    assert [each.time for each in state.events(limit=2)] == [4, 3]
    assert state.events("shop", table="orders") == [of_table]
    assert state.events(kinds=[Kind.WORKER_STARTED]) == [started]
    assert state.events("unknown") == []
    assert state.has_events("crm")
    assert not state.has_events("unknown")


def test_a_removed_event_is_gone_and_a_removal_may_come_twice() -> None:
    state = apply(TimelineState(), event(1), event(2))
    state.apply(event(1).key, None)
    state.apply(event(1).key, None)
    assert [each.time for each in state.events("shop")] == [2]
    state.apply(event(2).key, None)
    assert not state.has_events("shop")


def test_only_the_same_event_of_a_worker_shortly_after_repeats_it() -> None:
    """A request is an event of its own: each has a person behind it."""
    first = event(1, text="why")
    assert event(2, text="why").repeats(first)
    assert event(1 + REPEATED_WITHIN_MS, text="why").repeats(replace(first, count=7, since=0))
    assert not event(2 + REPEATED_WITHIN_MS, text="why").repeats(first)
    assert not event(2, text="other").repeats(first)
    assert not event(0, text="why").repeats(first)
    started = event(1, None, Kind.WORKER_STARTED)
    assert not replace(started, time=2).repeats(started)
    requested = replace(first, trigger=Trigger(TriggerType.REQUEST, "PUT", "/connectors/shop/pause"))
    assert not replace(requested, time=2).repeats(requested)
    state = apply(TimelineState(), first, event(2, text="between"))
    assert state.same_before(event(3, text="why")) == first
    assert state.same_before(event(3, "crm", text="why")) is None


@pytest.mark.parametrize(
    "value", [b"x", b"{}", b"[]", encode_event(event(1)).replace(b"TASK_FAILED", b"LATER"), encode_event(event(9))]
)
def test_a_record_that_is_not_usable_changes_nothing(value: bytes) -> None:
    """Also that of a later version, and one whose key is not its own."""
    state = TimelineState()
    with pytest.raises((ValueError, KeyError, TypeError)):
        state.apply(event(1).key, value)
    assert len(state) == 0


def test_a_document_has_what_is_known() -> None:
    requested = Trigger(TriggerType.REQUEST, "PUT", "/connectors/shop/pause", "ann")
    assert event(1_000).document() == {
        "time": "1970-01-01T00:00:01.000Z",
        "kind": "TASK_FAILED",
        "connector": "shop",
        "text": "",
        "worker_id": "a:8083",
        "by": {"type": "worker"},
    }
    full = replace(event(2_000), task=0, table="orders", trigger=requested, count=2, since=1_500)
    assert full.document() == {
        **event(2_000).document(),
        "task": 0,
        "table": "orders",
        "by": {"type": "request", "method": "PUT", "path": "/connectors/shop/pause", "user": "ann"},
        "count": 2,
        "since": "1970-01-01T00:00:01.500Z",
    }


def test_texts_have_a_bound() -> None:
    assert name_list(["a", "b"]) == "a, b"
    assert name_list(map(str, range(25))).endswith("18, 19 and 5 more")
    assert short("x" * 500) == "x" * 500
    assert short("x" * 501) == "x" * 499 + "…"


def test_changed_options_are_names_alone() -> None:
    assert changed_options({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "x", "d": "4"}) == ["b", "c", "d"]


def test_tasks_have_moved_if_another_worker_had_them() -> None:
    before = {("shop", 0): "a:1", ("shop", 1): "a:1", ("crm", 0): "b:1", ("old", 0): "a:1"}
    after = {("shop", 0): "a:1", ("shop", 1): "b:1", ("crm", 0): "a:1", ("new", 0): "b:1"}
    assert moved_tasks(before, after) == ["crm-0 from b:1 to a:1", "shop-1 from a:1 to b:1"]
