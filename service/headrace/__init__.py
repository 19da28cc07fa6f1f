"""Headrace: a Kafka Connect-compatible sink that keeps lakehouse tables equal to their source tables."""

__version__ = "0.2.0.dev0"
