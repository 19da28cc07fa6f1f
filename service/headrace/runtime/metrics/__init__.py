"""Metrics, under Kafka Connect's names and for each table."""
