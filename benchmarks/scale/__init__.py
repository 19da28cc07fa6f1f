"""Curves of Headrace's cost, beside what a user would run instead: ``python -m benchmarks.scale --help``."""
