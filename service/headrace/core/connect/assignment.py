"""Assign topics to the members of a group: complete topics, balanced and sticky.

A table has one writer because a topic has one owner. Members may have different subscriptions while a connector's
pattern changes, because its tasks restart one after another.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Mapping


def assign_topics(
    subscriptions: Mapping[str, Collection[str]], held: Mapping[str, Collection[str]]
) -> dict[str, set[str]]:
    """Return the topics of each member. Every topic is assigned exactly once, to a member that subscribes to it.

    Among members with equal subscriptions the counts differ by at most one; a topic moves only for this balance.
    The result depends only on the arguments, and not on their order.
    """
    owners: dict[str, set[str]] = {member: set() for member in sorted(subscriptions)}
    wanted = {topic: {m for m in owners if topic in subscriptions[m]} for topic in set().union(*subscriptions.values())}
    for topic in sorted(wanted):
        holders = [member for member in owners if topic in held.get(member, ()) and member in wanted[topic]]
        if holders:
            owners[holders[0]].add(topic)
    for topic in sorted(wanted.keys() - set().union(*owners.values())):
        owners[_least(wanted[topic], owners)].add(topic)
    ordered = {member: sorted(mine) for member, mine in owners.items()}
    while _move_one(ordered, wanted):
        pass
    return {member: set(mine) for member, mine in ordered.items()}


def _move_one(owners: Mapping[str, list[str]], wanted: Mapping[str, set[str]]) -> bool:
    """Move one topic from a fuller member to one with at least two fewer; each move lowers the sum of squares.

    ``owners`` stays sorted, so that a move is cheap: a rebalance may need thousands of them.
    """
    for giver in sorted(owners, key=lambda member: (-len(owners[member]), member)):
        for index in range(len(owners[giver]) - 1, -1, -1):
            topic = owners[giver][index]
            taker = _least(wanted[topic], owners)
            if len(owners[giver]) - len(owners[taker]) >= 2:
                del owners[giver][index]
                insort(owners[taker], topic)
                return True
    return False


def _least(members: Collection[str], owners: Mapping[str, Collection[str]]) -> str:
    return min(members, key=lambda member: (len(owners[member]), member))
