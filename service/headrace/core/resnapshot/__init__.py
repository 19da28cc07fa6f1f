"""A new snapshot of one table: the signals for Debezium, and the state of its incremental snapshot."""
