"""A broker that returns errors when a client creates topics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka.protocol.admin import CreateTopicsRequest_v1, CreateTopicsResponse_v1
from support.kafka.scripted_kafka import NODE, ScriptedKafka

from headrace_dev.server import LOOPBACK, free_ports

AWAY = NODE + 1
NOT_CONTROLLER, TOO_FEW = 41, 38
"""Error codes; the second says that there are more replicas than brokers."""


@asynccontextmanager
async def scripted_broker(controller: int = NODE, created: int = 0) -> AsyncIterator[str]:
    """The address of ``NODE``, which has no topics.

    It reports ``controller`` as the controller of the cluster (-1: none), and answers with the error code ``created``
    when a client creates a topic. No broker listens at the address of ``AWAY``.
    """
    answer = CreateTopicsResponse_v1([("new", created, None)])
    async with ScriptedKafka({}, {CreateTopicsRequest_v1: lambda _: answer}) as kafka:
        kafka.controller = controller
        if controller == AWAY:
            kafka.others.append((AWAY, LOOPBACK, free_ports(1)[0], None))
        yield kafka.bootstrap_servers
