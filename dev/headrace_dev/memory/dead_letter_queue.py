"""A dead letter queue in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.core.decode.json_converter import document_bytes
from headrace.ports import ErrantRecord
from headrace_connectors.errant_headers import Headers, context_headers


@dataclass(frozen=True, slots=True)
class QueuedLetter:
    """A record in the queue."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class MemoryDeadLetterQueue:
    """A ``headrace.ports.DeadLetterQueue`` in a list, with context headers unless they are disabled."""

    def __init__(self, connector: str, task: int, *, with_context: bool = True) -> None:
        self._connector = connector
        self._task = task
        self._with_context = with_context
        self.letters: list[QueuedLetter] = []

    async def report(self, errant: Sequence[ErrantRecord]) -> None:
        """Append the records."""
        for each in errant:
            added = context_headers(each, self._connector, self._task) if self._with_context else []
            headers = [*each.record.headers, *added]
            self.letters.append(
                QueuedLetter(each.record.key, document_bytes(each.record.value), each.record.timestamp, headers)
            )

    async def close(self) -> None:
        """Do nothing."""
