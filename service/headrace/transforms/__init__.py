"""Single message transforms and predicates, by Kafka Connect's and Debezium's names (``connect.md`` section 14).

Pure: a transform takes a record and gives a record, or None for one that it drops. ``registry`` lists the classes.
"""
