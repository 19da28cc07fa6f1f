"""The edges of Headrace: Kafka, the source databases and the lakehouse. Found by entry point, never imported by the service."""
