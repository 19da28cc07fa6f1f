"""What a table commit says about itself, as properties of its snapshot (``merge.md`` section 9). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from headrace.ports import Commit, TopicPartition

FORMAT_VERSION = "1"
"""Of what Headrace itself stores in a table: its columns, its ledger, its snapshot properties."""


GROUP = "headrace.group"
_OFFSETS = "headrace.offsets"


def commit_properties(commit: Commit) -> dict[str, str]:
    """Batch, connector, group, offsets and, where it is known, watermark as snapshot properties.

    ``headrace.offsets`` is JSON, ``{topic: {"id": null, "offsets": {"0": 123}}}``, with next offsets by partition.
    """
    properties = {"headrace.format-version": FORMAT_VERSION, "headrace.connector": commit.connector}
    return properties | _progress(commit) if commit.group else properties


def _progress(commit: Commit) -> dict[str, str]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in commit.offsets.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    offsets = {topic: {"id": None, "offsets": partitions} for topic, partitions in topics.items()}
    properties = {"headrace.batch-id": str(commit.batch_id), GROUP: commit.group, _OFFSETS: json.dumps(offsets)}
    return properties if commit.watermark < 0 else properties | {"headrace.watermark": str(commit.watermark)}


def stored_offsets(properties: Mapping[str, str]) -> dict[TopicPartition, int]:
    """The next offsets that ``commit_properties`` wrote."""
    topics = json.loads(properties.get(_OFFSETS, "{}"))
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, told in topics.items()
        for partition, offset in told["offsets"].items()
    }
