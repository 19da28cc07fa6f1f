"""Converters: documents of every form as Kafka Connect's data, one by one and in blocks."""
