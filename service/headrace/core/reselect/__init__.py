"""Reselect: giving back the column values that a source left out."""
