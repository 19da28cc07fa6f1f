"""Kafka: the feeds of sink tasks, the dead letter queue, and the worker's stores."""

from headrace_connectors.kafka.connections import install as _install
from headrace_connectors.kafka.feed import KafkaFeedFactory as KafkaFeedFactory
from headrace_connectors.kafka.records import limit_polls, limit_unpacking

_install()
limit_unpacking()
limit_polls()
