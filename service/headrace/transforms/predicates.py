"""Predicates: select the records of a transform."""

from __future__ import annotations

from headrace.transforms import java_regex
from headrace.transforms.record import SinkRecord


class TopicNameMatches:
    """Records of topics whose complete name matches a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = java_regex.compiled(pattern)

    def __call__(self, record: SinkRecord) -> bool:
        """Whether the record's current topic matches."""
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey:
    """Records with a header with a certain name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, record: SinkRecord) -> bool:
        """Whether the record has the header."""
        return any(name == self._name for name, _ in record.headers)


class RecordIsTombstone:
    """Records without a value."""

    def __call__(self, record: SinkRecord) -> bool:
        """Whether the value is null."""
        return record.value.value is None


def drop(_record: SinkRecord) -> None:
    """The transform ``Filter``: drop every record that matches its predicate."""
    return
