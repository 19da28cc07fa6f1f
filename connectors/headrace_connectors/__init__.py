"""The edges of Headrace: Kafka, source databases, the lakehouse. ``headrace_app/composition.py`` constructs them."""
