"""Check that the properties of a table place its files below the warehouse."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from urllib.parse import urlsplit

from headrace.core.model.errors import ConfigError

_CLASSES = ("write.location-provider.impl",)
"""Properties that name a Java class, which chooses the location of each file."""
_ENDINGS = ("path", "location")
_OF_A_COLUMN = ".column."
"""Part of the name of a column's setting, which ends with the column's name: this may be ``path``."""
_LOCAL = ("", "file")


def location_problems(properties: Mapping[str, str], warehouse: str | None) -> dict[str, str]:
    """Return the problems of the properties that contain a location, by their names.

    ``warehouse`` is a URL or an absolute path; without it only relative locations and those with ``..`` are rejected.
    """
    problems = {}
    for name, value in properties.items():
        if name in _CLASSES:
            problems[name] = f"{name} names a class that may write anywhere; set write.data.path instead"
        elif name.endswith(_ENDINGS) and _OF_A_COLUMN not in name and not _is_below(value.strip(), warehouse):
            problems[name] = f"{name} is not an absolute location below the worker's warehouse; choose one there"
    return problems


def check_locations(properties: Mapping[str, str], warehouse: str | None) -> None:
    """Raise ConfigError for the first problem that ``location_problems`` returns."""
    for name, problem in location_problems(properties, warehouse).items():
        raise ConfigError(f"table.properties.{problem}", f"table.properties.{name}")


def _is_below(location: str, warehouse: str | None) -> bool:
    server, path = _parts(location)
    if not path.startswith("/") or ".." in path.split("/"):
        return False
    if warehouse is None:
        return True
    warehouse_server, folder = _parts(warehouse)
    return server == warehouse_server and path.startswith(posixpath.normpath(folder).rstrip("/") + "/")


def _parts(location: str) -> tuple[tuple[str, str], str]:
    """Split a URL into its server and its path; a path alone has no server."""
    url = urlsplit(location)
    scheme = "" if url.scheme in _LOCAL else url.scheme
    return (scheme, url.netloc), posixpath.normpath(url.path) if ".." not in url.path.split("/") else url.path
