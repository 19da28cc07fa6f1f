"""What a table commit says about itself, as properties of its snapshot (``merge.md`` section 9). Pure."""

from __future__ import annotations

import json

from headrace.ports import Commit

FORMAT_VERSION = "1"
"""Of what Headrace itself stores in a table: its columns, its ledger, its snapshot properties."""


def commit_properties(commit: Commit) -> dict[str, str]:
    """Batch, connector, group, offsets and watermark as snapshot properties.

    ``headrace.offsets`` is JSON, ``{topic: {"id": null, "offsets": {"0": 123}}}``, with next offsets by partition.
    """
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in commit.offsets.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    offsets = {topic: {"id": None, "offsets": partitions} for topic, partitions in topics.items()}
    return {
        "headrace.format-version": FORMAT_VERSION,
        "headrace.batch-id": str(commit.batch_id),
        "headrace.connector": commit.connector,
        "headrace.group": commit.group,
        "headrace.offsets": json.dumps(offsets),
        "headrace.watermark": str(commit.watermark),
    }
