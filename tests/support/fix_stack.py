"""The real systems, started once per run if a test requests them.

Tests share them, so each test has its own names of topics, databases and connectors (``unique``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from headrace_dev.kafka import Kafka
from headrace_dev.postgres import Postgres
from headrace_dev.registry import Registry
from headrace_dev.stack import Stack

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def _stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """Yield a stack in which no system runs yet; it keeps its logs if a test failed."""
    stack = Stack()
    yield stack
    stack.stop(failed=request.session.testsfailed > 0)


@pytest.fixture(scope="session")
def stack_kafka(_stack: Stack) -> Kafka:
    """A broker."""
    _stack.start("kafka")
    return _stack.kafka


@pytest.fixture(scope="session")
def stack_postgres(_stack: Stack) -> Postgres:
    """A PostgreSQL with logical decoding."""
    _stack.start("postgres")
    return _stack.postgres


@pytest.fixture(scope="session")
def contrib_postgres(stack_postgres: Postgres) -> Postgres:
    """A PostgreSQL that can create hstore, citext and the other contrib extensions."""
    if not stack_postgres.has_contrib:
        pytest.skip("needs Debian's postgresql with contrib: 'make system' as root installs it")
    return stack_postgres


@pytest.fixture(scope="session")
def stack_standby(_stack: Stack) -> Postgres:
    """A streaming replica of ``stack_postgres``."""
    _stack.start("standby")
    return _stack.standby


@pytest.fixture(scope="session")
def stack_registry(_stack: Stack) -> Registry:
    """A schema registry."""
    _stack.start("registry")
    return _stack.registry


@pytest.fixture(scope="session")
def stack(_stack: Stack) -> Stack:
    """Start all systems: broker, database, Connect with Debezium."""
    _stack.start()
    return _stack


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Return a function that makes names for this test only: ``unique("shop") -> "shop_7"``."""
    return lambda stem: f"{stem}_{next(_numbers)}"
