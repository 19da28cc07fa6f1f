"""Kafka Connect's own parts: configuration definitions, states of connectors and tasks, the assignment of work."""
