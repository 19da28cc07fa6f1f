"""Find the source tables of a connector's topics, for ``headrace verify``.

A topic does not always name its source table: Debezium replaces each character that a topic's name cannot have by
``_``, and a router at the source may rename topics. The lake table stores which source table its rows are of, as the
events contain it (``merge.md`` section 11). A table that an earlier release has written stores that with its next
batch; until then only the topic's name indicates it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.core.reselect.options import DatabaseOptions
from headrace.core.tables.naming import table_of_topic
from headrace.core.tables.table_sources import TableSource as StoredSource
from headrace.ports import TableSource

_REPLACED = re.compile(r"[^A-Za-z0-9._-]")


class SourceTables:
    """``named`` are source tables that the operator names (``schema.table``), each of them perhaps of another topic.

    ``lake_name`` returns the lake table of a source table in a topic, by name. It raises ConfigError if there is none.
    ``stored`` returns the sources that a lake table stores, by its name; none for a table that does not exist.
    """

    def __init__(
        self,
        databases: Sequence[tuple[DatabaseOptions, TableSource]],
        lake_name: Callable[[str, TableId], str],
        stored: Callable[[str], Sequence[StoredSource]],
        named: Collection[str] = (),
    ) -> None:
        self._databases = databases
        self._lake_name = lake_name
        self._stored = stored
        self._named = [(schema, table) for schema, dot, table in (name.partition(".") for name in named) if dot]

    def of(self, topic: str) -> Sequence[tuple[TableId, TableSource]]:
        """Return the tables of a topic, with the first database that may have them; nothing if it has no table.

        The topic's name counts if the lake table stores no table of these databases: flattened records may not name
        their database.
        """
        for candidates in (self._stored_tables, self._guesses):
            for database, source in self._databases:
                if tables := [table for table in candidates(topic, database) if database.holds(table)]:
                    return [(table, source) for table in tables]
        return ()

    def _stored_tables(self, topic: str, database: DatabaseOptions) -> Sequence[TableId]:
        """Return the source tables that the lake tables of a topic store."""
        guesses = self._guesses(topic, database) or [TableId("", "", "", topic)]
        if by_topic := table_of_topic(topic, database.source_db or database.dbname):
            guesses = [*guesses, by_topic]
        try:
            lake_names = list(dict.fromkeys(self._lake_name(topic, guess) for guess in guesses))
        except ConfigError:  # the connector cannot write a table of such a name either
            return []
        sources = (source for name in lake_names for source in self._stored(name))
        return list(dict.fromkeys(source.table for source in sources if source.topic == topic and source.table.name))

    def _guesses(self, topic: str, database: DatabaseOptions) -> Sequence[TableId]:
        """Return the tables that a topic has by its name: those that the operator names, or else the one like it."""
        by_topic = table_of_topic(topic, database.source_db or database.dbname)
        if by_topic is None:
            return []
        renamed = [  # a topic inventory.order_items may be that of the table "order items"
            TableId(by_topic.name, by_topic.database, schema, table)
            for schema, table in self._named
            if (topic_form(schema), topic_form(table)) == (by_topic.schema, by_topic.table) != (schema, table)
        ]
        return renamed or [by_topic]


def refuse_shared_table(name: str, topic: str, table: TableId, stored: Sequence[StoredSource]) -> None:
    """Raise ConfigError for a lake table that stores other source tables than ``table``.

    It equals none of them, and a repair would delete the rows of the others.
    """
    of_topic = {source.table for source in stored if source.topic == topic and source.table.name}
    of_others = {source.table for source in stored if source.topic != topic and source.table.name} - of_topic - {table}
    if len(of_topic) > 1 or of_others:
        tables = ", ".join(sorted(f"{other.schema}.{other.table}" for other in of_topic | of_others | {table}))
        raise ConfigError(
            f"{table.schema}.{table.table}: cannot be compared: its lake table {name} has the rows of several source "
            f"tables ({tables}), and equals none of them"
        )


def topic_form(name: str) -> str:
    """Return the name of a schema or table as Debezium writes it into a topic's name.

    Java replaces UTF-16 units, so that a character above U+FFFF becomes two.
    """
    return _REPLACED.sub(lambda character: "_" * (1 + (character[0] > "\uffff")), name)
