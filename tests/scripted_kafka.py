"""A broker of one process that says what a test wants to hear, in Kafka's protocol, to aiokafka's real clients."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self

from aiokafka.protocol.admin import ApiVersionRequest_v0, ApiVersionResponse_v0
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v1, MetadataResponse_v1
from aiokafka.record.default_records import DefaultRecordBatchBuilder

NODE = 1
Answer = Callable[[Any], Response | None]


class ScriptedKafka:
    """Speaks one version of each request: that of the class which has an answer; None leaves the client waiting.

    ``topics`` are the leaders of their partitions; ``asked`` counts requests by the name of their class.
    """

    def __init__(self, topics: Mapping[str, list[int]], answers: Mapping[type[RequestStruct], Answer]) -> None:
        self.topics = dict(topics)
        self.asked: Counter[str] = Counter()
        self.connections = 0
        own: dict[type[RequestStruct], Answer] = {ApiVersionRequest_v0: self._versions, MetadataRequest_v1: self._knows}
        self._answers = {kind.API_KEY: (kind, answer) for kind, answer in {**own, **answers}.items()}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._address = self._server.sockets[0].getsockname()[:2]
        self.bootstrap_servers = "{}:{}".format(*self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                answer = self._answer(frame)
                writer.write(len(answer).to_bytes(4, "big") + answer if answer else b"")
        self.connections -= 1
        writer.close()

    def _answer(self, frame: bytes) -> bytes:
        key, number, tail = int.from_bytes(frame[:2], "big"), frame[4:8], frame[8:]
        name_bytes = int.from_bytes(tail[:2], "big")
        kind, answer = self._answers[key]
        self.asked[kind.__name__] += 1
        response = answer(kind.decode(tail[2 + name_bytes :]))
        return number + response.encode() if response is not None else b""

    def _versions(self, _: Any) -> Response:
        spoken = [(key, kind.API_VERSION, kind.API_VERSION) for key, (kind, _) in self._answers.items()]
        return ApiVersionResponse_v0(0, spoken)

    def _knows(self, request: Any) -> Response:
        wanted = self.topics if request.topics is None else request.topics
        topics = [
            (0, name, False, [(0, number, leader, [NODE], [NODE]) for number, leader in enumerate(self.topics[name])])
            if name in self.topics
            else (3, name, False, [])
            for name in wanted
        ]
        return MetadataResponse_v1([(NODE, *self._address, None)], NODE, topics)


def batch(base: int, *records: tuple[bytes, bytes]) -> bytes:
    """Keys and values from offset ``base`` on, as a log has them."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for number, (key, value) in enumerate(records):
        builder.append(number, 1_700_000_000_000, key, value, [])
    return base.to_bytes(8, "big") + bytes(builder.build())[8:]
