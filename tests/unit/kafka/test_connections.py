"""aiokafka's clients move to a new connection before their session ends, against scripted answers of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import (
    SaslAuthenticateRequest_v1,
    SaslAuthenticateResponse_v1,
    SaslHandShakeRequest_v1,
    SaslHandShakeResponse_v1,
)
from support.fix_asyncio import eventually
from support.kafka.scripted_kafka import NODE, ScriptedKafka

import headrace_connectors.kafka  # noqa: F401 - makes aiokafka use these connections

pytestmark = pytest.mark.anyio

SESSION_MS = 1000
REJECTED = 58
LOGINS = SaslAuthenticateRequest_v1.__name__


class Sessions(ScriptedKafka):
    """A broker with PLAIN and short sessions. ``accepts`` is whether it accepts further logins."""

    accepts = True

    def __init__(self) -> None:
        answers = {
            SaslHandShakeRequest_v1: lambda _: SaslHandShakeResponse_v1(0, ["PLAIN"]),
            SaslAuthenticateRequest_v1: lambda _: SaslAuthenticateResponse_v1(
                0 if self.accepts else REJECTED, None, b"", SESSION_MS
            ),
        }
        super().__init__({"t": [NODE]}, answers)


@asynccontextmanager
async def client(broker: Sessions) -> AsyncIterator[AIOKafkaClient]:
    """A client with one connection to the broker."""
    made = AIOKafkaClient(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="user",
        sasl_plain_password="password",
    )
    try:
        await made.bootstrap()
        await made.fetch_all_metadata()
        await eventually(lambda: broker.connections == 1)
        yield made
    finally:
        await made.close()


async def asks_until_it_is_due(made: AIOKafkaClient) -> None:
    """Send requests until the session of the client's connection is to be renewed."""
    [connection] = made._conns.values()
    async with asyncio.timeout(60):
        while not connection.is_due:  # noqa: ASYNC110 - the clock has no event
            await asyncio.sleep(0.01)


async def test_a_request_moves_to_a_new_connection_before_the_session_ends() -> None:
    """The new connection has logged in, and the old one is closed."""
    async with Sessions() as broker, client(broker) as made:
        [old] = made._conns.values()
        logins = broker.asked[LOGINS]
        await made.fetch_all_metadata()
        assert broker.asked[LOGINS] == logins
        await asks_until_it_is_due(made)
        await made.fetch_all_metadata()
        assert broker.asked[LOGINS] == logins + 1
        assert made._conns[(NODE, 0)] is not old
        await eventually(lambda: broker.connections == 1)
        assert not old.connected()


async def test_an_answer_that_is_awaited_arrives_on_the_old_connection() -> None:
    """A connection that is replaced is closed only after its last answer."""
    async with Sessions() as broker, client(broker) as made:
        [old] = made._conns.values()
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        old._requests.append((None, None, answer))  # a request that the broker has not answered
        old.retire()
        assert old.connected()
        answer.set_result(b"")
        await eventually(lambda: not old.connected())


async def test_a_connection_stays_in_use_if_no_new_one_can_be_opened() -> None:
    """Its session has not ended; the next attempt follows after a second."""
    async with Sessions() as broker, client(broker) as made:
        [old] = made._conns.values()
        await asks_until_it_is_due(made)
        broker.accepts = False
        await made.fetch_all_metadata()
        assert list(made._conns.values()) == [old]
        logins = broker.asked[LOGINS]
        await made.fetch_all_metadata()
        assert broker.asked[LOGINS] == logins
