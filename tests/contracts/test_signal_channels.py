"""The channels of signals pass their contract: in memory, a table in PostgreSQL, and a topic of Kafka."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from contracts.signal_channel_suite import SignalChannelSuite
from psycopg import sql

from headrace.core.model.errors import ConfigError, Fatal
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.core.resnapshot.signals import Signal, progress_mark
from headrace.ports import SignalChannel
from headrace_connectors.kafka.signals import KafkaSignalTopic
from headrace_connectors.sql import PostgresRowSource
from headrace_dev.kafka import Kafka
from headrace_dev.memory.row_source import MemoryRowSource
from headrace_dev.memory.signals import MemorySignals
from headrace_dev.postgres import Postgres

Foreign = Callable[[Signal], None]


def row_source(postgres: Postgres, database: str) -> PostgresRowSource:
    return PostgresRowSource(
        ReselectOptions(database=DatabaseOptions("127.0.0.1", postgres.port, "postgres", "", database))
    )


class TestMemory(SignalChannelSuite):
    """In memory."""

    @pytest.fixture
    def channel(self) -> SignalChannel:
        return MemoryRowSource().signal_table("public.signals")

    @pytest.fixture
    def foreign(self, channel: MemorySignals) -> Foreign:
        return channel.sent.append


@pytest.mark.stack
class TestPostgres(SignalChannelSuite):
    """A signal table, whose columns may have any names."""

    @pytest.fixture
    def database(self, stack_postgres: Postgres, unique: Callable[[str], str]) -> str:
        name = unique("signals")
        stack_postgres.create_database(name)
        with stack_postgres.connect(name) as connection:
            connection.execute('CREATE TABLE "Signals" ("Id" varchar(42) PRIMARY KEY, kind varchar(32), d text)')
        return name

    @pytest.fixture
    def channel(self, stack_postgres: Postgres, database: str) -> Iterator[SignalChannel]:
        source = row_source(stack_postgres, database)
        yield source.signal_table("public.Signals")
        source.close()

    @pytest.fixture
    def foreign(self, stack_postgres: Postgres, database: str) -> Foreign:
        def send(signal: Signal) -> None:
            insert = sql.SQL("INSERT INTO {} VALUES (%s, %s, NULL)").format(sql.Identifier("Signals"))
            with stack_postgres.connect(database) as connection:
                connection.execute(insert, (signal.id, signal.type))

        return send

    def test_a_missing_grant_is_named(self, stack_postgres: Postgres, database: str) -> None:
        """The message contains the statement to copy."""
        source = row_source(stack_postgres, database)
        with pytest.raises(Fatal, match=r'GRANT INSERT, SELECT ON "public"."missing"'):
            source.signal_table("public.missing").send(progress_mark("headrace-1-a", "public.items"))
        source.close()


@pytest.mark.stack
class TestKafka(SignalChannelSuite):
    """A signal topic."""

    @pytest.fixture
    def topic(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> str:
        name = unique("signals")
        stack_kafka.create_topic(name)
        return name

    @pytest.fixture
    def channel(self, stack_kafka: Kafka, topic: str) -> Iterator[SignalChannel]:
        with asyncio.Runner() as runner:
            yield KafkaSignalTopic(topic, "shop", {"bootstrap_servers": stack_kafka.bootstrap_servers}, runner.run)

    @pytest.fixture
    def foreign(self, stack_kafka: Kafka, topic: str) -> Foreign:
        def send(signal: Signal) -> None:
            producer = Producer({"bootstrap.servers": stack_kafka.bootstrap_servers})
            value = json.dumps({"id": signal.id, "type": signal.type}).encode()
            for key, document in ((b"shop", value), (b"shop", b"no JSON"), (None, b"[]"), (b"shop", b"[]")):
                producer.produce(topic, document, key)
            own = json.dumps({"id": "headrace-1-a", "type": "log", "data": {}}).encode()
            producer.produce(topic, own, b"another connector")
            producer.flush()

        return send

    def test_a_topic_is_not_created(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
        """It may be in another cluster than the connector's: the message says so."""
        arguments = {"bootstrap_servers": stack_kafka.bootstrap_servers}
        with asyncio.Runner() as runner:
            channel = KafkaSignalTopic(unique("none"), "shop", arguments, runner.run)
            with pytest.raises(ConfigError, match=r"signal\.kafka\.bootstrap\.servers"):
                channel.send(progress_mark("headrace-1-a", "public.items"))
