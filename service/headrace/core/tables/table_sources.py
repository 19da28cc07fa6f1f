"""Which source table each lake table is fed from (``merge.md`` section 11)."""

from __future__ import annotations

from collections.abc import Collection

from headrace.core.model.errors import Fatal
from headrace.core.model.events import TableId, Truncate

_WAY_OUT = (
    "Delete the rows of that source from the table by hand if they are not wanted, set the connector's offset behind "
    "the record (PATCH /connectors/<name>/offsets), and have the source connector leave truncates out "
    "(skipped.operations=t)"
)


class TableSources:
    """Lets one source table into a lake table, unless ``shared``: the operator has named a key that holds for all.

    Rows of two tables whose keys are equal would be one row, and positions of two servers cannot be compared: which of
    the two stands would be an accident. ``merged`` tells that transforms bring several into one, by a topic that
    they give them, whether all of them have been seen yet or not.
    """

    def __init__(self, shared: bool, merged: bool = False) -> None:
        self._shared = shared
        self._merged = merged
        self._sources: dict[str, tuple[TableId, str]] = {}
        self._joint: set[str] = set()

    def admit(self, name: str, source: TableId, topic: str) -> None:
        """Note that events of ``source`` go into the table ``name``. Raises Fatal for a second source.

        A tombstone whose topic has told no source yet (its ``name`` is empty) may belong to any.
        """
        if not source.name:
            return
        first, first_topic = self._sources.setdefault(name, (source, topic))
        if first == source:
            return
        self._joint.add(name)
        if not self._shared:
            raise Fatal(
                f"{name}: topic {first_topic} brings rows of {_text(first)}, topic {topic} those of {_text(source)}; "
                "equal keys of the two would be one row. Give each a table of its own with collection.name.format, or "
                "name in primary.key.fields the columns that tell all of their rows apart"
            )

    def admit_truncate(self, name: str, truncate: Truncate, topic: str, partitions: int) -> None:
        """Raise Fatal for a truncate that cannot be told apart from what it must not remove.

        That of one of several sources would remove the rows of the others as well, and what they bring later would
        count as older than it. ``topic`` is the one that transforms have given it. Of sources that only share a key
        which the operator named it is known from their events that they share the table, so not until one of each has
        been seen, or from the rows (``refuse_truncate_of_others``). And it has no key: without a position nothing
        orders it among the changes in the topic's other ``partitions`` (``merge.md`` section 5).
        """
        version = truncate.version
        if (self._merged and topic != version.topic) or name in self._joint:
            raise Fatal(
                f"{_place(name, truncate)}, but the table has rows of other source tables, which would be removed as "
                f"well. {_WAY_OUT}, or give each source a table of its own"
            )
        if not version.position and partitions > 1:
            raise Fatal(
                f"{_place(name, truncate)} without a source position, and the topic has {partitions} partitions: which "
                f"of their changes came before it cannot be told. {_WAY_OUT}, or give the topic one partition"
            )


def refuse_truncate_of_others(name: str, truncate: Truncate, topics: Collection[str]) -> None:
    """Raise Fatal where some of ``topics``, from which the table's rows come, are not the truncate's own."""
    if others := sorted(set(topics) - {truncate.version.topic}):
        raise Fatal(
            f"{_place(name, truncate)}, but the table has rows of other topics ({', '.join(others)}), which would be "
            f"removed as well. {_WAY_OUT}, or give each source a table of its own"
        )


def _place(name: str, truncate: Truncate) -> str:
    version = truncate.version
    return f"{name}: {version.topic}-{version.partition} at offset {version.offset} truncates {_text(truncate.table)}"


def _text(source: TableId) -> str:
    """The table in the words of its source block, with the connector's logical name first."""
    return ".".join(part for part in (source.name, source.database, source.schema, source.table) if part)
