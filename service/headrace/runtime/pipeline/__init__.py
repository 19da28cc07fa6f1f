"""A table's batches on their way into the lake."""
