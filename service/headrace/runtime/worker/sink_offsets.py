"""Read, alter and reset the offsets of a stopped sink by REST requests (KIP-875; ``connect.md`` section 5).

The checks have Kafka Connect's order and messages. Headrace adds one: the table of a history stores offsets, and events
below them are not appended again. A request that rewinds the group below them would have no effect and is rejected.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from headrace.config import SinkConnectorConfig
from headrace.config.kafka import KafkaSettings
from headrace.core.connect.lifecycle import TargetState
from headrace.core.connect.typed_options import parse_options
from headrace.core.model.errors import ConfigError, Fenced, HeadraceError, RestError
from headrace.ports import TopicPartition
from headrace.runtime.trace import summary
from headrace.runtime.worker.worker import Worker

log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int | None]
StoredOffsets = Callable[[SinkConnectorConfig, Collection[str]], Awaitable[Mapping[TopicPartition, int]]]
"""Returns the next offsets that the histories of a connector store, for some of its topics."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_PARTITIONS, _OFFSETS = 2**31, 2**63


@dataclass(frozen=True, slots=True)
class ConnectorOffset:
    """An entry of a request, with numbers as text."""

    partition: Mapping[str, object] | None
    offset: Mapping[str, object] | None


async def no_stored_offsets(config: SinkConnectorConfig, topics: Collection[str]) -> Mapping[TopicPartition, int]:
    """Return no offsets, for a worker without histories."""
    return {}


class SinkOffsets:
    """The offsets of one worker's connectors."""

    def __init__(self, worker: Worker, stored: StoredOffsets = no_stored_offsets) -> None:
        self._worker = worker
        self._stored = stored

    async def committed_offsets(self, name: str) -> Mapping[TopicPartition, int]:
        """Return the committed offsets of the connector's group. Raises RestError 404 and 500."""
        config = self._config(name)
        group = self._group(name, config)
        try:
            return await self._worker.stores.group_offsets(name, parse_options(KafkaSettings, config)).committed(group)
        except HeadraceError as error:
            log.error("Consumer group %s: its committed offsets cannot be read: %s", group, summary(error))
            raise RestError(f"Failed to retrieve consumer group offsets for sink connector {name}", 500) from error

    async def alter(self, name: str, entries: Sequence[ConnectorOffset]) -> Collection[TopicPartition]:
        """Set offsets and remove those that are null. Return their partitions. Raises RestError 400, 404 and 500."""
        if not entries:
            raise RestError("Partitions / offsets need to be provided for an alter offsets request", 400)
        config = self._stopped(name)
        offsets = parse_offsets(entries)
        if any(offset is not None and offset < 0 for offset in offsets.values()):
            raise RestError(f"Failed to modify offsets for sink connector {name}", 500)
        await self._check_histories(name, config, offsets)
        groups = self._worker.stores.group_offsets(name, parse_options(KafkaSettings, config))
        await _done(groups.alter(self._group(name, config), offsets), name, "alter")
        return offsets.keys()

    async def reset(self, name: str) -> None:
        """Remove all offsets of the connector's group, if any. Raises RestError 400, 404 and 500."""
        config = self._stopped(name)
        await self._check_histories(name, config, dict.fromkeys(await self.committed_offsets(name)))
        groups = self._worker.stores.group_offsets(name, parse_options(KafkaSettings, config))
        await _done(groups.reset(self._group(name, config)), name, "reset")

    def _config(self, name: str) -> dict[str, str]:
        config = self._worker.configs.state.connector_config(name)
        if config is None:
            raise RestError(f"Connector {name} not found", 404)
        try:
            return self._worker.providers.properties(config)
        except ConfigError as error:
            raise RestError(str(error), 500) from error

    def _stopped(self, name: str) -> dict[str, str]:
        config, state = self._config(name), self._worker.configs.state
        if state.target_state(name) is not TargetState.STOPPED or state.task_configs(name):
            raise RestError(
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for "
                f"the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint",
                400,
            )
        return config

    def _group(self, name: str, config: Mapping[str, str]) -> str:
        return self._consumer_property(config, "group.id") or f"connect-{name}"

    def _consumer_property(self, config: Mapping[str, str], key: str) -> str | None:
        return config.get(f"consumer.override.{key}") or self._worker.config.consumer.get(key)

    async def _check_histories(self, name: str, config: Mapping[str, str], offsets: Offsets) -> None:
        """Raises RestError 400 for an offset below the stored one. A removed offset is ``auto.offset.reset``."""
        latest = self._consumer_property(config, "auto.offset.reset") == "latest"
        begins = {partition: offset or 0 for partition, offset in offsets.items() if offset is not None or not latest}
        if not begins or not self._worker.connector_class.runs(config):
            return
        parsed = self._worker.connector_class.config(config)
        if not parsed.tables.history:
            return
        try:
            stored = await self._stored(parsed, {partition.topic for partition in begins})
        except RestError:
            raise
        except HeadraceError as error:
            log.error("Connector %s: the offsets in its tables cannot be read: %s", name, summary(error))
            raise RestError(f"Failed to modify offsets for sink connector {name}", 500) from error
        for partition, offset in begins.items():
            if offset < stored.get(partition, 0):
                raise RestError(
                    f"{partition.topic}-{partition.partition}: the connector's history already contains the events "
                    f"below offset {stored[partition]}, and each event is appended once; set offset "
                    f"{stored[partition]} or higher. To fill a history again, drop its table, or choose another table "
                    "with table.namespace or collection.name.format",
                    400,
                )


def parse_offsets(entries: Sequence[ConnectorOffset]) -> Offsets:
    """Return the offsets of a request by partition, the last of several for one. Raises RestError 400."""
    offsets: Offsets = {}
    for entry in entries:
        partition, offset = entry.partition, entry.offset
        if partition is None:
            raise RestError("The partition for a sink connector offset cannot be null or missing", 400)
        if not {"kafka_topic", "kafka_partition"} <= partition.keys():
            text = "The partition for a sink connector offset must contain the keys 'kafka_topic' and 'kafka_partition'"
            raise RestError(text, 400)
        topic, number = partition["kafka_topic"], partition["kafka_partition"]
        if topic is None:
            raise RestError("Kafka topic names must be valid strings and may not be null", 400)
        if number is None:
            raise RestError("Kafka partitions must be valid numbers and may not be null", 400)
        topic_partition = TopicPartition(_text(topic), _integer(number, "partition", _PARTITIONS))
        if offset is None:
            offsets[topic_partition] = None
        elif "kafka_offset" in offset:
            offsets[topic_partition] = _integer(offset["kafka_offset"], "offset", _OFFSETS)
        else:
            text = "The offset for a sink connector should either be null or contain the key 'kafka_offset'"
            raise RestError(text, 400)
    return offsets


def _integer(value: object, what: str, limit: int) -> int:
    text = _text(value)
    if not _INTEGER.fullmatch(text) or not -limit <= int(text) < limit:
        raise RestError(
            f"Failed to parse the following Kafka {what} value in the provided offsets: '{text}'. "
            f"{what.capitalize()} values for sink connectors need to be integers.",
            400,
        )
    return int(text)


def _text(value: object) -> str:
    """Return the value as Java writes it."""
    words: Mapping[object, str] = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


async def _done(change: Awaitable[None], name: str, verb: str) -> None:
    try:
        await change
    except Fenced as error:
        raise RestError(
            f"Failed to {verb} consumer group offsets for connector {name} either because its tasks haven't stopped "
            f"completely yet or the connector was resumed before the request to {verb} its offsets could be "
            "successfully completed. If the connector is in a stopped state, this operation can be safely retried. If "
            "it doesn't eventually succeed, the Connect cluster may need to be restarted to get rid of the zombie sink "
            "tasks.",
            500,
        ) from error
    except HeadraceError as error:
        log.error("Connector %s: failed to %s its offsets: %s", name, verb, summary(error))
        raise RestError(f"Failed to {verb} consumer group offsets for connector {name}", 500) from error
