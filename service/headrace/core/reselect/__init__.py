"""Reselect: restore column values that the source omitted."""
