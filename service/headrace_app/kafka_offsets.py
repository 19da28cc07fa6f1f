"""Topics and offsets of a connector in Kafka, for commands."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from headrace.config import SinkConnectorConfig
from headrace.ports import Stores, TopicPartition


class KafkaOffsets:
    """Offsets in Kafka, for a program that runs no event loop."""

    def __init__(self, stores: Stores, connector: SinkConnectorConfig, runner: asyncio.Runner) -> None:
        self._topics = stores.topic_offsets(connector.name, connector.kafka)
        self._groups = stores.group_offsets(connector.name, connector.kafka)
        self._group = connector.group_id
        self._wanted = connector.framework.topics
        self._runner = runner

    def topics(self) -> list[str]:
        """Return the connector's topics that exist."""
        pattern = self._wanted.pattern or "|".join(map(re.escape, self._wanted.names))
        return sorted({partition.topic for partition in self._runner.run(self._topics.ends(pattern))})

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        """Return the end offset of every partition of the topic."""
        return self._runner.run(self._topics.ends(re.escape(topic)))

    def committed_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the group's committed offsets."""
        return self._runner.run(self._groups.committed(self._group))
