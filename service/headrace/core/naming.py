"""Names of lake tables: ``collection.name.format`` as in Debezium's JDBC sink, plus ``table.namespace``."""

from __future__ import annotations

import re

from headrace.core.errors import ConfigError
from headrace.core.events import TableId

KEY = "collection.name.format"
_PLACE = re.compile(r"\$\{([^}]*)\}")
_PLACES = ("topic", "source.name", "source.db", "source.schema", "source.table")


class TableNaming:
    """Makes table names from topics and source tables. Raises ConfigError for a placeholder that nobody fills."""

    def __init__(self, form: str) -> None:
        unknown = [place for place in _PLACE.findall(form) if place not in _PLACES]
        if unknown:
            known = ", ".join(f"${{{place}}}" for place in _PLACES)
            raise ConfigError(f"{KEY}: ${{{unknown[0]}}} is not known; use {known}", KEY)
        self._form = form

    @property
    def by_source(self) -> bool:
        """Whether names depend on the source table, so that one topic may feed several tables."""
        return "${source." in self._form

    def name(self, topic: str, table: TableId) -> str:
        """The table's name without its namespace; dots of the topic become underscores."""
        values = dict(zip(_PLACES, (topic, table.name, table.database, table.schema, table.table), strict=True))
        return _PLACE.sub(lambda place: values[place[1]], self._form).replace(".", "_")


def table_of_topic(topic: str, database: str) -> TableId | None:
    """The source table of a topic that Debezium named, ``<prefix>.<schema>.<table>``; None for any other name."""
    parts = topic.rsplit(".", 2)
    if len(parts) != 3 or not all(parts):
        return None
    prefix, schema, table = parts
    return TableId(prefix, database, schema, table)
