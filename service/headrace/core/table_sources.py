"""Which source table each lake table is fed from (``merge.md`` section 11)."""

from __future__ import annotations

from headrace.core.errors import Fatal
from headrace.core.events import TableId


class TableSources:
    """Lets one source table into a lake table, unless ``shared``: the operator has named a key that holds for all.

    Rows of two tables whose keys are equal would be one row, and positions of two servers cannot be compared: which of
    the two stands would be an accident.
    """

    def __init__(self, shared: bool) -> None:
        self._shared = shared
        self._sources: dict[str, tuple[TableId, str]] = {}

    def admit(self, name: str, source: TableId, topic: str) -> None:
        """Note that events of ``source`` go into the table ``name``. Raises Fatal for a second source.

        A tombstone whose topic has told no source yet (its ``name`` is empty) may belong to any.
        """
        if self._shared or not source.name:
            return
        first, first_topic = self._sources.setdefault(name, (source, topic))
        if first != source:
            raise Fatal(
                f"{name}: topic {first_topic} brings rows of {_text(first)}, topic {topic} those of {_text(source)}; "
                "equal keys of the two would be one row. Give each a table of its own with collection.name.format, or "
                "name in primary.key.fields the columns that tell all of their rows apart"
            )


def _text(source: TableId) -> str:
    """The table in the words of its source block, with the connector's logical name first."""
    return ".".join(part for part in (source.name, source.database, source.schema, source.table) if part)
