"""Tables of a connector with transforms: their names, and the columns that can be compared with those of the source.

Tests: ``tests/unit/runtime/verify/test_transformed_tables.py``, ``tests/integration/test_verify.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.core.model.schema import Schema
from headrace.runtime.task.task_options import SinkTaskOptions
from headrace.transforms.column_probe import ColumnProbe, TransformedTable, routed_topic, transformed_table
from headrace.transforms.registry import chain


def check_transforms(task: SinkTaskOptions) -> None:
    """Raise ConfigError if the transforms decide by each record what becomes of it, or if the tables are histories."""
    if task.transforms and task.tables.history:
        raise ConfigError("insert.mode: a history of transformed records is not compared", "insert.mode")
    if task.transforms.varying:
        raise ConfigError(
            f"{'; '.join(task.transforms.varying)}: the connector's tables cannot be compared with their source; apply "
            "this at the source connector, or replace it (docs/transforms.md)",
            "transforms",
        )


class TransformedTables:
    """What a connector's transforms make of its tables. Without transforms, they are the tables of the source.

    One thread at a time calls it.
    """

    def __init__(self, task: SinkTaskOptions) -> None:
        self._naming, self._envelope = task.naming, task.envelope
        self._chain = chain(task.transforms.properties)  # the task's own caches schemas in other threads

    def name(self, topic: str, table: TableId) -> str:
        """Return the name of the lake table of a topic that the connector reads. Raises ConfigError if it has none."""
        routed = self._topic_of_rows(topic)
        if routed is None:
            raise ConfigError(f"topic {topic}: the connector's transforms drop all of its records")
        return self._naming.name(routed, table)

    def drop(self, topic: str) -> bool:
        """Return whether the transforms drop all records of a topic."""
        return self._topic_of_rows(topic) is None

    def columns(
        self, topic: str, catalog: CatalogTable, row: Schema, stored: Sequence[str], stored_key: Sequence[str]
    ) -> TransformedTable:
        """Return which columns of a lake table are copies of source columns.

        ``row`` is the schema of the source's rows in events. ``stored`` are the columns of the lake table,
        ``stored_key`` those of its key; both are empty if the table does not exist. Raises ConfigError if its rows
        cannot be matched with those of the source.
        """
        names = [member.name for member in row.fields]
        key = [part.name for part in catalog.key if part.name in names]
        if not self._chain:
            return TransformedTable(topic, dict(zip(names, names, strict=True)), key=tuple(key))
        nullable = {member.name for member in row.fields if member.schema.optional}
        defaulted = [column.name for column in catalog.columns if column.has_default and column.name in nullable]
        probe = ColumnProbe(self._chain, topic, catalog.table, row, self._envelope, defaulted)
        return transformed_table(probe, key, () if self._envelope.key_fields else stored_key, stored)

    def _topic_of_rows(self, topic: str) -> str | None:
        return routed_topic(self._chain, topic) if self._chain else topic
