"""A broker in this process that answers aiokafka's clients as a test specifies, in Kafka's protocol."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any, Self

from aiokafka.protocol.admin import ApiVersionRequest_v0, ApiVersionResponse_v0
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.coordination import FindCoordinatorRequest_v0, FindCoordinatorResponse_v0
from aiokafka.protocol.fetch import FetchResponse_v4
from aiokafka.protocol.metadata import MetadataRequest_v1, MetadataResponse_v1
from aiokafka.record.default_records import DefaultRecordBatchBuilder

NODE = 1
_EMPTY_SECONDS = 0.02
_CLIENT_SECONDS = 2
Answer = Callable[[Any], Response]


class ScriptedKafka:
    """A broker that supports one version of each request: that of the class which has an answer.

    ``topics`` are the leaders of their partitions, ``others`` are metadata of brokers that do not exist, and
    ``controller`` is the cluster's (-1 is none). It is every group's coordinator, unless an answer names another.
    ``asked`` counts requests by the name of their class. It answers an empty fetch after ``empty_seconds``, so that a
    client does not fetch continuously, and the requests of a connection in order.
    """

    def __init__(
        self,
        topics: Mapping[str, list[int]],
        answers: Mapping[type[RequestStruct], Answer],
        empty_seconds: float = _EMPTY_SECONDS,
    ) -> None:
        self.topics = dict(topics)
        self.others = list[tuple[int, str, int, None]]()
        self.controller = NODE
        self._empty_seconds = empty_seconds
        self.asked: Counter[str] = Counter()
        self._served = set[asyncio.Task[None]]()
        own: dict[type[RequestStruct], Answer] = {
            ApiVersionRequest_v0: self._versions,
            MetadataRequest_v1: self._knows,
            FindCoordinatorRequest_v0: self._coordinates,
        }
        self._answers = {kind.API_KEY: (kind, answer) for kind, answer in {**own, **answers}.items()}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._address = self._server.sockets[0].getsockname()[:2]
        self.bootstrap_servers = "{}:{}".format(*self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._served:
            await asyncio.wait(self._served, timeout=_CLIENT_SECONDS)  # the clients of a failed test continue
        self.vanish()
        await asyncio.gather(*self._served, return_exceptions=True)
        await asyncio.sleep(0)  # their sockets close in the next step

    def vanish(self) -> None:
        """Stop permanently, and close all connections."""
        self._server.close()
        for task in self._served:
            task.cancel()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._served)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._served.add(task)
        task.add_done_callback(self._served.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                response = self._response(frame)
                if isinstance(response, FetchResponse_v4) and _empty(response):
                    await asyncio.sleep(self._empty_seconds)
                tags = b"\0" if self._kind(frame).FLEXIBLE_VERSION else b""
                answer = frame[4:8] + tags + response.encode()
                writer.write(len(answer).to_bytes(4, "big") + answer)
        with suppress(ConnectionError):
            await writer.wait_closed()

    def _response(self, frame: bytes) -> Response:
        kind, answer = self._answers[int.from_bytes(frame[:2], "big")]
        self.asked[kind.__name__] += 1
        client_bytes = int.from_bytes(frame[8:10], "big") + (1 if kind.FLEXIBLE_VERSION else 0)  # no tags
        return answer(kind.decode(frame[10 + client_bytes :]))

    def _kind(self, frame: bytes) -> type[RequestStruct]:
        return self._answers[int.from_bytes(frame[:2], "big")][0]

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
        return MetadataResponse_v1([(NODE, *self._address, None), *self.others], self.controller, topics)

    def _coordinates(self, _: Any) -> Response:
        return FindCoordinatorResponse_v0(0, NODE, *self._address)


def _empty(response: FetchResponse_v4) -> bool:
    return not any(partition[-1] for _, partitions in response.topics for partition in partitions)


def batch(base: int, *records: tuple[bytes, bytes]) -> bytes:
    """Return a record batch of keys and values from offset ``base`` on, in the format of a log."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for number, (key, value) in enumerate(records):
        builder.append(number, 1_700_000_000_000, key, value, [])
    return base.to_bytes(8, "big") + bytes(builder.build())[8:]
