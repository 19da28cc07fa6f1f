"""Headrace: a Kafka Connect-compatible sink that keeps lakehouse tables equal to their source tables."""

__version__ = "0.1.0"
