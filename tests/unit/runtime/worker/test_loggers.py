"""Tests of logger levels: Python's own levels, and loggers that must not log credentials and data."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from headrace.core.model.errors import RestError
from headrace.runtime.worker.loggers import GUARDED, LEVELS, LoggerLevel, Loggers

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@pytest.fixture
def manager() -> logging.Manager:
    """Return a manager of loggers that are separate from those of the test run."""
    manager = logging.Manager(logging.RootLogger(logging.INFO))
    manager.root.manager = manager
    manager.getLogger("shop.orders.lines")
    return manager


@pytest.fixture
def loggers(manager: logging.Manager) -> Loggers:
    """Return the loggers of a worker over the manager."""
    return Loggers(lambda: NOON, manager)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_returned_as_it_was_set(loggers: Loggers, level: str) -> None:
    """The worker accepts each of Kafka Connect's level names, in upper and lower case."""
    loggers.set_level("shop", level.lower())
    assert loggers.level("shop").level == level


def test_python_levels_are_mapped_to_the_next_level(loggers: Loggers, manager: logging.Manager) -> None:
    """The Python level 25 is reported as WARN, because it logs warnings but no information."""
    manager.getLogger("shop").setLevel(25)
    assert loggers.level("shop") == LoggerLevel("WARN", None)


def test_off_logs_nothing_and_all_logs_everything(loggers: Loggers, manager: logging.Manager) -> None:
    """OFF disables also CRITICAL for a log call, ALL enables level 1."""
    loggers.set_level("shop", "OFF")
    assert not manager.getLogger("shop.orders.lines").isEnabledFor(logging.CRITICAL)
    loggers.set_level("shop", "ALL")
    assert manager.getLogger("shop.orders.lines").isEnabledFor(1)


def test_a_namespace_without_a_logger_is_unknown_until_it_is_set(loggers: Loggers) -> None:
    """A namespace for which Python has only a placeholder is not found until its level is set."""
    with pytest.raises(RestError, match=r"Logger shop\.orders not found\."):
        loggers.level("shop.orders")
    assert loggers.set_level("shop.orders", "DEBUG") == ["shop.orders", "shop.orders.lines"]
    assert loggers.all() == {
        "root": LoggerLevel("INFO", None),
        "shop.orders": LoggerLevel("DEBUG", NOON_MS),
        "shop.orders.lines": LoggerLevel("DEBUG", NOON_MS),
    }


def test_a_logger_with_only_a_common_prefix_is_unchanged(loggers: Loggers, manager: logging.Manager) -> None:
    """A level of a namespace does not change loggers whose name continues without a dot."""
    manager.getLogger("shopping")
    assert loggers.set_level("shop", "DEBUG") == ["shop", "shop.orders.lines"]


@pytest.mark.parametrize("guarded", GUARDED)
def test_loggers_of_passwords_and_data_stay_at_info(loggers: Loggers, manager: logging.Manager, guarded: str) -> None:
    """These loggers and their children log no DEBUG, also after a request for root or before the library is loaded."""
    manager.getLogger("py4j.clientserver").setLevel(logging.WARNING)
    for name in (guarded, f"{guarded}.conn"):
        with pytest.raises(RestError, match="logs credentials and data"):
            loggers.set_level(name, "DEBUG")
    loggers.set_level("root", "ALL")
    for name in (guarded, f"{guarded}.conn", "py4j.clientserver"):
        logger = manager.getLogger(name)
        assert logger.isEnabledFor(logging.INFO)
        assert not logger.isEnabledFor(logging.DEBUG)
    assert loggers.set_level(guarded, "ERROR")[0] == guarded
