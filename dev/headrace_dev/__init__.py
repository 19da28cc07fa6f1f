"""The development package: the real systems around Headrace, started for demo, tests and benchmark.

It is no part of the wheel. ``Stack`` is the way in: Kafka, PostgreSQL and Kafka Connect with Debezium on free ports of
127.0.0.1, each in a folder of its own, gone when the process that started them is gone.
"""

from headrace_dev.stack import Stack

__all__ = ["Stack"]
