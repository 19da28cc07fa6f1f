"""A sink task: chunks of records in, batches to the writers of tables, offsets to the group."""
