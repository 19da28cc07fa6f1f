"""Tables of Cassandra, in which each cell has its own write time."""
