"""The levels of this worker's loggers, in Kafka Connect's words, on Python's logging (``connect.md`` section 6.2).

Loggers of Spark's JVM are none of them. What some client libraries say below INFO holds passwords, statements and
records; they stay at INFO, whatever is asked of a logger above them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from headrace.core.model.errors import RestError

ROOT = "root"
LEVELS: Mapping[str, int] = {
    "ALL": 1,  # Python's 0 would mean: as the logger above it
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": 2**31 - 1,
}
"""Log4j's names, lowest first; what Python logs at 50 is FATAL."""
GUARDED = ("aiokafka", "faust", "py4j")
"""Below INFO they print requests with credentials, records, and statements with key values."""


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """A logger's level in force, and when a request last changed it (epoch milliseconds; None if none has)."""

    level: str
    last_modified: int | None


class Loggers:
    """Looks at loggers and changes them until the process ends; a restart begins with the levels of the start."""

    def __init__(self, now: Callable[[], datetime], manager: logging.Manager | None = None) -> None:
        self._now = now
        self._manager = logging.root.manager if manager is None else manager
        self._modified: dict[str, int] = {}

    def all(self) -> dict[str, LoggerLevel]:
        """Every logger, by name."""
        return {name: self._shown(name, logger) for name, logger in sorted(self._loggers().items())}

    def level(self, name: str) -> LoggerLevel:
        """One logger; root in any case. Raises RestError 404 where no logger has exactly this name."""
        name = _canonical(name)
        logger = self._loggers().get(name)
        if logger is None:
            raise RestError(f"Logger {name} not found.", 404)
        return self._shown(name, logger)

    def check(self, name: str, level: str) -> str:
        """The level's own name. Raises RestError 404 for an unknown level, 400 where it would print secrets."""
        if not level:
            raise RestError("Illegal null or empty Level name.", 500)
        known = level.upper()
        if known not in LEVELS:
            raise RestError(f"invalid log level '{level}'.", 404)
        if LEVELS[known] < _lowest(name):
            raise RestError(f"Below INFO {name} prints credentials and data; use INFO, WARN, ERROR, FATAL or OFF", 400)
        return known

    def set_level(self, name: str, level: str) -> list[str]:
        """Set a logger, which is made if need be, and all below it; the names of those that it changed.

        Raises RestError as ``check`` does.
        """
        number = LEVELS[self.check(name, level)]
        name = _canonical(name)
        named = {name, *(guard for guard in GUARDED if number < logging.INFO and _is_below(guard, name))}
        for each in named - {ROOT}:
            self._manager.getLogger(each)
        affected = {each: logger for each, logger in self._loggers().items() if _is_below(each, name)}
        before = {each: _name(logger) for each, logger in affected.items()}
        for each, logger in affected.items():
            if each in named or logger.level != logging.NOTSET:  # the others have the level of the logger above them
                logger.setLevel(max(number, _lowest(each)))
        changed = sorted(each for each, logger in affected.items() if _name(logger) != before[each])
        self._modified.update(dict.fromkeys(changed, int(self._now().timestamp() * 1000)))
        return changed

    def _loggers(self) -> dict[str, logging.Logger]:
        """A namespace without a logger of its own is a placeholder in Python's table, and none here."""
        table = dict(self._manager.loggerDict)  # other threads may make loggers meanwhile
        found = {name: logger for name, logger in table.items() if isinstance(logger, logging.Logger)}
        return {**found, ROOT: self._manager.root}

    def _shown(self, name: str, logger: logging.Logger) -> LoggerLevel:
        return LoggerLevel(_name(logger), self._modified.get(name))


def _canonical(name: str) -> str:
    return ROOT if name.lower() == ROOT else name


def _is_below(name: str, namespace: str) -> bool:
    return namespace in (ROOT, name) or name.startswith(f"{namespace}.")


def _lowest(name: str) -> int:
    """The lowest level that a logger may be set to."""
    return logging.INFO if any(_is_below(name, guard) for guard in GUARDED) else logging.NOTSET


def _name(logger: logging.Logger) -> str:
    """The name of the level in force; a number between two levels lets through what the higher one does."""
    number = logger.getEffectiveLevel()
    return next((name for name, threshold in LEVELS.items() if number <= threshold), "OFF")
