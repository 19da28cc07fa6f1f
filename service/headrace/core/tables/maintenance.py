"""Who maintains a table. Pure."""

from __future__ import annotations

from enum import StrEnum


class Maintenance(StrEnum):
    """Who compacts a table and expires its snapshots: the worker beside its writes or between them, or nobody here."""

    BACKGROUND = "background"
    INLINE = "inline"
    OFF = "off"
