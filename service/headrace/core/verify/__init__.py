"""Comparing a table with its source by digests, and the repair of what differs."""
