"""The note that goes with a consumer group's offset of a partition: which tables hold its records, and how far. Pure.

Kafka stores it as the metadata of the offset. A table is named by a digest, so that the notes of some two hundred
tables that share a partition fit into what brokers accept (``offset.metadata.max.bytes``, 4096 by default).
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import blake2b

MAX_CHARACTERS = 4000
_FORM = "headrace1:"
_DIGEST_BYTES = 6


def digest(table: str) -> str:
    """What names a table in a note."""
    return urlsafe_b64encode(blake2b(table.encode(), digest_size=_DIGEST_BYTES).digest()).decode()


def encode(tables: Mapping[str, int]) -> str:
    """The note of next offsets by digest, "" without any.

    Of more than a note can hold, the tables with the lowest offsets are left out.
    """
    if not tables:
        return ""
    entries: list[str] = []
    size = len(_FORM)
    for table, offset in sorted(tables.items(), key=lambda entry: -entry[1]):
        entries.append(f"{table}:{offset}")
        size += len(entries[-1]) + 1
        if size > MAX_CHARACTERS:
            entries.pop()
            break
    return _FORM + ",".join(entries)


def decode(note: str) -> dict[str, int]:
    """The next offsets by digest; empty for a note that something else has written."""
    if not note.startswith(_FORM):
        return {}
    try:
        pairs = [entry.rsplit(":", 1) for entry in note.removeprefix(_FORM).split(",")]
        return {table: int(offset) for table, offset in pairs}
    except ValueError:
        return {}
