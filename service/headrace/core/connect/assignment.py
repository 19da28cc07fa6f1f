"""Which member of a group reads which topic: whole topics, spread evenly, staying where they are.

A table has one writer because a topic has one owner. Members may have different subscriptions: a connector's pattern
was just changed, and its tasks restart one after another.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Mapping


def assign_topics(
    subscriptions: Mapping[str, Collection[str]], held: Mapping[str, Collection[str]]
) -> dict[str, set[str]]:
    """The topics of each member: every subscribed topic exactly once, to a member that subscribes to it.

    Among members with equal subscriptions the counts differ by at most one; a topic leaves its holder only for that.
    Depends on nothing but its arguments, whatever their order.
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

    ``owners`` stays sorted, so that a move costs next to nothing: a group that settles waits for thousands of them.
    """
    for giver in sorted(owners, key=lambda member: (-len(owners[member]), member)):
        for place in range(len(owners[giver]) - 1, -1, -1):
            topic = owners[giver][place]
            taker = _least(wanted[topic], owners)
            if len(owners[giver]) - len(owners[taker]) >= 2:
                del owners[giver][place]
                insort(owners[taker], topic)
                return True
    return False


def _least(members: Collection[str], owners: Mapping[str, Collection[str]]) -> str:
    return min(members, key=lambda member: (len(owners[member]), member))
