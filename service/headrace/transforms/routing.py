"""Transforms that change a record's topic: RegexRouter, TimestampRouter."""

from __future__ import annotations

from headrace.transforms import java_regex
from headrace.transforms.java_dates import DateFormat
from headrace.transforms.record import SinkRecord, unusable


class RegexRouter:
    """Rename topics whose complete name matches a pattern."""

    def __init__(self, regex: str, replacement: str) -> None:
        self._pattern = java_regex.compiled(regex)
        self._replacement = replacement

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record under its new topic."""
        topic = java_regex.replaced(self._pattern, self._replacement, record.topic)
        return record if topic is None else record.with_topic(topic)


class TimestampRouter:
    """Rename topics by their records' timestamps."""

    def __init__(self, topic_format: str, timestamp_format: str) -> None:
        self._format = topic_format
        self._dates = DateFormat(timestamp_format)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record under its new topic."""
        if record.timestamp < 0:
            raise unusable("Timestamp missing on record")
        when = self._dates.format(record.timestamp)
        return record.with_topic(self._format.replace("${topic}", record.topic).replace("${timestamp}", when))
