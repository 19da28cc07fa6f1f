"""A group member whose client has stopped, or whose group assigns nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.protocol.coordination import FindCoordinatorRequest_v0, FindCoordinatorResponse_v0
from support.fix_asyncio import eventually
from support.kafka.scripted_kafka import NODE, ScriptedKafka

from headrace.config.framework import TopicSettings
from headrace.core.model.errors import Retriable
from headrace.ports import Chunk, TopicPartition
from headrace_connectors.kafka.member import GroupMember
from headrace_connectors.kafka.predecessors import WorkerProcess
from headrace_connectors.kafka.settings import ConsumerSettings

NOT_AVAILABLE = 15


class Listener:
    """A listener that records failures; no partition is assigned."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []

    async def deliver(self, chunks: Sequence[Chunk]) -> None:
        """Ignore the chunks."""

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Ignore the revocation."""

    async def on_partitions_assigned(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Ignore the assignment."""

    async def on_topic_failure(self, topic: str, error: Exception) -> None:
        """Ignore the topic."""

    def on_failure(self, error: BaseException) -> None:
        """Record the failure."""
        self.failures.append(error)


REFUSED: dict[Any, Any] = {
    FindCoordinatorRequest_v0: lambda _: FindCoordinatorResponse_v0(NOT_AVAILABLE, -1, "", -1),
}


@asynccontextmanager
async def member(request_ms: int) -> AsyncIterator[tuple[GroupMember, Listener]]:
    """Start a member of a group whose coordinator is not available."""
    async with ScriptedKafka({"t": [NODE]}, REFUSED) as kafka:
        arguments: dict[str, Any] = {
            "bootstrap_servers": kafka.bootstrap_servers,
            "group_id": "g",
            "request_timeout_ms": request_ms,
            "max_poll_records": 10,
            "fetch_max_wait_ms": 500,
        }
        listener = Listener()
        settings = ConsumerSettings(arguments, "g", "t", "earliest", TopicSettings(("t",)))
        joining = GroupMember(settings, listener, WorkerProcess())
        await joining.start()
        try:
            yield joining, listener
        finally:
            await joining.stop()


def test_a_group_that_does_not_stabilize() -> None:
    """The member fails with Retriable if the group assigns nothing, so that its task does not stay RUNNING."""

    async def scenario() -> None:
        async with member(request_ms=500) as (_, listener):
            await eventually(lambda: bool(listener.failures))
        assert isinstance(listener.failures[0], Retriable)
        assert "the group has assigned nothing for 1.5 s" in str(listener.failures[0])

    asyncio.run(scenario())


def test_a_client_that_has_stopped_without_an_error() -> None:
    """The member fails with Retriable if the metadata task of its client has stopped."""

    async def scenario() -> None:
        async with member(request_ms=60_000) as (joining, listener):
            joining._consumer._client._sync_task.cancel()
            await eventually(lambda: bool(listener.failures))
        assert isinstance(listener.failures[0], Retriable)
        assert "the client has stopped following brokers" in str(listener.failures[0])

    asyncio.run(scenario())


def test_a_topic_is_created_again_while_another_one_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member watches its topics while the listener is called, which takes until the worker's loop answers."""
    reported: list[str] = []

    async def scenario() -> None:
        async with member(request_ms=60_000) as (joining, listener):

            async def on_topic_failure(topic: str, error: Exception) -> None:
                if not reported:
                    joining._failing["third"] = "another log"
                reported.append(topic)
                await asyncio.sleep(0)

            monkeypatch.setattr(listener, "on_topic_failure", on_topic_failure)
            joining._failing |= {"first": "another log", "second": "another log"}
            joining._assigned.set()
            await eventually(lambda: bool(listener.failures) or len(reported) == 3)
        assert not listener.failures

    asyncio.run(scenario())
    assert sorted(reported) == ["first", "second", "third"]
