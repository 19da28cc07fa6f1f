"""The edges of Headrace: Kafka, source databases, the lakehouse. Found by entry point, never imported by the service."""
