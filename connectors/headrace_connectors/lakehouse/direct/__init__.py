"""Commits of small batches without a Spark job: an index of the row keys, Parquet files and deletion vectors."""
