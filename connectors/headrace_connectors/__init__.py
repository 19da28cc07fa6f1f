"""The edges of Headrace: Kafka, source databases, the lakehouse. Found by entry point, not imported by the service."""
