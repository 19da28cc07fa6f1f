"""The offsets of a connector's topics and group, for code that runs in a thread without an event loop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from headrace.config import SinkConnectorConfig
from headrace.core.model.errors import Retriable
from headrace.ports import Stores, TopicPartition

_ANSWER_SECONDS = 60.0
_T = TypeVar("_T")


class RunCoroutine(Protocol):
    """Runs a coroutine on an event loop, and waits for its result in the calling thread."""

    def __call__(self, work: Coroutine[Any, Any, _T], /) -> _T:
        """Return the result, or raise the error of ``work``."""


def run_on(loop: asyncio.AbstractEventLoop) -> RunCoroutine:
    """Return what runs coroutines on ``loop`` for other threads. It raises Retriable after a minute."""

    def wait_for(work: Coroutine[Any, Any, _T]) -> _T:
        running = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return running.result(_ANSWER_SECONDS)  # the loop may have ended, and would never answer
        except TimeoutError as error:
            raise Retriable(f"Kafka did not answer within {_ANSWER_SECONDS:g} s") from error
        finally:
            running.cancel()

    return wait_for


class KafkaOffsets:
    """``table_verifier.Offsets`` over the stores of a worker."""

    def __init__(self, stores: Stores, connector: SinkConnectorConfig, run: RunCoroutine) -> None:
        self._topics = stores.topic_offsets(connector.name, connector.kafka)
        self._groups = stores.group_offsets(connector.name, connector.kafka)
        self._group = connector.group_id
        self._run = run

    def topics(self, pattern: str) -> list[str]:
        """Return the topics whose whole name matches."""
        return sorted({partition.topic for partition in self._run(self._topics.ends(pattern))})

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        """Return the end offset of every partition of the topic."""
        return self._run(self._topics.ends(re.escape(topic)))

    def committed_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the group's committed offsets."""
        return self._run(self._groups.committed(self._group))
