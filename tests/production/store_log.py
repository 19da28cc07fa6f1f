"""What an object store received, from its log with the headers of requests (``names_headers=True``)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace_dev.object_store import ObjectStore

_COLOURS = re.compile(r"\x1b\[\d*m")


def values(store: ObjectStore, header: str) -> Sequence[str]:
    """Return the values of a header in all requests. Requests at the same time mix their lines, but no line."""
    log = _COLOURS.sub("", store.server.log.read_text(errors="replace"))
    return re.findall(rf"^│ *{header} *: (.*?) *│$", log, re.MULTILINE | re.IGNORECASE)
