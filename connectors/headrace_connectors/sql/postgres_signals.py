"""A signal table of Debezium in PostgreSQL: the three columns id, type and data, in this order.

The user of ``reselect.database.*`` needs INSERT and SELECT on it. Sessions of Headrace are read-only, so each write
makes its transaction read-write.

Tests: ``tests/contracts/test_signal_channels.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from headrace.core.model.errors import Fatal
from headrace.core.resnapshot.signals import PREFIX, Signal
from headrace_connectors.sql.postgres_server import PostgresServer
from headrace_connectors.sql.query import quoted


class PostgresSignalTable:
    """``headrace.ports.SignalChannel``. ``name`` is ``schema.table``, as in ``signal.data.collection``."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        schema, _, table = name.partition(".")
        self._server, self._name, self._table = server, name, quoted(schema, table)

    def signals(self) -> Sequence[Signal]:
        query = f"SELECT id, type, data FROM {self._table} AS signal (id, type, data) WHERE id LIKE %s"
        with self._explaining(), self._server.connection() as connection:
            rows = connection.execute(cast(Any, query), (f"{PREFIX}%",)).fetchall()
        return [signal for row in rows if (signal := _signal(*row)) is not None]

    def send(self, signal: Signal) -> None:
        insert = f"INSERT INTO {self._table} VALUES (%s, %s, %s)"
        values = signal.id, signal.type, json.dumps(signal.data, ensure_ascii=False)
        with self._explaining(), self._server.connection() as connection, connection.transaction():
            connection.execute("SET TRANSACTION READ WRITE")
            connection.execute(cast(Any, insert), values)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except Fatal as error:
            raise Fatal(
                f"signal table {self._name}: {error}; it needs the columns id, type and data, and the user needs: "
                f"GRANT INSERT, SELECT ON {self._table}"
            ) from error


def _signal(id: str, type: str, data: str | None) -> Signal | None:
    """Return the signal of a row; None if its data is not an object."""
    try:
        document = json.loads(data or "{}")
    except ValueError:
        return None
    return Signal(id, type, document) if isinstance(document, dict) else None
