"""The connection to PostgreSQL: psycopg's, except that it reads large results in large pieces.

The server sends 8 KiB at a time. A client that waits for each of them is woken for two rows of 4 KB, which costs both
processes a fifth to a third of the CPU time of a row. So, while the client reads a result faster than the server sends
it, the client pauses, and the socket's buffer collects several parts. Figures: ``docs/decisions/decoding.md``.

Tests: ``tests/unit/sql/test_postgres_connection.py``.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

Result = TypeVar("Result")

PAUSE_SECONDS = 0.0001
"""Half and twice as long cost the same within 5 %. Linux adds its timer slack of 50 us."""


class Connection(psycopg.Connection[Any]):
    """A connection that waits for large results in pauses, so that each part of 8 KiB does not wake the client."""

    def wait(self, gen: PQGen[Result], *args: Any, **options: Any) -> Result:
        """Wait as psycopg does, with a pause before each wait for the rest of a result. Raises psycopg's errors."""
        return super().wait(in_large_pieces(gen, self.fileno()), *args, **options)


def in_large_pieces(
    operation: PQGen[Result], socket: int, pause: Callable[[float], None] = time.sleep
) -> Generator[Wait, Ready | int, Result]:
    """Return ``operation`` with a pause before each wait for the rest of a result whose arrived part has been read.

    A result that arrives at once, and the wait for the first part of any result, have no pause.
    """
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    arriving = False
    try:
        state = next(operation)
        while True:
            if arriving and state == Wait.R and not poll.poll(0):
                pause(PAUSE_SECONDS)
            ready = yield state
            arriving = ready == Ready.R
            state = operation.send(ready)
    except StopIteration as end:
        result: Result = end.value
        return result
