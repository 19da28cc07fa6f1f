"""What a connector would read and write, before it is created: its topics, and the names of their tables.

Tests: ``tests/rest/test_preview.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace.config import SinkConnectorConfig
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.ports import Stores

MOST_TOPICS = 1000
"""Of a preview; the others are counted."""
_NO_SOURCE = TableId("", "", "", "")


@dataclass(frozen=True, slots=True)
class TopicPreview:
    """A topic that exists. ``table`` is None where records decide its name, and where ``problem`` says why."""

    topic: str
    partitions: int
    table: str | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectorPreview:
    """The topics that a configuration matches, by name. ``missing`` are those that it lists and that do not exist.

    ``more_topics`` counts those beyond ``MOST_TOPICS``. ``names_from_records`` says why no table has a name yet, None
    if they follow from the topics.
    """

    format: str
    catalog: str
    namespace: str
    topics: Sequence[TopicPreview]
    more_topics: int
    missing: Sequence[str]
    names_from_records: str | None

    def document(self) -> Mapping[str, Any]:
        """Return the preview as JSON."""
        return asdict(self)


async def preview(connector: SinkConnectorConfig, stores: Stores) -> ConnectorPreview:
    """Look at the topics of a connector, and change nothing. Raises HeadraceError if the brokers do not answer."""
    wanted, tables = connector.framework.topics, connector.tables
    ends = await stores.topic_offsets(connector.name, connector.kafka).ends(wanted.whole_names)
    partitions = Counter(partition.topic for partition in ends)
    from_records = _names_from_records(connector)

    def of(topic: str) -> TopicPreview:
        if from_records:
            return TopicPreview(topic, partitions[topic], None)
        try:
            return TopicPreview(topic, partitions[topic], tables.naming.name(topic, _NO_SOURCE))
        except ConfigError as error:
            return TopicPreview(topic, partitions[topic], None, str(error))

    existing = sorted(partitions)
    return ConnectorPreview(
        tables.format,
        tables.catalog,
        tables.namespace,
        [of(topic) for topic in existing[:MOST_TOPICS]],
        max(0, len(existing) - MOST_TOPICS),
        sorted(set(wanted.names) - partitions.keys()),
        from_records,
    )


def _names_from_records(connector: SinkConnectorConfig) -> str | None:
    if connector.framework.transforms:
        return "a transform may change the topic of a record, which names its table"
    if connector.tables.naming.by_source:
        return f"collection.name.format={connector.tables.name_format} names tables after the source table of a record"
    return None
