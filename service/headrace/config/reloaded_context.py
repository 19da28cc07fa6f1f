"""A context of TLS that follows changes of its files: renewed certificates need no restart."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headrace.core.model.errors import ConfigError

log = logging.getLogger(__name__)


class ReloadedContext(ssl.SSLContext):
    """A context that makes each connection with the current content of its files.

    asyncio, and with it aiohttp, aiokafka and uvicorn, calls ``wrap_bio`` for every connection. OpenSSL could replace
    a key in a context, but could not remove an authority from it.
    """

    _make: Callable[[], ssl.SSLContext]
    _files: Sequence[str]
    _prefix: str
    _current: ssl.SSLContext
    _seen: tuple[object, ...]

    @classmethod
    def of(cls, make: Callable[[], ssl.SSLContext], files: Sequence[str], prefix: str) -> ReloadedContext:
        """Return a context that ``make`` makes again after a change of ``files``. Raises ConfigError."""
        seen, current = _versions_of(files), make()
        context = cls.__new__(cls, current.protocol)
        context.check_hostname, context.verify_mode = current.check_hostname, current.verify_mode
        context._make, context._files, context._prefix = make, files, prefix
        context._current, context._seen = current, seen
        return context

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection of asyncio."""
        return self.current().wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """Begin a connection of a blocking client."""
        return self.current().wrap_socket(*arguments, **options)

    def current(self) -> ssl.SSLContext:
        """Return the context with the current content of the files, the last valid one if that is unreadable."""
        seen = _versions_of(self._files)
        if seen != self._seen:
            self._seen = seen
            try:
                self._current = self._make()
                log.info("TLS: %s are read again after a change: %s", f"{self._prefix}*", ", ".join(self._files))
            except ConfigError as error:
                log.error("TLS: changed certificates are not used, the last ones stay in use: %s", error)
        return self._current


def _versions_of(files: Sequence[str]) -> tuple[object, ...]:
    """Return what changes with the content of the files, also if a link to them changes as in a mounted Secret."""
    return tuple(_version_of(each) for each in files)


def _version_of(file: str) -> object:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
