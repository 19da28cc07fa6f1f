"""The Kafka clients of a worker against a secured broker: what works, and the error with which it does not start."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import pytest
from support.fix_secured_kafka import SESSION_MS, SecuredBroker
from support.kafka.feed_harness import Recorder, until
from support.kafka.kafka_harness import QUICK, TidyFeeds, producer
from support.kafka.kafka_settings import settings_of

from headrace.config import WorkerConfig
from headrace.core.model.errors import HeadraceError
from headrace_connectors.kafka import KafkaFeedFactory
from headrace_connectors.kafka.log import KafkaLog, LogTopic
from headrace_connectors.kafka.settings import client_arguments
from headrace_connectors.kafka.stores import KafkaStores

Unique = Callable[[str], str]
ANSWER_SECONDS = 15.0
SESSIONS = 2


def worker_properties(client: Mapping[str, str], name: str) -> dict[str, str]:
    """The properties of a distributed worker, with its defaults."""
    given = {
        "group.id": name,
        "config.storage.topic": f"{name}-configs",
        "config.storage.replication.factor": "1",
        "status.storage.topic": f"{name}-status",
        "status.storage.replication.factor": "1",
        "status.storage.partitions": "1",
        "listeners": "http://127.0.0.1:0",
        "warehouse": "/nowhere",
    }
    return dict(WorkerConfig({**given, **client}, distributed=True).complete_properties())


async def check_all_clients(broker: SecuredBroker, client: Mapping[str, str], unique: Unique) -> None:
    """Use each kind of client of a worker: admin client, logs, consumer group, group offsets, dead letter queue."""
    topic = unique("secured")
    broker.kafka.create_topic(topic)
    with producer(broker.kafka) as out:
        out.produce(topic, b"value")
    properties = worker_properties(client, unique("worker"))
    stores = KafkaStores(properties)
    feeds = TidyFeeds(properties)
    await feeds.start()
    try:
        await stores.start()
        await stores.statuses.start(lambda *_: None)  # admin client, consumer, producer
        await stores.statuses.append([("key", b"value")])
        letters = {"errors.deadletterqueue.topic.name": f"{topic}-dlq", "errors.tolerance": "all"}
        letters["errors.deadletterqueue.topic.replication.factor"] = "1"
        settings = settings_of({**QUICK, **letters, "topics": topic})
        listener = Recorder()
        listener.feed = feeds.open(topic, 0, settings)
        await listener.feed.start(listener)
        await until(lambda: listener.values == [b"value"], "the record")
        await listener.feed.commit(listener.ends)
        assert set((await stores.group_offsets(topic, settings).committed(f"connect-{topic}")).values()) == {1}
        queue = await feeds.dead_letter_queue(topic, 0, settings)
        assert queue is not None
        await queue.close()
        assert f"{topic}-dlq" in broker.kafka.topics()
        assert not listener.errors
    finally:
        await stores.close()
        await feeds.close()


async def error_at_start(client: Mapping[str, str], unique: Unique) -> HeadraceError:
    """Return the error with which a worker does not start, within 15 s."""
    began = time.monotonic()
    properties = worker_properties(client, unique("refused"))

    async def start() -> None:
        KafkaFeedFactory(properties)
        await KafkaStores(properties).start()

    with pytest.raises(HeadraceError) as caught:
        await start()
    assert time.monotonic() - began < ANSWER_SECONDS
    return caught.value


async def flow_across_sessions(
    broker: SecuredBroker,
    client: Mapping[str, str],
    unique: Unique,
    caplog: pytest.LogCaptureFixture,
    seconds: float = SESSIONS * SESSION_MS / 1000,
) -> None:
    """Pass records through a feed and a log for a time, without any error."""
    caplog.set_level(logging.WARNING, "aiokafka")
    topic = unique("session")
    broker.kafka.create_topic(topic)
    feeds, log = TidyFeeds(client), KafkaLog(LogTopic(f"{topic}-log", "x.topic", 1, 1), client_arguments(client))
    read: list[str] = []
    await feeds.start()
    listener = Recorder()
    try:
        await log.start(lambda key, _: read.append(key))
        listener.feed = feeds.open(topic, 0, settings_of({**QUICK, "topics": topic}))
        await listener.feed.start(listener)
        await until(lambda: bool(listener.assignments), "the assignment")
        caplog.clear()
        end, sent = time.monotonic() + seconds, 0
        with producer(broker.kafka) as out:
            while time.monotonic() < end:
                out.produce(topic, str(sent).encode())
                out.flush()
                await log.append([(str(sent), b"")])
                sent += 1
                await until(lambda: len(listener.values) == sent, "the record")  # noqa: B023 - awaited here
                await listener.feed.commit(listener.ends)
        assert listener.values == [str(each).encode() for each in range(sent)]
        assert read == [str(each) for each in range(sent)]
        assert len(listener.assignments) == 1
        assert not listener.errors
        messages = {each.getMessage() for each in caplog.records}
        assert messages <= {"Sending username and password in the clear"}
    finally:
        await feeds.close()
        await log.close()
