"""Kafka: the feeds of sink tasks, the dead letter queue, and the worker's stores."""

from headrace_connectors.kafka.connections import install as _install
from headrace_connectors.kafka.feeds import KafkaFeedFactory as KafkaFeedFactory
from headrace_connectors.kafka.unpacking import install as _bound_batches

_install()
_bound_batches()
