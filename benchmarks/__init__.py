"""Benchmarks of Headrace against a hand-written Spark job (``make bench``)."""
