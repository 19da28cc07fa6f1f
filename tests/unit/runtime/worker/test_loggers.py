"""Levels of loggers beyond the recorded requests: Python's own ways, and what may not be logged at all."""

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
    """Loggers that have nothing to do with those of the test run."""
    manager = logging.Manager(logging.RootLogger(logging.INFO))
    manager.root.manager = manager
    manager.getLogger("shop.orders.lines")
    return manager


@pytest.fixture
def loggers(manager: logging.Manager) -> Loggers:
    """A worker's view of them."""
    return Loggers(lambda: NOON, manager)


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_reads_back_as_it_was_set(loggers: Loggers, level: str) -> None:
    """Each of Connect's names, in any case."""
    loggers.set_level("shop", level.lower())
    assert loggers.level("shop").level == level


def test_levels_of_pythons_own_read_as_what_they_let_through(loggers: Loggers, manager: logging.Manager) -> None:
    """25 lets warnings through and no more."""
    manager.getLogger("shop").setLevel(25)
    assert loggers.level("shop") == LoggerLevel("WARN", None)


def test_off_is_silent_and_all_lets_everything_through(loggers: Loggers, manager: logging.Manager) -> None:
    """As a log call sees it."""
    loggers.set_level("shop", "OFF")
    assert not manager.getLogger("shop.orders.lines").isEnabledFor(logging.CRITICAL)
    loggers.set_level("shop", "ALL")
    assert manager.getLogger("shop.orders.lines").isEnabledFor(1)


def test_a_namespace_without_a_logger_is_unknown_until_it_is_set(loggers: Loggers) -> None:
    """Python keeps a placeholder for it, Connect nothing."""
    with pytest.raises(RestError, match=r"Logger shop\.orders not found\."):
        loggers.level("shop.orders")
    assert loggers.set_level("shop.orders", "DEBUG") == ["shop.orders", "shop.orders.lines"]
    assert loggers.all() == {
        "root": LoggerLevel("INFO", None),
        "shop.orders": LoggerLevel("DEBUG", NOON_MS),
        "shop.orders.lines": LoggerLevel("DEBUG", NOON_MS),
    }


def test_a_logger_whose_name_only_begins_alike_is_left_alone(loggers: Loggers, manager: logging.Manager) -> None:
    """A namespace ends at a dot."""
    manager.getLogger("shopping")
    assert loggers.set_level("shop", "DEBUG") == ["shop", "shop.orders.lines"]


@pytest.mark.parametrize("guarded", GUARDED)
def test_what_prints_passwords_and_data_stays_at_info(loggers: Loggers, manager: logging.Manager, guarded: str) -> None:
    """Whether it is asked of the logger, of one below it, or of root; also before the library is there."""
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
