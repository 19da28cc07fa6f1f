"""Predicates: which records a transform is for."""

from __future__ import annotations

from headrace.transforms import java_regex
from headrace.transforms.record import SinkRecord


class TopicNameMatches:
    """Records of topics whose whole name a pattern matches."""

    def __init__(self, pattern: str) -> None:
        self._pattern = java_regex.compiled(pattern)

    def __call__(self, record: SinkRecord) -> bool:
        """Whether the topic is one of them, under the name that it has by now."""
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey:
    """Records with a header of a name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, record: SinkRecord) -> bool:
        """Whether there is such a header."""
        return any(name == self._name for name, _ in record.headers)


class RecordIsTombstone:
    """Records without a value."""

    def __call__(self, record: SinkRecord) -> bool:
        """Whether the value is null."""
        return record.value.value is None


def drop(_record: SinkRecord) -> None:
    """The transform ``Filter``: ends every record that its predicate lets through to it."""
    return
