"""Cassandra's tables: writes whose cells have times of their own."""
