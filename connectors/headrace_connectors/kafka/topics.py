"""Requests about topics: their compaction, and their creation.

The rows of compacted topics are not cached, because events are missing (``reselect.md`` section 3.4): compaction may
remove a delete, or the update that changed a value, before it is read. A cached value would then stay stale. The policy
of a topic is read once and refreshed periodically. A topic with an unknown policy is treated as compacted: the database
is queried instead of the cache, which is slower but correct.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, NotControllerError, RequestTimedOutError, TopicAlreadyExistsError, for_code

from headrace.runtime.threads import LoopThread
from headrace_connectors.kafka.settings import connection_arguments

log = logging.getLogger(__name__)

POLICY = "cleanup.policy"
RETENTION = "retention.ms"
REFRESH_SECONDS = 600.0
RETRY_SECONDS = 60.0
REQUEST_SECONDS = 10.0


class CompactedTopics:
    """Checks whether Kafka compacts a topic. It may block, and is called on any thread except the consumer thread."""

    def __init__(
        self, arguments: Mapping[str, Any], loop: LoopThread, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``arguments`` are those of a consumer."""
        self._arguments = {**connection_arguments(arguments), "request_timeout_ms": int(REQUEST_SECONDS * 1000)}
        self._loop = loop
        self._clock = clock
        self._policies: dict[str, tuple[bool, float]] = {}
        """Whether a topic is compacted, and when (monotonic seconds) its policy must be read again."""
        self._lock = threading.Lock()

    def __call__(self, topic: str) -> bool:
        """Return whether ``cleanup.policy`` of ``topic`` contains ``compact`` or cannot be read."""
        with self._lock:
            compacted, until = self._policies.get(topic, (True, -inf))
            if self._clock() < until:
                return compacted
            try:
                policy = self._loop.result(self._read_policy(topic), 2 * REQUEST_SECONDS)
            except (KafkaError, OSError, TimeoutError) as error:
                log.warning(
                    "Topic %s: the column cache is not used: its %s cannot be read (%s); grant the client's user "
                    "DescribeConfigs on the topic",
                    topic,
                    POLICY,
                    type(error).__name__,
                )
                compacted, seconds = True, RETRY_SECONDS
            else:
                compacted, seconds = "compact" in policy, REFRESH_SECONDS
                if compacted:
                    log.info("Topic %s: the column cache is not used: its %s is %s", topic, POLICY, policy)
            self._policies[topic] = compacted, self._clock() + seconds
        return compacted

    async def _read_policy(self, topic: str) -> str:
        async with admin_client(self._arguments) as admin:
            return (await topic_configs(admin, [topic], POLICY))[topic].get(POLICY, "")


async def topic_configs(
    admin: AIOKafkaAdminClient, topics: Sequence[str], *names: str
) -> Mapping[str, Mapping[str, str]]:
    """Return the configurations ``names`` of each topic. Raises KafkaError."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(names)) for topic in topics]
    configs = {}
    for answer in await admin.describe_configs(resources):
        for code, message, _, topic, entries in answer.resources:
            if code:
                raise for_code(code)(message)
            configs[topic] = {entry[0]: str(entry[1]) for entry in entries if entry[0] in names}
    return configs


@asynccontextmanager
async def admin_client(arguments: Mapping[str, Any]) -> AsyncIterator[AIOKafkaAdminClient]:
    """Yield a client for admin requests, and close it. Raises KafkaError and OSError."""
    admin = AIOKafkaAdminClient(**arguments)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def create_topic(admin: AIOKafkaAdminClient, topic: NewTopic) -> None:
    """Create ``topic`` unless it exists. Raises KafkaError."""
    try:
        answer = await admin.create_topics([topic])
    except AttributeError as error:  # aiokafka sends the request to the controller, which is None if there is none
        raise NotControllerError("the cluster has no controller at the moment") from error
    except TimeoutError as error:
        raise RequestTimedOutError("the cluster's controller does not answer") from error
    for _, code, *message in answer.topic_errors:  # aiokafka does not raise them
        topic_error = for_code(code)
        if code != 0 and topic_error is not TopicAlreadyExistsError:
            raise topic_error(*filter(None, message))
