"""Kafka: the feeds of sink tasks, the dead letter queue, and the worker's stores."""

from headrace_connectors.kafka.feeds import KafkaFeedFactory as KafkaFeedFactory
