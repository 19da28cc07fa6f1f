"""The properties of assigning topics to members."""

import time

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.connect.work import assign_topics

members = st.sampled_from(["m1", "m2", "m3", "m4"])
topics = st.frozensets(st.sampled_from([f"t{number}" for number in range(9)]))
subscriptions = st.dictionaries(members, topics, min_size=1)


@given(subscriptions, st.dictionaries(members, topics))
def test_every_topic_has_one_owner(wanted: dict[str, frozenset[str]], held: dict[str, frozenset[str]]) -> None:
    """Each subscribed topic has exactly one owner, who subscribes to it, whichever topics members report as held."""
    owners = assign_topics(wanted, held)
    assert owners.keys() == wanted.keys()
    given_out = sorted(topic for mine in owners.values() for topic in mine)
    assert given_out == sorted(set().union(*wanted.values()))
    assert all(mine <= wanted[member] for member, mine in owners.items())


@given(st.frozensets(members, min_size=1), topics, st.dictionaries(members, topics))
def test_topics_are_assigned_evenly(
    group: frozenset[str], shared: frozenset[str], held: dict[str, frozenset[str]]
) -> None:
    """Members with equal subscriptions differ by one topic at most."""
    counts = [len(mine) for mine in assign_topics(dict.fromkeys(group, shared), held).values()]
    assert max(counts) - min(counts) <= 1


@given(st.frozensets(members, min_size=1), topics)
def test_members_keep_their_topics(group: frozenset[str], shared: frozenset[str]) -> None:
    """A rebalance without a change moves nothing; if a member leaves, only its topics move."""
    before = assign_topics(dict.fromkeys(group, shared), {})
    assert assign_topics(dict.fromkeys(group, shared), before) == before
    staying = sorted(group)[1:]
    if staying:
        after = assign_topics(dict.fromkeys(staying, shared), before)
        assert all(before[member] <= after[member] for member in staying)


def test_thousands_of_topics_move_quickly() -> None:
    """The leader of the group computes the assignment on the thread that sends heartbeats."""
    topics = frozenset(f"t{number}" for number in range(10_000))
    began = time.process_time()
    owners = assign_topics(dict.fromkeys(["a", "b", "c"], topics), {"a": topics})
    assert time.process_time() - began < 5
    assert sorted(map(len, owners.values())) == [3333, 3333, 3334]
