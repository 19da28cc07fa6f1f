"""The requests in the log of an object store that names their headers (``ObjectStore(..., names_headers=True)``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from headrace_dev.object_store import ObjectStore

_COLOURS = re.compile(r"\x1b\[\d*m")
_HEADER = re.compile(r"^│ *([A-Za-z][\w-]*) *: (.*?) *│$", re.MULTILINE)


def requests(store: ObjectStore) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the URL and the headers of each request, with names in lower case."""
    log = _COLOURS.sub("", store.server.log.read_text(errors="replace"))
    for request in log.split("[URL]: ")[1:]:
        url, _, rest = request.partition("\n")
        headers = rest.partition("[ REQUEST HEADERS ]")[2].partition("└")[0]
        yield url, {name.lower(): value for name, value in _HEADER.findall(headers)}
