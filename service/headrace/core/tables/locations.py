"""Where the properties of a table put its files: below the warehouse, like the table itself."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from urllib.parse import urlsplit

from headrace.core.model.errors import ConfigError

_CLASSES = ("write.location-provider.impl",)
"""A Java class that chooses each file's place by itself."""
_ENDINGS = ("path", "location")
_OF_A_COLUMN = ".column."
"""Settings of a column end with its name, which may be path."""
_LOCAL = ("", "file")


def location_problems(properties: Mapping[str, str], warehouse: str | None) -> dict[str, str]:
    """What is wrong with the properties that name a place, by their names.

    ``warehouse`` is a URL or an absolute path; without one only relative places and those with ``..`` are refused.
    """
    problems = {}
    for name, value in properties.items():
        if name in _CLASSES:
            problems[name] = f"{name} names a class that may write anywhere; set write.data.path instead"
        elif name.endswith(_ENDINGS) and _OF_A_COLUMN not in name and not _is_below(value.strip(), warehouse):
            problems[name] = f"{name} is not an absolute place below the worker's warehouse; choose one there"
    return problems


def check_locations(properties: Mapping[str, str], warehouse: str) -> None:
    """Raise ConfigError for the first of these problems."""
    for name, problem in location_problems(properties, warehouse).items():
        raise ConfigError(f"table.properties.{problem}", f"table.properties.{name}")


def _is_below(place: str, warehouse: str | None) -> bool:
    server, path = _parts(place)
    if not path.startswith("/") or ".." in path.split("/"):
        return False
    if warehouse is None:
        return True
    of_server, folder = _parts(warehouse)
    return server == of_server and path.startswith(posixpath.normpath(folder).rstrip("/") + "/")


def _parts(place: str) -> tuple[tuple[str, str], str]:
    """The server and the path of a URL; a path alone is of no server."""
    url = urlsplit(place)
    scheme = "" if url.scheme in _LOCAL else url.scheme
    return (scheme, url.netloc), posixpath.normpath(url.path) if ".." not in url.path.split("/") else url.path
