"""The properties in which a lake table stores its sources (``merge.md`` section 11). Pure.

A property for each source, ``headrace.source.<digest>``: with one list for all, two writers that add a source at the
same time would each replace the other's list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from headrace.core.model.events import TableId
from headrace.core.tables.table_sources import TableSource
from headrace_connectors.lakehouse.snapshot import CONNECTOR, GROUP, stored_offsets

_PREFIX = "headrace.source."


def source_properties(sources: Iterable[TableSource]) -> dict[str, str]:
    """Return the properties that store these sources."""
    return {property_name(source): _json(source) for source in sources}


def property_name(source: TableSource) -> str:
    """Return the name of a source's property. Group and topic id may change, and are not part of it."""
    table = source.table
    parts = [source.connector, source.topic, table.name, table.database, table.schema, table.table]
    return _PREFIX + blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def stored_sources(properties: Mapping[str, str]) -> list[TableSource]:
    """Return the sources in the properties of a table, in the order of their topics."""
    found = [_source(value) for name, value in properties.items() if name.startswith(_PREFIX)]
    return sorted(found, key=lambda source: (source.topic, str(source)))


def sources_of_commits(commits: Iterable[Mapping[str, str]]) -> Sequence[TableSource]:
    """Return what the properties of commits (newest first) show of a table whose properties name no source.

    Compactions and other tools make commits without a connector.
    """
    newest = next((each for each in commits if GROUP in each and CONNECTOR in each), None)
    if newest is None:
        return ()
    topics = sorted({topic for topic, _ in stored_offsets(newest)})
    return [TableSource(newest[CONNECTOR], newest[GROUP], topic, TableId("", "", "", "")) for topic in topics]


def _json(source: TableSource) -> str:
    table = source.table
    return json.dumps(
        {
            "connector": source.connector,
            "group": source.group,
            "topic": source.topic,
            "topic-id": source.topic_id,
            "name": table.name,
            "database": table.database,
            "schema": table.schema,
            "table": table.table,
        }
    )


def _source(text: str) -> TableSource:
    stored = json.loads(text)
    table = TableId(stored["name"], stored["database"], stored["schema"], stored["table"])
    return TableSource(stored["connector"], stored["group"], stored["topic"], table, stored["topic-id"])
