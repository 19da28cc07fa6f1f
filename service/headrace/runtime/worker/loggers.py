"""The levels of this worker's loggers: Kafka Connect's level names on Python's logging (``connect.md`` section 6.2).

The loggers of Spark's JVM are not included. Some client libraries log passwords, statements and records below INFO.
Their loggers stay at INFO at least, also if a request sets a logger above them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from headrace.core.model.errors import RestError

ROOT = "root"
LEVELS: Mapping[str, int] = {
    "ALL": 1,  # not 0, which inherits the level of the parent logger
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": 2**31 - 1,
}
"""Log4j's level names, lowest first. Python's CRITICAL is FATAL."""
GUARDED = ("aiokafka", "faust", "py4j")
"""Libraries that log credentials, records, and statements with key values below INFO."""


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """A logger's effective level, and when a request last changed it (epoch milliseconds; None if no request did)."""

    level: str
    last_modified: int | None


class Loggers:
    """Reads and sets the levels of loggers. A level is lost when the process ends."""

    def __init__(self, now: Callable[[], datetime], manager: logging.Manager | None = None) -> None:
        self._now = now
        self._manager = logging.root.manager if manager is None else manager
        self._modified: dict[str, int] = {}

    def all(self) -> dict[str, LoggerLevel]:
        return {name: self._shown(name, logger) for name, logger in sorted(self._loggers().items())}

    def level(self, name: str) -> LoggerLevel:
        """Return one logger; ``root`` is case-insensitive. Raises RestError 404 if no logger has this name."""
        name = _canonical(name)
        logger = self._loggers().get(name)
        if logger is None:
            raise RestError(f"Logger {name} not found.", 404)
        return self._shown(name, logger)

    def check(self, name: str, level: str) -> str:
        """Return the level in upper case. Raises RestError 404 for an unknown level, 400 if it would log secrets."""
        if not level:
            raise RestError("Illegal null or empty Level name.", 500)
        level_name = level.upper()
        if level_name not in LEVELS:
            raise RestError(f"invalid log level '{level}'.", 404)
        if LEVELS[level_name] < _lowest(name):
            raise RestError(f"Below INFO {name} logs credentials and data; use INFO, WARN, ERROR, FATAL or OFF", 400)
        return level_name

    def set_level(self, name: str, level: str) -> list[str]:
        """Set a logger, which is created if absent, and all below it. Return the names of those that changed.

        Raises RestError as ``check`` does.
        """
        threshold = LEVELS[self.check(name, level)]
        name = _canonical(name)
        named = {name, *(guard for guard in GUARDED if threshold < logging.INFO and _is_below(guard, name))}
        for logger_name in named - {ROOT}:
            self._manager.getLogger(logger_name)
        affected = {
            logger_name: logger for logger_name, logger in self._loggers().items() if _is_below(logger_name, name)
        }
        before = {logger_name: _name(logger) for logger_name, logger in affected.items()}
        for logger_name, logger in affected.items():
            if logger_name in named or logger.level != logging.NOTSET:  # the others inherit the level
                logger.setLevel(max(threshold, _lowest(logger_name)))
        changed = sorted(
            logger_name for logger_name, logger in affected.items() if _name(logger) != before[logger_name]
        )
        self._modified.update(dict.fromkeys(changed, int(self._now().timestamp() * 1000)))
        return changed

    def _loggers(self) -> dict[str, logging.Logger]:
        """Return the loggers without the placeholders that Python keeps for namespaces."""
        table = dict(self._manager.loggerDict)  # a copy, because other threads may create loggers
        loggers = {name: logger for name, logger in table.items() if isinstance(logger, logging.Logger)}
        return {**loggers, ROOT: self._manager.root}

    def _shown(self, name: str, logger: logging.Logger) -> LoggerLevel:
        return LoggerLevel(_name(logger), self._modified.get(name))


def _canonical(name: str) -> str:
    return ROOT if name.lower() == ROOT else name


def _is_below(name: str, namespace: str) -> bool:
    return namespace in (ROOT, name) or name.startswith(f"{namespace}.")


def _lowest(name: str) -> int:
    return logging.INFO if any(_is_below(name, guard) for guard in GUARDED) else logging.NOTSET


def _name(logger: logging.Logger) -> str:
    """Return the name of the effective level, that of the higher one for a number between two levels."""
    effective = logger.getEffectiveLevel()
    return next((name for name, threshold in LEVELS.items() if effective <= threshold), "OFF")
