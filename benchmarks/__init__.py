"""Benchmarks of Headrace against what a user would otherwise write by hand (``make bench``)."""
