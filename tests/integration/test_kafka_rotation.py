"""The certificate of a client is replaced while its data flow, against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fix_secured_kafka import SecuredBroker
from support.kafka.feed_harness import Recorder, until
from support.kafka.kafka_harness import QUICK, TidyFeeds, producer
from support.kafka.kafka_settings import settings_of
from support.kafka.secured_clients import error_at_start
from support.servers.certificates import Authority

from headrace.core.model.errors import ConfigError, Retriable
from headrace_connectors.kafka.log import KafkaLog, LogTopic
from headrace_connectors.kafka.settings import client_arguments

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("tls_closes")]

RESTART_SECONDS = 60.0


async def test_a_certificate_is_renewed_without_a_restart(
    secured_kafka: SecuredBroker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """The same clients connect with the new certificate, when the broker no longer accepts the old one."""
    topic, keys, trusted = unique("rotation"), tmp_path / "client.pem", secured_kafka.folder / "rotated.pem"
    old, new = secured_kafka.clients, Authority("new clients")
    keys.write_bytes(old.issue("worker").pem())
    client = {**secured_kafka.properties("ROTATED"), "ssl.keystore.location": str(keys)}
    secured_kafka.kafka.create_topic(topic)
    feeds, log = TidyFeeds(client), KafkaLog(LogTopic(f"{topic}-log", "x.topic", 1, 1), client_arguments(client))
    listener, read, sent = Recorder(), list[str](), list[bytes]()

    async def flows() -> None:
        """Pass a record through the feed and one through the log."""
        sent.append(str(len(sent)).encode())
        with producer(secured_kafka.kafka) as out:
            out.produce(topic, sent[-1])
        await until(lambda: listener.values == sent, "the record", RESTART_SECONDS)
        await listener.feed.commit(listener.ends)
        await until(lambda: _written(log, sent[-1].decode()), "the write", RESTART_SECONDS)

    await feeds.start()
    try:
        await log.start(lambda key, _: read.append(key))
        listener.feed = feeds.open(topic, 0, settings_of({**QUICK, "topics": topic}))
        await listener.feed.start(listener)
        await until(lambda: bool(listener.assignments), "the assignment")
        await flows()
        keys.with_suffix(".new").write_bytes(new.issue("worker").pem())
        keys.with_suffix(".new").replace(keys)
        await flows()  # on the connections that are open
        trusted.write_bytes(new.pem())
        await asyncio.to_thread(secured_kafka.kafka.stop)
        await asyncio.to_thread(secured_kafka.kafka.start)
        await flows()
        assert set(read) == {each.decode() for each in sent}
        assert not listener.errors
        refused = await error_at_start({**client, **secured_kafka.store(old.issue("worker"), "PEM")}, unique)
        assert isinstance(refused, ConfigError)
        assert "rejects the client certificate CN=worker: its issuer is CN=clients" in str(refused)
    finally:
        await feeds.close()
        await log.close()


async def _written(log: KafkaLog, key: str) -> bool:
    """Write to a log; return False if its brokers are away."""
    try:
        await log.append([(key, b"")])
    except Retriable:
        return False
    return True
