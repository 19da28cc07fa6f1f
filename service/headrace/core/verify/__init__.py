"""Compare a table with its source by digests, and repair the rows that differ."""
