"""The source tables of each lake table, and who writes them (``merge.md`` section 11)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headrace.core.model.errors import Fatal
from headrace.core.model.events import TableId, Truncate

_REMEDY = (
    "Delete the rows of that source from the table by hand if they are not wanted, set the connector's offset after "
    "the record (PATCH /connectors/<name>/offsets), and configure the source connector to skip truncates "
    "(skipped.operations=t)"
)


@dataclass(frozen=True, slots=True)
class TableSource:
    """A source table whose rows a connector writes to a lake table, and the Kafka topic that contains them.

    The lake table stores it, for other connectors, for other workers and for the time after a restart. ``table``
    has an empty ``name`` while no record has named its source table (tombstones, flattened records). ``group`` is the
    consumer group, "" if there is none (a replay of dead letters). ``topic_id`` is Kafka's id of the topic, "" if it is
    unknown.
    """

    connector: str
    group: str
    topic: str
    table: TableId
    topic_id: str = ""

    def is_of_former_topic(self, other: TableSource) -> bool:
        """Return whether the topic has been deleted and created again since: its offsets began anew."""
        return self.topic == other.topic and "" != self.topic_id != other.topic_id != ""

    def has_the_writer_of(self, other: TableSource) -> bool:
        """Return whether one reader at a time has both: tasks of a connector, or members of a consumer group."""
        return self.connector == other.connector or (self.group != "" and self.group == other.group)

    def may_be_of(self, other: TableSource) -> bool:
        """Return whether both may be the same source table. A topic has one until it shows another."""
        if self.table.name and other.table.name:
            return self.table == other.table
        return self.topic == other.topic

    def __str__(self) -> str:
        of = f" (source table {_text(self.table)})" if self.table.name else ""
        return f"connector {self.connector}, topic {self.topic}{of}"


def rivals(stored: Iterable[TableSource], source: TableSource, *, shared: bool) -> list[TableSource]:
    """Return the sources of a lake table beside which ``source`` must not be written to it.

    Rows of two source tables with equal keys would be one row, unless the key is unique in all of them (``shared``). A
    topic that two connectors write to one table has two readers, which is refused in any case. What a topic contains
    that was created again has lower offsets than the rows of the former one, so that some of it would count as older.
    """
    return [
        other
        for other in stored
        if (
            not (shared or other.may_be_of(source)) or other.is_of_former_topic(source)
            if other.has_the_writer_of(source)
            else other.topic == source.topic or not shared
        )
    ]


class TableSources:
    """Accept one source table per lake table, unless ``shared``: the operator has named a key that is unique in all.

    Rows of two source tables with equal keys would be one row, and positions of two servers cannot be compared: which
    row remains would be undefined. ``merged`` is whether transforms rename several topics to one, even if events of
    only one of them have arrived so far.
    """

    def __init__(self, shared: bool, merged: bool = False) -> None:
        self._shared = shared
        self._merged = merged
        self._sources: dict[str, tuple[TableId, str]] = {}
        self._joint: set[str] = set()

    def admit(self, name: str, source: TableId, topic: str) -> None:
        """Register ``source`` as the source of the table ``name``. Raises Fatal for a second source.

        A tombstone may arrive before its topic's source is known (``source.name`` is empty): it is accepted.
        """
        if not source.name:
            return
        first, first_topic = self._sources.setdefault(name, (source, topic))
        if first == source:
            return
        self._joint.add(name)
        if not self._shared:
            raise Fatal(
                f"{name}: the table has two sources: topic {first_topic} contains rows of {_text(first)}, topic "
                f"{topic} those of {_text(source)}; rows with equal keys would be one row. Write each source to a "
                "separate table with collection.name.format, or set primary.key.fields to columns that are unique "
                "across all sources"
            )

    def admit_truncate(self, name: str, truncate: Truncate, topic: str, partitions: int) -> None:
        """Raise Fatal for a truncate that would remove other rows than those of its source table.

        If the table has several sources, a truncate of one would remove the rows of the others as well, and their later
        events would count as older than it. ``topic`` is the topic after transforms. Sources that share a key are known
        only after an event of each has arrived; ``refuse_truncate_of_others`` checks the stored rows as well. Without a
        position, nothing orders a truncate among the changes of the topic's other ``partitions``, since it has no key
        (``merge.md`` section 5).
        """
        version = truncate.version
        if (self._merged and topic != version.topic) or name in self._joint:
            raise Fatal(
                f"{_description(name, truncate)}, but the table has rows of other source tables, which would be "
                f"removed as well. {_REMEDY}, or write each source to a separate table"
            )
        if not version.position and partitions > 1:
            raise Fatal(
                f"{_description(name, truncate)} without a source position, and the topic has {partitions} partitions: "
                f"it is unknown which of their changes came before it. {_REMEDY}, or give the topic one partition"
            )


def refuse_truncate_of_others(name: str, truncate: Truncate, topics: Collection[str]) -> None:
    """Raise Fatal if ``topics``, the topics of the table's rows, contain another topic than the truncate's."""
    if others := sorted(set(topics) - {truncate.version.topic}):
        raise Fatal(
            f"{_description(name, truncate)}, but the table has rows of other topics ({', '.join(others)}), which "
            f"would be removed as well. {_REMEDY}, or write each source to a separate table"
        )


def _description(name: str, truncate: Truncate) -> str:
    version = truncate.version
    return f"{name}: {version.topic}-{version.partition}@{version.offset} truncates {_text(truncate.table)}"


def _text(source: TableId) -> str:
    """Return the table's name as its source block has it, with the connector's logical name first."""
    return ".".join(part for part in (source.name, source.database, source.schema, source.table) if part)
