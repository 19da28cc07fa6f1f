"""The topics of each lake table's rows, as far as a task has read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class TableTopics:
    """Topics by table."""

    def __init__(self) -> None:
        self._topics: dict[str, set[str]] = {}

    def add(self, table: str, topic: str) -> None:
        """Register that a topic contains a change of the table."""
        self._topics.setdefault(table, set()).add(topic)

    def of(self, tables: Iterable[str]) -> set[str]:
        """Return the topics of these tables."""
        return {topic for table in tables for topic in self._topics.get(table, ())}

    def tables(self, topic: str) -> list[str]:
        """The tables that a topic has brought changes of."""
        return [table for table, topics in self._topics.items() if topic in topics]

    def keep(self, topics: Collection[str]) -> list[str]:
        """Remove the tables that have none of ``topics``, and return their names."""
        left = [table for table, own in self._topics.items() if own.isdisjoint(topics)]
        for table in left:
            del self._topics[table]
        return left
