"""What a caller of the REST API may do: the roles read, operate and admin, and the role that a request needs."""

from __future__ import annotations

import re
from enum import IntEnum

from headrace.config.rest_options import ROLES


class Role(IntEnum):
    """A role. Each one includes those before it."""

    READ = 1
    OPERATE = 2
    ADMIN = 3

    @classmethod
    def of(cls, name: str) -> Role:
        """Return the role with this name in options."""
        return cls(ROLES.index(name) + 1)

    def __str__(self) -> str:
        return ROLES[self - 1]


_READING = ("GET", "HEAD", "OPTIONS")
_OPERATIONS = (
    ("PUT", r"/connectors/[^/]+/(?:pause|resume|stop|topics/reset)"),
    ("POST", r"/connectors/[^/]+/(?:restart|tasks/[^/]+/restart|tables/[^/]+/restart)"),
    ("PATCH", r"/connectors/[^/]+/offsets"),
    ("DELETE", r"/connectors/[^/]+/offsets"),
)
"""The requests that change the state of a connector, but not what it does."""


def changes_state(method: str) -> bool:
    """Return whether a request with this method may change something."""
    return method not in _READING


def required_role(method: str, path: str) -> Role:
    """Return the role that a request needs. A request that is not listed needs the role admin."""
    if not changes_state(method):
        return Role.READ
    if any(method == each and re.fullmatch(pattern, path) for each, pattern in _OPERATIONS):
        return Role.OPERATE
    return Role.ADMIN
