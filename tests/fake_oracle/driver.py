"""The interface of python-oracledb over ``OracleServer``:

``connect``, ``create_pool``, connections, cursors, errors.

It follows the driver's documentation. Binds are by name after ``setinputsizes``. Large objects are locators and numbers
are floats, unless the statement requests otherwise. The first argument of an error has ``code``, ``full_code``,
``message`` and ``isrecoverable``; the driver's own class makes it, so that a lost connection is DPY-4011 around
ORA-03113. Pools acquire, release and drop connections. A closed object refuses all calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import oracledb
from fake_oracle.server import Failure, OracleServer
from oracledb.errors import _Error

_ACCEPTED: Mapping[Any, tuple[type, ...]] = {
    oracledb.DB_TYPE_NUMBER: (int, Decimal, float),
    oracledb.DB_TYPE_BINARY_FLOAT: (float,),
    oracledb.DB_TYPE_BINARY_DOUBLE: (float,),
    oracledb.DB_TYPE_VARCHAR: (str,),
    oracledb.DB_TYPE_NVARCHAR: (str,),
    oracledb.DB_TYPE_CHAR: (str,),
    oracledb.DB_TYPE_NCHAR: (str,),
    oracledb.DB_TYPE_RAW: (bytes,),
}


def error(message: str) -> oracledb.Error:
    """The driver's exception for a message of the server or of the driver."""
    match = re.match(r"ORA-(\d{5})", message)
    made = _Error(message, code=int(match[1]) if match else 0)
    raised: oracledb.Error = made.exc_type(made)
    return raised


class FakeDriver:
    """The part of ``import oracledb`` that the row source uses. ``pools`` has all created pools.

    ``others`` are further servers, by host.
    """

    def __init__(self, server: OracleServer, **others: OracleServer) -> None:
        self._server = server
        self._others = others
        self.pools: list[FakePool] = []
        self.parameters: list[Mapping[str, Any]] = []

    def connect(self, **parameters: Any) -> FakeConnection:
        """Open a connection outside of a pool."""
        self.parameters.append(parameters)
        return FakeConnection(self._at(parameters), parameters["password"], lambda connection: None)

    def create_pool(self, **parameters: Any) -> FakePool:
        """A pool; connections are made when they are acquired."""
        self.parameters.append(parameters)
        self.pools.append(FakePool(self._at(parameters), parameters))
        return self.pools[-1]

    def _at(self, parameters: Mapping[str, Any]) -> OracleServer:
        return self._others.get(parameters["host"], self._server)


class FakePool:
    """``made`` counts created connections, ``dropped`` those that were discarded."""

    def __init__(self, server: OracleServer, parameters: Mapping[str, Any]) -> None:
        self.made = self.dropped = self.busy = 0
        self._server = server
        self._limit = parameters["max"]
        self._prepare: Callable[[Any, str | None], None] = parameters["session_callback"]
        self._password = parameters["password"]
        self._free: list[FakeConnection] = []
        self._open = True

    @property
    def opened(self) -> int:
        """The number of open connections, acquired or free."""
        self._check()
        return self.busy + len(self._free)

    def acquire(self) -> FakeConnection:
        """A connection, at most ``limit`` at a time."""
        self._check()
        if self.busy == self._limit:
            raise error("DPY-4005: timed out waiting for the connection pool to return a connection")
        if self._free:
            connection = self._free.pop()
            connection.closed = False
        else:
            connection = FakeConnection(self._server, self._password, self._released)
            self.made += 1
            self._prepare(connection, None)
        self.busy += 1
        return connection

    def drop(self, connection: FakeConnection) -> None:
        """Discard a connection."""
        self._check()
        connection.check()
        connection.closed = True
        self.busy -= 1
        self.dropped += 1

    def close(self, force: bool = False) -> None:
        """Close the pool; a second time is an error."""
        self._check()
        assert force or not self.busy
        self._open = False

    def _released(self, connection: FakeConnection) -> None:
        self.busy -= 1
        self._free.append(connection)

    def _check(self) -> None:
        if not self._open:
            raise error("DPY-1002: connection pool is not open")


class FakeConnection:
    """One session. ``call_timeout`` in milliseconds."""

    def __init__(self, server: OracleServer, password: str, released: Callable[[FakeConnection], None]) -> None:
        self.server = server
        self.call_timeout = 0
        self.closed = False
        self.settings: list[str] = []
        self._released = released
        try:
            server.fail("connect")
        except Failure as failure:
            raise error(str(failure)) from None
        server.logins.append(password)
        if server.password not in (None, password):
            raise error("ORA-01017: invalid credential or not authorized; logon denied")

    @property
    def version(self) -> str:
        """The version of the server."""
        return self.server.version

    def cursor(self) -> FakeCursor:
        """A new cursor."""
        self.check()
        return FakeCursor(self)

    def close(self) -> None:
        """Release the connection; a second call is an error."""
        self.check()
        self.closed = True
        self._released(self)

    def check(self) -> None:
        """Raise an error if the connection is closed."""
        if self.closed:
            raise error("DPY-1001: not connected to database")


class FakeLob:
    """A locator; a LOB that was not fetched as a value must be read while the connection is open."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def read(self) -> Any:
        """Read the complete value."""
        return self._value


class FakeCursor:
    """One statement at a time."""

    def __init__(self, connection: FakeConnection) -> None:
        self.arraysize = 100
        self.prefetchrows = 2
        self._connection = connection
        self._sizes: dict[str, Any] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._lobs = True
        self._decimals = False

    def __enter__(self) -> FakeCursor:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows = []

    def setinputsizes(self, **types: Any) -> None:
        """The types of the next statement's binds."""
        self._sizes = types

    def execute(
        self,
        statement: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        fetch_lobs: bool = True,
        fetch_decimals: bool = False,
    ) -> FakeCursor:
        """Run a query, or change the session."""
        self._connection.check()
        self._lobs, self._decimals = fetch_lobs, fetch_decimals
        if statement.startswith("ALTER SESSION SET "):
            self._connection.settings.append(statement)
            return self
        binds = dict(parameters or {})
        for name, value in binds.items():
            self._check_type(name, value)
        try:
            self._rows = self._connection.server.query(statement, binds)[1]
        except Failure as failure:
            raise error(str(failure)) from None
        return self

    def _check_type(self, name: str, value: Any) -> None:
        kind = self._sizes.get(name)
        if kind is not None and value is not None and not isinstance(value, _ACCEPTED[kind]):
            raise error(f"DPY-3013: unsupported Python type {type(value).__name__} for database type {kind.name}")

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row."""
        return self._given(self._rows.pop(0)) if self._rows else None

    def fetchmany(self) -> list[tuple[Any, ...]]:
        """The next ``arraysize`` rows."""
        self._connection.check()
        rows, self._rows = self._rows[: self.arraysize], self._rows[self.arraysize :]
        return [self._given(row) for row in rows]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows; large objects that are fetched as values are read here."""
        self._connection.check()
        try:
            self._connection.server.fail("fetch")
        except Failure as failure:
            raise error(str(failure)) from None
        rows, self._rows = self._rows, []
        return [self._given(row) for row in rows]

    def _given(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self._cell(value) for value in row)

    def _cell(self, value: Any) -> Any:
        if isinstance(value, Decimal) and not self._decimals:
            return int(value) if value == int(value) else float(value)
        if self._lobs and isinstance(value, str | bytes) and len(value) > 4000:
            return FakeLob(value)
        if value is None or isinstance(value, str | bytes | int | float | Decimal | timedelta | oracledb.IntervalYM):
            return str(value) if isinstance(value, str) else value
        raise AssertionError(f"{type(value).__name__} needs a conversion in SQL")
