"""A feed during faults of Kafka and of its consumer group."""

from __future__ import annotations

import asyncio
import random
import resource
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError
from support.kafka.feed_harness import Recorder, numbered, until
from support.kafka.kafka_harness import QUICK, KafkaHarness, opened, producer
from support.kafka.kafka_settings import settings_of

from headrace.core.model.errors import ConfigError, Fenced, HeadraceError, Retriable
from headrace.ports import Feed, TopicPartition
from headrace_connectors.kafka import KafkaFeedFactory, member
from headrace_dev.kafka import Kafka
from headrace_dev.server import LOOPBACK, free_ports

pytestmark = pytest.mark.stack


class SaslKafka(Kafka):
    """A separate broker with a second listener for users with a password."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        (self.sasl_port,) = free_ports(1)
        self._settings["listeners"] += f",SASL_PLAINTEXT://{LOOPBACK}:{self.sasl_port}"
        self._settings["advertised.listeners"] += f",SASL_PLAINTEXT://{LOOPBACK}:{self.sasl_port}"
        self._settings["listener.security.protocol.map"] += ",SASL_PLAINTEXT:SASL_PLAINTEXT"
        self._settings["sasl.enabled.mechanisms"] = "PLAIN"
        self._settings["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="admin" password="secret" user_admin="secret" user_reader="open sesame";'
        )

    def client(self) -> dict[str, str]:
        """A worker's properties for that listener."""
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        return {
            "bootstrap.servers": f"{LOOPBACK}:{self.sasl_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{login} username="reader" password="open sesame";',
        }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslKafka]:
    """A broker that tests may kill."""
    broker = SaslKafka(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()


def test_broker_killed_and_restarted(broker: SaslKafka, unique: Callable[[str], str]) -> None:
    """The feed resumes after a restart of the broker: no record is lost, and offsets can be committed again."""
    topic = unique("topic")

    async def scenario() -> None:
        async with KafkaHarness(broker, unique).cluster() as cluster:
            await cluster.create(topic)
            await cluster.append(topic, numbered(100))
            feed, seen = await opened(cluster, topic, 0, {"topics": topic})
            await until(lambda: len(seen.values) == 100, "records before the kill")
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            await cluster.append(topic, numbered(100, 100))
            await until(lambda: set(seen.values) >= set(numbered(200)), "records after the restart", 60)
            await feed.commit({TopicPartition(topic, 0): 200})
            assert await cluster.committed(f"connect-{topic}") == {TopicPartition(topic, 0): 200}
            await feed.stop()
        assert seen.errors == []

    asyncio.run(scenario())


def test_stop_while_the_broker_is_down(broker: SaslKafka, unique: Callable[[str], str]) -> None:
    """A feed stops although no broker answers."""
    topic = unique("topic")

    async def scenario() -> None:
        async with KafkaHarness(broker, unique).cluster() as cluster:
            await cluster.create(topic)
            feed, _ = await opened(cluster, topic, 0, {"topics": topic})
            await asyncio.to_thread(broker.kill)
            async with asyncio.timeout(20):
                await feed.stop()
            with pytest.raises(Retriable, match="check that the broker is up"):
                await cluster.feeds.open(topic, 0, settings_of({"topics": topic})).start(Recorder())
            await asyncio.to_thread(broker.start)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"bootstrap.servers": f"{LOOPBACK}:1"}, Retriable, "cannot be reached"),
        ({"bootstrap.servers": "localhost"}, ConfigError, "not host:port"),
        ({"security.protocol": "SASL_SSL"}, ConfigError, "TLS"),
        ({"sasl.mechanism": "SCRAM-SHA-512"}, ConfigError, "SASL SCRAM-SHA-512 is not enabled"),
        (
            {"sasl.jaas.config": 'x required username="reader" password="wrong";'},
            ConfigError,
            "invalid user or password",
        ),
        ({"security.protocol": "PLAINTEXT"}, Retriable, "the port probably requires a login"),
    ],
)
def test_the_cause_of_a_refused_connection(
    broker: SaslKafka, change: Mapping[str, str], error: type[HeadraceError], text: str
) -> None:
    """A start reports the cause within seconds, without the password."""

    async def scenario() -> None:
        feeds = KafkaFeedFactory({**broker.client(), **change})
        await feeds.start()
        async with asyncio.timeout(10):
            with pytest.raises(error, match=text) as caught:
                await feeds.open("sink", 0, settings_of({"topics": "topic"})).start(Recorder())
        assert "sesame" not in str(caught.value)
        assert "wrong" not in str(caught.value)
        await feeds.close()

    asyncio.run(scenario())


def test_the_right_password(broker: SaslKafka, unique: Callable[[str], str]) -> None:
    """With the right user and password the feed reads its records."""
    topic = unique("topic")

    async def scenario() -> None:
        async with KafkaHarness(broker, unique).cluster() as cluster:
            await cluster.create(topic)
            await cluster.append(topic, numbered(3))
        feeds = KafkaFeedFactory(broker.client())
        await feeds.start()
        seen = Recorder()
        feed = feeds.open("sink", 0, settings_of({"topics": topic}))
        await feed.start(seen)
        await until(lambda: seen.values == numbered(3), "the records")
        await feed.stop()
        await feeds.close()

    asyncio.run(scenario())


def test_an_assignment_that_cannot_be_taken(
    stack_kafka: Kafka, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task receives an error of its listener, which aiokafka only logs; otherwise it would wait forever."""
    topic = unique("topic")

    async def refused(*_: object) -> int:
        raise KafkaError("no access to the offsets of the topic")

    async def scenario() -> None:
        async with KafkaHarness(stack_kafka, unique).cluster() as cluster:
            await cluster.create(topic)
            monkeypatch.setattr(member, "committed_offsets", refused)
            listener = Recorder()
            listener.feed = cluster.feeds.open(topic, 0, settings_of({**QUICK, "topics": topic}))
            await listener.feed.start(listener)
            await until(lambda: bool(listener.errors), "the error")
            await listener.feed.stop()
        assert isinstance(listener.errors[0], Retriable)
        assert "taking an assignment" in str(listener.errors[0])
        assert listener.assignments == []

    asyncio.run(scenario())


@pytest.mark.parametrize("fetched", ["1000000", "1"], ids=["at once", "batch by batch"])
def test_transactions(stack_kafka: Kafka, unique: Callable[[str], str], fetched: str) -> None:
    """Aborted records are not delivered, committed offsets are behind markers and gaps, and no loss is reported."""
    topic = unique("topic")

    async def scenario() -> None:
        async with KafkaHarness(stack_kafka, unique).cluster() as cluster:
            await cluster.create(topic)
            await asyncio.to_thread(write_transactions, stack_kafka, topic)
            config = {"topics": topic, "consumer.override.max.partition.fetch.bytes": fetched}
            feed, seen = await opened(cluster, topic, 0, config)
            await until(lambda: len(seen.values) == 15, "the committed records")
            assert seen.ends == {TopicPartition(topic, 0): 23}
            await feed.stop()
        # 5 records and a marker, 5 aborted ones and a marker, 5 and a marker, then 5 without a transaction.
        assert seen.values == numbered(5) + numbered(10, 10)
        assert not any(seen.gone)

    asyncio.run(scenario())


def write_transactions(kafka: Kafka, topic: str) -> None:
    """Commit, abort, commit, then plain records."""
    with producer(kafka, **{"transactional.id": topic}) as out:
        out.init_transactions(30)
        for start, end in ((0, out.commit_transaction), (5, out.abort_transaction), (10, out.commit_transaction)):
            out.begin_transaction()
            for value in numbered(5, start):
                out.produce(topic, value)
            out.flush(30)  # an abort drops records that are not sent yet
            end(30)
    with producer(kafka) as out:
        for value in numbered(5, 15):
            out.produce(topic, value)


def test_latest_skips_nothing_on_restart(stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
    """The first assignment commits its start, so that a restart before the first commit reads from there."""
    topic = unique("topic")
    config = {"topics": topic, "consumer.override.auto.offset.reset": "latest"}

    async def scenario() -> None:
        async with KafkaHarness(stack_kafka, unique).cluster() as cluster:
            await cluster.create(topic)
            await cluster.append(topic, numbered(5))
            feed, seen = await opened(cluster, topic, 0, config)
            await feed.stop()
            await cluster.append(topic, numbered(5, 5))
            feed, seen = await opened(cluster, topic, 0, config)
            await until(lambda: len(seen.values) == 5, "what came in between")
            await feed.stop()
        assert seen.values == numbered(5, 5)

    asyncio.run(scenario())


def test_a_batch_that_outlasts_the_revoke_timeout(stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
    """A batch that exceeds the revoke timeout is cancelled, its late commit fenced, its records read again."""
    topic = unique("topic")

    async def scenario() -> None:
        async with KafkaHarness(stack_kafka, unique).cluster() as cluster:
            names = [f"{topic}.{number}" for number in range(2)]
            for name in names:
                await cluster.create(name)
            slow = Recorder()
            feed = cluster.feeds.open(topic, 0, settings_of({**QUICK, "topics": ",".join(names)}))
            feed._revoke_seconds = 1.0
            await feed.start(slow)
            await until(lambda: slow.topics == set(names), "both topics")
            slow.open.clear()
            for name in names:
                await cluster.append(name, numbered(10))
            await until(lambda: slow.running == 1, "a put in hand")
            other, quick = await opened(cluster, topic, 1, {"topics": ",".join(names)})
            await until(lambda: len(quick.values) == 10, "the records of the topic that moved")
            (moved,) = quick.topics
            with pytest.raises(Fenced):
                await feed.commit({TopicPartition(moved, 0): 10})
            slow.open.set()
            await until(lambda: len(slow.values) == 10, "the records of the other")
            await feed.stop()
            await other.stop()
        assert slow.errors == []
        assert slow.values == quick.values == numbered(10)

    asyncio.run(scenario())


def test_nothing_is_lost_in_a_restless_group(stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
    """Members join and leave under load; each commits only finished puts, and every record is put."""
    topic, random_order = unique("topic"), random.Random(7)

    async def scenario() -> None:
        async with KafkaHarness(stack_kafka, unique).cluster() as cluster:
            names = [f"{topic}.{number}" for number in range(4)]
            for name in names:
                await cluster.create(name, partitions=2)
            recorders: list[Recorder] = []
            members: dict[int, Feed] = {}

            async def join(task: int) -> None:
                members[task], recorder = await opened(cluster, topic, task, {"topics": ",".join(names)})
                recorder.commits_on_revoke = True
                recorders.append(recorder)

            async def leave(task: int) -> None:
                await members.pop(task).stop()

            await join(0)
            written = 0
            for step in range(8):
                task = 1 + random_order.randrange(2)
                for name in names:
                    await cluster.append(name, numbered(300, written), random_order.randrange(2))
                    written += 300
                await (leave(task) if task in members else join(task))
                if step % 3 == 2:
                    await leave(0)
                    await join(0)
            await until(lambda: len({*values(recorders)}) == written, f"all of {written} records", 60)
            for member in members.values():
                await member.stop()
        assert [error for recorder in recorders for error in recorder.errors] == []

    asyncio.run(scenario())


def values(recorders: list[Recorder]) -> list[bytes]:
    """The values that all recorders received."""
    return [value for recorder in recorders for value in recorder.values]


def test_memory_is_flat_while_paused(stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
    """60 MB that arrive during a pause stay at the broker."""
    topic = unique("topic")

    async def scenario() -> None:
        async with KafkaHarness(stack_kafka, unique).cluster() as cluster:
            await cluster.create(topic)
            feed, seen = await opened(cluster, topic, 0, {"topics": topic})
            feed.pause()
            await asyncio.sleep(0.5)
            await asyncio.to_thread(fill, stack_kafka, topic, 3_000)  # exclude the producer's own memory
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await asyncio.to_thread(fill, stack_kafka, topic, 3_000)
            await until(lambda: sum(feed.lag().values()) == 6_000, "the lag")
            await asyncio.sleep(1)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            assert seen.values == []
            assert grown < 20_000, f"{grown} kB more"
            feed.resume()
            await until(lambda: len(seen.values) == 6_000, "everything after the pause")
            await feed.stop()

    asyncio.run(scenario())


def fill(kafka: Kafka, topic: str, count: int) -> None:
    """Write records of 10 kB that cannot be compressed."""
    source = random.Random(1)
    with producer(kafka) as out:
        for _ in range(count):
            out.produce(topic, source.randbytes(10_000))
            if len(out) > 200:
                out.flush(10)
