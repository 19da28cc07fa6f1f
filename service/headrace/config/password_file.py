"""The users of basic authentication, in a file of lines ``user=password`` (Kafka Connect's PropertyFileLoginModule)."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from pathlib import Path

from headrace.core.connect.properties import parse_properties
from headrace.core.model.errors import ConfigError

log = logging.getLogger(__name__)

_OPTION = "rest.basic.auth.file"


class PasswordFile:
    """The users of a file, which is read again when it changes. Passwords are kept as keyed hashes only."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises ConfigError if it cannot be read or has no user: that would let nobody in.

        Kafka Connect lets everybody in if the file is empty.
        """
        self._path = Path(path)
        self._key = secrets.token_bytes(32)
        self._seen = self._version()
        self._users = self._hashes()

    def accepts(self, user: str, password: str) -> bool:
        """Return whether the user has this password. The time does not depend on either."""
        self._refresh()
        known = self._users.get(user)
        equal = hmac.compare_digest(self._hash(password), known if known is not None else self._hash(""))
        return equal and known is not None

    def _refresh(self) -> None:
        """Read the file again after a change. An unreadable file leaves the last users, with an error in the log."""
        seen = self._version()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._users = self._hashes()
            log.info("%s: read again after a change: %d users", _OPTION, len(self._users))
        except ConfigError as error:
            log.error("%s; the last users stay valid", error)

    def _hashes(self) -> dict[str, bytes]:
        return {user: self._hash(password) for user, password in read_users(self._path).items()}

    def _hash(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode(), hashlib.sha256)

    def _version(self) -> object:
        """Return what changes with the content, also if a link to it changes as in a mounted Secret."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


def read_users(path: Path) -> Mapping[str, str]:
    """Return the passwords by user. Raises ConfigError, whose message has none of them."""
    try:
        users = parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{_OPTION}: {path} cannot be read: {error.strerror}", _OPTION) from error
    except ValueError as error:
        raise ConfigError(f"{_OPTION}: {path} is not a properties file in UTF-8", _OPTION) from error
    if not users or any(not user or not password for user, password in users.items()):
        raise ConfigError(f"{_OPTION}: {path} has no users, or one without a password; write user=password", _OPTION)
    return users
