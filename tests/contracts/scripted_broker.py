"""A broker that answers what a test wants, in as much of Kafka's protocol as it takes to create a topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from io import BytesIO

from aiokafka.protocol.admin import ApiVersionResponse_v0, CreateTopicsResponse_v1
from aiokafka.protocol.api import RequestHeader_v1, Response
from aiokafka.protocol.metadata import MetadataResponse_v1

from headrace_dev.server import LOOPBACK, free_ports

NODE, AWAY = 1, 2
NOT_CONTROLLER, TOO_FEW = 41, 38
"""Error codes; the second says that there are more replicas than brokers."""


@asynccontextmanager
async def scripted_broker(controller: int = NODE, created: int = 0) -> AsyncIterator[str]:
    """The address of ``NODE``, which has no topics.

    It names ``controller`` as the cluster's (-1 is none), and answers with the error code ``created`` to a new topic.
    Nobody answers at the address of ``AWAY``.
    """
    answers: dict[int, Response] = {CreateTopicsResponse_v1.API_KEY: CreateTopicsResponse_v1([("new", created, None)])}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await _converse(reader, writer, answers)
        writer.close()

    server = await asyncio.start_server(connected, LOOPBACK, 0)
    port = server.sockets[0].getsockname()[1]
    nodes = [(NODE, LOOPBACK, port, None), (AWAY, LOOPBACK, free_ports(1)[0], None)]
    answers[MetadataResponse_v1.API_KEY] = MetadataResponse_v1(
        nodes if controller == AWAY else nodes[:1], controller, []
    )
    answers[ApiVersionResponse_v0.API_KEY] = ApiVersionResponse_v0(
        0, [(each.API_KEY, each.API_VERSION, each.API_VERSION) for each in answers.values()]
    )
    async with server:
        yield f"{LOOPBACK}:{port}"


async def _converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: Mapping[int, Response]
) -> None:
    while True:
        size = int.from_bytes(await reader.readexactly(4))
        api, _, correlation, _ = RequestHeader_v1.SCHEMA.decode(BytesIO(await reader.readexactly(size)))
        body = correlation.to_bytes(4) + answers[api].encode()
        writer.write(len(body).to_bytes(4) + body)
        await writer.drain()
