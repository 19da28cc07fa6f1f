"""A worker's group membership whose aiokafka client has stopped, with or without an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.protocol.coordination import FindCoordinatorRequest_v0, FindCoordinatorResponse_v0
from support.fix_asyncio import eventually
from support.kafka.scripted_kafka import NODE, ScriptedKafka

from headrace_connectors.kafka import worker_member as module
from headrace_connectors.kafka.worker_member import KafkaWorkerMember

NOT_AVAILABLE = 15
REFUSED: dict[Any, Any] = {
    FindCoordinatorRequest_v0: lambda _: FindCoordinatorResponse_v0(NOT_AVAILABLE, -1, "", -1),
}


@pytest.fixture(autouse=True)
def retry_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits for polls and retries to 10 ms."""
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.01)


@asynccontextmanager
async def member(session_ms: int) -> AsyncIterator[KafkaWorkerMember]:
    """Start a member of a group whose coordinator is not available."""
    timeouts = {"session_timeout_ms": session_ms, "heartbeat_interval_ms": 10, "rebalance_timeout_ms": 1_000}
    async with ScriptedKafka({"configs": [NODE]}, REFUSED) as kafka:
        joining = KafkaWorkerMember("w", "g", "configs", {"bootstrap_servers": kafka.bootstrap_servers}, timeouts)
        await joining.start(lambda assignment: None)
        try:
            yield joining
        finally:
            await joining.stop()


def has_new_client(joining: KafkaWorkerMember, first: Any) -> bool:
    """Return whether the member has started a second client."""
    consumer = joining._consumer
    return consumer not in (first, None) and consumer._coordinator is not None


def test_an_error_that_is_no_kafka_error() -> None:
    """The worker joins the group with a new client after an exception that is no KafkaError."""

    async def scenario() -> None:
        async with member(session_ms=60_000) as joining:
            first = joining._consumer
            assert first is not None
            first._coordinator._pending_exception = UnicodeError("a broker's name that cannot be looked up")
            await eventually(lambda: has_new_client(joining, first))

    asyncio.run(scenario())


def test_a_coordinator_that_is_not_found_within_the_session() -> None:
    """The worker starts a new client at the bootstrap servers, because the old one has only outdated addresses."""

    async def scenario() -> None:
        async with member(session_ms=100) as joining:
            first = joining._consumer
            await eventually(lambda: has_new_client(joining, first))

    asyncio.run(scenario())
