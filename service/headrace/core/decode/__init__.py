"""Records to changes: Debezium's envelopes, flattened records, tombstones, schema changes."""
