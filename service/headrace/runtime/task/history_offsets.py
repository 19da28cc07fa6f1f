"""What the tables of a connector with ``insert.mode=insert`` say about offsets, asked while no task runs.

Every commit of a history carries the offsets up to which events are in it (``runtime/pipeline/history_pipeline.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from concurrent.futures import Executor

from headrace.config import SinkConnectorConfig
from headrace.core.model.errors import RestError
from headrace.core.model.events import TableId
from headrace.core.tables.naming import KEY
from headrace.ports import Lakehouse, TopicPartition
from headrace.runtime.task.task_factory import table_options

_NO_SOURCE = TableId("", "", "", "")


class HistoryOffsets:
    """Reads the offsets from the lakehouse (``runtime/worker/sink_offsets.py: StoredOffsets``)."""

    def __init__(self, lakehouse: Lakehouse, executor: Executor) -> None:
        self._lakehouse = lakehouse
        self._executor = executor

    async def __call__(self, config: SinkConnectorConfig, topics: Collection[str]) -> Mapping[TopicPartition, int]:
        """The next offsets that the tables of ``topics`` hold. Raises RestError 400 where their names are not known."""
        names = sorted({_table(config, topic) for topic in topics})
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._ask, config, names)

    def _ask(self, config: SinkConnectorConfig, names: Collection[str]) -> Mapping[TopicPartition, int]:
        held: dict[TopicPartition, int] = {}
        for name in names:
            table = self._lakehouse.table(config.tables.namespace, name, table_options(config.tables))
            held.update(table.offsets(config.group_id))
        return held


def _table(config: SinkConnectorConfig, topic: str) -> str:
    """The table's name, as far as it follows from the topic alone."""
    naming = config.tables.naming
    if naming.by_source or config.framework.transforms:
        raise RestError(
            f"{KEY}={config.tables.name_format} or a transform names the connector's histories by what stands in the "
            "events, so it is not known which events they hold already: each is appended once, and reading it again "
            "would append nothing. Create a connector with another name that writes to other tables",
            400,
        )
    return naming.name(topic, _NO_SOURCE)
