"""How many events of the topic a contestant's table contains, read from the summary of its newest snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from benchmarks.workload import TOPIC


def events_of_headrace(folder: Path) -> int:
    """Return the offset up to which the table in a folder has the topic, which has one partition."""
    offsets = json.loads(_summary(folder).get("headrace.offsets", "{}")).get(TOPIC, {}).get("offsets", {})
    return int(offsets.get("0", 0))


def events_of_flink(folder: Path) -> int:
    """Return the deletes of a table: Flink's sink writes one for each event, by key or by place in the commit."""
    summary = _summary(folder)
    return int(summary.get("total-equality-deletes", 0)) + int(summary.get("total-position-deletes", 0))


def _summary(folder: Path) -> Mapping[str, str]:
    """Return the summary of the newest snapshot; the file of an older version may be removed while it is read."""
    with suppress(FileNotFoundError, ValueError):
        version = (folder / "metadata" / "version-hint.text").read_text().strip()
        metadata = json.loads((folder / "metadata" / f"v{version}.metadata.json").read_text())
        newest = metadata["current-snapshot-id"]
        summary: Mapping[str, str] = next(
            each["summary"] for each in metadata["snapshots"] if each["snapshot-id"] == newest
        )
        return summary
    return {}
