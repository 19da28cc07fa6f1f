"""The compacted logs in memory and on Kafka pass their contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from contracts.compacted_log_suite import CompactedLogSuite, Open
from support.kafka import connect_topics
from support.kafka.kafka_settings import settings_of
from support.kafka.scripted_broker import NOT_CONTROLLER, TOO_FEW, scripted_broker

from headrace.core.connect.lifecycle import TargetState
from headrace.core.model.errors import ConfigError, Retriable
from headrace.ports import TopicPartition
from headrace.runtime.worker.stores import ConfigStore
from headrace_connectors.kafka.log import KafkaLog, LogTopic
from headrace_connectors.kafka.stores import KafkaStores
from headrace_dev.kafka import Kafka
from headrace_dev.memory.stores import MemoryLog


class TestMemoryLog(CompactedLogSuite):
    """The memory log."""

    @pytest.fixture
    def open_log(self) -> Open:
        """Opens logs on one storage object."""
        log = MemoryLog()
        return lambda: log


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answers", "error"),
    [({"controller": -1}, Retriable), ({"created": NOT_CONTROLLER}, Retriable), ({"created": TOO_FEW}, ConfigError)],
)
async def test_a_cluster_that_elects_its_controller_is_waited_for(
    answers: dict[str, int], error: type[Exception]
) -> None:
    """A worker that creates topics waits for the election of a controller, and reports its errors at once."""
    async with scripted_broker(**answers) as address:
        log = KafkaLog(LogTopic("log", "status.storage.topic", 1, 1), {"bootstrap_servers": address})
        with pytest.raises(error):
            await log.start(lambda *_: None)


@pytest.mark.stack
class TestKafkaLog(CompactedLogSuite):
    """The log on a topic."""

    @pytest.fixture
    def open_log(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> Open:
        """A new topic per test."""
        topic = LogTopic(unique("log"), "status.storage.topic", partitions=3, replication=1)
        return lambda: KafkaLog(topic, {"bootstrap_servers": stack_kafka.bootstrap_servers})

    async def test_writes_continue_after_one_that_was_refused(
        self, stack_kafka: Kafka, unique: Callable[[str], str]
    ) -> None:
        """The log writes after a refused record.

        The idempotent producer of aiokafka fails every later record, because it counted the refused one.
        """
        topic = LogTopic(unique("log"), "status.storage.topic", 1, 1, {"max.message.bytes": "2000"})
        log, seen = KafkaLog(topic, {"bootstrap_servers": stack_kafka.bootstrap_servers}), dict[str, bytes | None]()
        await log.start(seen.__setitem__)
        await log.append([("before", b"1")])
        with pytest.raises(Retriable, match="MessageSizeTooLarge"):
            await log.append([("wide", b"x" * 4000)])
        await log.append([("after", b"1")])
        await log.close()
        assert seen == {"before": b"1", "after": b"1"}


@pytest.mark.stack
class TestKafkaStores:
    """Faults that only Kafka has."""

    pytestmark = pytest.mark.anyio

    async def test_a_group_without_offsets_has_none(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
        """An unknown group has no offsets; it is no error."""
        stores = KafkaStores(_properties(stack_kafka.bootstrap_servers, unique("stores")))
        assert (
            await stores.group_offsets("nobody", settings_of({})).committed("connect-nobody")
            == dict[TopicPartition, int]()
        )

    async def test_the_cluster_id_is_known(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
        """GET / returns the id of the cluster."""
        stores = KafkaStores(_properties(stack_kafka.bootstrap_servers, unique("stores")))
        await stores.start()
        assert await stores.cluster_id()

    async def test_topics_that_a_connect_cluster_left_behind_are_read(
        self, stack_kafka: Kafka, unique: Callable[[str], str]
    ) -> None:
        """The log reads topics that Kafka Connect wrote, tombstones and the session key included."""
        stem = unique("stores")
        left = KafkaStores(_properties(stack_kafka.bootstrap_servers, stem))
        await left.configs.start(lambda key, value: None)
        await left.configs.lead()
        await left.configs.append(connect_topics.records("configs"))
        await left.close()
        stores = KafkaStores(_properties(stack_kafka.bootstrap_servers, stem))
        configs = ConfigStore(stores.configs)
        await configs.start(lambda name: None)
        await stores.close()
        assert len(configs.state.connectors()) == 16
        assert configs.state.target_state("s1") is TargetState.STOPPED
        assert len(configs.state.task_configs("d1")) == 1

    async def test_too_many_replicas_are_refused_with_the_option_to_set(
        self, stack_kafka: Kafka, unique: Callable[[str], str]
    ) -> None:
        """One broker cannot store three replicas; the error names the option to set."""
        properties = _properties(stack_kafka.bootstrap_servers, unique("stores"))
        stores = KafkaStores({**properties, "config.storage.replication.factor": "3"})
        with pytest.raises(ConfigError, match=r"config\.storage\.replication\.factor=1"):
            await stores.configs.start(lambda key, value: None)

    async def test_a_config_topic_with_several_partitions_is_refused(
        self, stack_kafka: Kafka, unique: Callable[[str], str]
    ) -> None:
        """The error has Connect's words.

        Records of several partitions have no common order, so a connector could have no tasks.
        """
        properties = _properties(stack_kafka.bootstrap_servers, unique("stores"))
        made = LogTopic(properties["config.storage.topic"], "config.storage.topic", partitions=3, replication=1)
        await (log := KafkaLog(made, {"bootstrap_servers": stack_kafka.bootstrap_servers})).start(lambda *_: None)
        await log.close()
        stores = KafkaStores(properties)
        with pytest.raises(ConfigError, match=r"'config\.storage\.topic' property is required to have a single"):
            await stores.configs.start(lambda key, value: None)

    async def test_settings_of_a_topic_are_those_it_is_created_with(
        self, stack_kafka: Kafka, unique: Callable[[str], str]
    ) -> None:
        """The options ``config.storage.<setting>`` apply to a created topic, as in Connect."""
        properties = _properties(stack_kafka.bootstrap_servers, unique("stores"))
        stores = KafkaStores({**properties, "status.storage.min.compaction.lag.ms": "77"})
        await stores.statuses.start(lambda *_: None)
        await stores.statuses.close()
        topic = ConfigResource(ConfigResourceType.TOPIC, properties["status.storage.topic"])
        admin = AIOKafkaAdminClient(bootstrap_servers=stack_kafka.bootstrap_servers)
        await admin.start()
        [described] = await admin.describe_configs([topic])
        await admin.close()
        settings = {entry[0]: entry[1] for resource in described.resources for entry in resource[4]}
        assert (settings["min.compaction.lag.ms"], settings["cleanup.policy"]) == ("77", "compact")

    async def test_no_broker_is_a_passing_error(self) -> None:
        """A broker that does not answer is a retriable error: the worker waits for it."""
        stores = KafkaStores(_properties("127.0.0.1:1", "nowhere"))
        with pytest.raises(Retriable, match=r"127\.0\.0\.1:1"):
            await stores.start()


def _properties(bootstrap: str, stem: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": stem,
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "rebalance.timeout.ms": "60000",
        "config.storage.topic": f"{stem}-configs",
        "config.storage.replication.factor": "1",
        "status.storage.topic": f"{stem}-status",
        "status.storage.replication.factor": "1",
        "status.storage.partitions": "2",
    }
