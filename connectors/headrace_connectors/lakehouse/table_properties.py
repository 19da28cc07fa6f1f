"""What Headrace stores in the properties of a table (``merge.md`` section 11) and of its commits (section 9). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from headrace.core.model import log_progress
from headrace.core.model.errors import Fatal
from headrace.core.model.events import TableId
from headrace.core.tables.table_sources import TableSource
from headrace.ports import Commit, TopicPartition

FORMAT = "headrace.format-version"
"""The property of a table and of each commit with the version of what Headrace stores in it."""
FORMAT_VERSION = "1"
"""The version of the columns, the ledger and the properties of commits that this code reads and writes."""

CONNECTOR = "headrace.connector"
GROUP = "headrace.group"
_OFFSETS = "headrace.offsets"
_LOGS = "headrace.logs"
_COMMITS_COMPARED = 10
"""Tasks of one group that write the same table may each miss the other's newest commit, but not several."""


class Progress(NamedTuple):
    """The offsets of a consumer group that the commits of a table contain."""

    group: str
    offsets: Mapping[TopicPartition, int]
    logs: log_progress.Progress = MappingProxyType({})

    def with_commit(self, commit: Commit) -> Progress:
        """Return the progress after ``commit``: the highest offsets of its group, without those of another group."""
        if not commit.group:
            return self
        before = self if commit.group == self.group else NO_PROGRESS
        logs = log_progress.furthest(before.logs, commit.progress)
        return Progress(commit.group, highest(before.offsets, commit.offsets), logs)


NO_PROGRESS = Progress("", {})


def refuse_newer(table: str, properties: Mapping[str, str]) -> None:
    """Raise Fatal for properties of a later version of Headrace, whose rows this one might misread."""
    stored = properties.get(FORMAT, FORMAT_VERSION)
    if not stored.isdecimal() or int(stored) > int(FORMAT_VERSION):
        raise Fatal(
            f"{table}: the table is in version {stored} of Headrace's format, and this release writes version "
            f"{FORMAT_VERSION}; run the release again that wrote the table, or a later one"
        )


def highest(*offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The highest of each partition's offsets."""
    maxima: dict[TopicPartition, int] = {}
    for commit in offsets:
        maxima |= {partition: max(offset, maxima.get(partition, 0)) for partition, offset in commit.items()}
    return maxima


def progress_of_commits(commits: Iterable[Mapping[str, str]], group: str = "") -> Progress | None:
    """Return the progress of a group, or of the newest one, from the properties of commits, newest first."""
    if group:
        compared = list(islice((commit for commit in commits if commit.get(GROUP) == group), _COMMITS_COMPARED))
    else:
        compared = list(islice((commit for commit in commits if GROUP in commit), 1))
    if not compared:
        return None
    logs = log_progress.newest(commit.get(_LOGS, "") for commit in compared)
    return Progress(compared[0][GROUP], highest(*map(stored_offsets, compared)), logs)


def commit_properties(commit: Commit, before: Progress = NO_PROGRESS) -> dict[str, str]:
    """Return batch, connector, group, offsets and, if known, watermark as snapshot properties.

    ``headrace.offsets`` is JSON, ``{topic: {"id": null, "offsets": {"0": 123}}}``, with next offsets by partition:
    those of ``commit`` and of the commits ``before`` it. ``headrace.logs`` (``log_progress.to_text``) is there if
    events contained the servers of their logs.
    """
    properties = {FORMAT: FORMAT_VERSION, CONNECTOR: commit.connector}
    properties |= carried_properties(before.with_commit(commit))
    if commit.group:
        properties["headrace.batch-id"] = str(commit.batch_id)
        if commit.watermark >= 0:
            properties["headrace.watermark"] = str(commit.watermark)
    return properties


def carried_properties(before: Progress) -> dict[str, str]:
    """Return the properties of a commit without records: it repeats those of the commits before it."""
    if not before.group:
        return {}
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in before.offsets.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    offsets = {topic: {"id": None, "offsets": partitions} for topic, partitions in topics.items()}
    logs = {_LOGS: log_progress.to_text(before.logs)} if before.logs else {}
    return {GROUP: before.group, _OFFSETS: json.dumps(offsets)} | logs


def stored_offsets(properties: Mapping[str, str]) -> dict[TopicPartition, int]:
    """Return the next offsets that ``commit_properties`` wrote."""
    topics = json.loads(properties.get(_OFFSETS, "{}"))
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, committed in topics.items()
        for partition, offset in committed["offsets"].items()
    }


_PREFIX = "headrace.source."


def source_properties(sources: Iterable[TableSource]) -> dict[str, str]:
    """Return the properties that store these sources, as JSON."""
    return {
        property_name(source): json.dumps(
            {
                "connector": source.connector,
                "group": source.group,
                "topic": source.topic,
                "topic-id": source.topic_id,
                "name": source.table.name,
                "database": source.table.database,
                "schema": source.table.schema,
                "table": source.table.table,
            }
        )
        for source in sources
    }


def property_name(source: TableSource) -> str:
    """Return the name of a source's property. Group and topic id may change, and are not part of it."""
    table = source.table
    parts = [source.connector, source.topic, table.name, table.database, table.schema, table.table]
    return _PREFIX + blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def stored_sources(properties: Mapping[str, str]) -> list[TableSource]:
    """Return the sources in the properties of a table, in the order of their topics."""
    sources = []
    for name, value in properties.items():
        if name.startswith(_PREFIX):
            stored = json.loads(value)
            table = TableId(stored["name"], stored["database"], stored["schema"], stored["table"])
            sources.append(
                TableSource(stored["connector"], stored["group"], stored["topic"], table, stored["topic-id"])
            )
    return sorted(sources, key=lambda source: (source.topic, str(source)))


def sources_of_commits(commits: Iterable[Mapping[str, str]]) -> Sequence[TableSource]:
    """Return what the properties of commits (newest first) show of a table whose properties name no source.

    Compactions and other tools make commits without a connector.
    """
    newest = next((commit for commit in commits if GROUP in commit and CONNECTOR in commit), None)
    if newest is None:
        return ()
    topics = sorted({topic for topic, _ in stored_offsets(newest)})
    return [TableSource(newest[CONNECTOR], newest[GROUP], topic, TableId("", "", "", "")) for topic in topics]
