"""Which topics Kafka compacts: these omit events, so their rows are not cached (``reselect.md`` section 3.4).

Compaction may remove a delete, or the update that changed a value, before we read it; a cached value would then be
served for ever. The brokers are asked once per topic, and again now and then. A topic whose policy is not known counts
as compacted: the database is asked instead of the cache, which is slower but never wrong.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from headrace_connectors.kafka.consumer_loop import ConsumerLoop
from headrace_connectors.kafka.settings import connection_arguments

log = logging.getLogger(__name__)

POLICY = "cleanup.policy"
REFRESH_SECONDS = 600.0
RETRY_SECONDS = 60.0
REQUEST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Known:
    """What was learnt of a topic, and when (monotonic seconds) it must be asked for again."""

    compacted: bool
    until: float


class CompactedTopics:
    """Tells of a topic whether Kafka compacts it. Called from any thread but the consumer thread; blocks to ask."""

    def __init__(
        self, arguments: Mapping[str, Any], loop: ConsumerLoop, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``arguments`` are a consumer's."""
        self._arguments = {**connection_arguments(arguments), "request_timeout_ms": int(REQUEST_SECONDS * 1000)}
        self._loop = loop
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def __call__(self, topic: str) -> bool:
        """Whether ``cleanup.policy`` of ``topic`` contains ``compact``, or cannot be had."""
        with self._lock:
            known = self._known.get(topic)
            if known is None or self._clock() >= known.until:
                known = self._known[topic] = self._look_up(topic)
        return known.compacted

    def _look_up(self, topic: str) -> _Known:
        try:
            policy = self._loop.result(self._ask(topic), 2 * REQUEST_SECONDS)
        except (KafkaError, OSError, TimeoutError) as error:
            log.warning(
                "reselect's cache stays off for topic %s, as its %s cannot be read (%s); grant the client's user "
                "DescribeConfigs on the topic",
                topic,
                POLICY,
                type(error).__name__,
            )
            return _Known(True, self._clock() + RETRY_SECONDS)
        compacted = "compact" in policy
        if compacted:
            log.info("reselect's cache stays off for topic %s: its %s is %s", topic, POLICY, policy)
        return _Known(compacted, self._clock() + REFRESH_SECONDS)

    async def _ask(self, topic: str) -> str:
        admin = AIOKafkaAdminClient(**self._arguments)
        try:
            await admin.start()
            [answer] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {POLICY: None})])
        finally:
            await admin.close()
        [(code, message, _, _, entries)] = answer.resources
        if code:
            raise for_code(code)(message)
        return next((str(entry[1]) for entry in entries if entry[0] == POLICY), "")
