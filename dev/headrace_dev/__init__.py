"""The development package: the real systems around Headrace, started for demo, tests and benchmark.

The wheel does not contain it. ``stack.Stack`` is the entry point: Kafka, PostgreSQL and Kafka Connect with Debezium on
free ports of 127.0.0.1, each in its own folder. They end with the process that started them.

Import a module, not this package: the image's build stage uses ``jars`` and installs none of the clients that the stack
needs.
"""
