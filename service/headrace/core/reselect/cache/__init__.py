"""The reselect column cache: rows, their validity, and the assignments of partitions."""
