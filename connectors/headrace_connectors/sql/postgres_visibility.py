"""Whether an event's transaction is visible to the connection that reads its row (``reselect.md`` section 7.2).

A transaction that is committed in the log need not be visible yet: a primary may wait for a synchronous standby, and a
standby may have replayed the event's record without the commit that follows it. So the positions of events prove
nothing, and ``pg_visible_in_snapshot`` is wrong on standbys; ``pg_xact_status`` is right on both. After it returns
``committed``, every *later* snapshot of the same server sees the transaction: check first, then read, on one
connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from headrace.core.model.errors import ConfigError, Retriable

Connection = psycopg.Connection[Any]

FIRST_NORMAL_ID = 3
"""The ids below are PostgreSQL's own (bootstrap, frozen) and always visible."""

# txid_… are the names that PostgreSQL 12 has as well; pg_xact_status of later versions is the same function.
_NEXT_ID = "SELECT pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot())"
_STATES = "SELECT DISTINCT pg_catalog.txid_status(id) FROM unnest(%s::pg_catalog.int8[]) AS id"


class NotVisible(Retriable):
    """An event's transaction is not yet visible on the queried server."""


@dataclass(frozen=True, slots=True)
class VisibilityCheck:
    """Waits, with back-off, for at most ``timeout`` seconds per call."""

    timeout: float

    def wait(self, connection: Connection, transactions: Sequence[int], where: str) -> float:
        """Return once all ``transactions`` (32-bit ids, as in events) are visible to later statements.

        Returns the seconds of waiting for them. Raises NotVisible after the time-out, and ConfigError if one was
        aborted, because then this is another server.
        """
        if not transactions:
            return 0.0
        retrying = Retrying(
            retry=retry_if_exception_type(NotVisible),
            stop=stop_after_delay(self.timeout),
            wait=wait_exponential(multiplier=0.01, max=0.5),
            reraise=True,
        )
        retrying(_check, connection, transactions, where)
        return float(retrying.statistics["idle_for"])


def full_transaction_id(number: int, next_id: int) -> int:
    """Return the 64-bit id nearest to ``next_id`` of a 32-bit id (signed difference, as PostgreSQL compares)."""
    difference = (number - next_id) & 0xFFFFFFFF
    return next_id + (difference - (1 << 32) if difference >= 1 << 31 else difference)


def _check(connection: Connection, transactions: Sequence[int], where: str) -> None:
    row = connection.execute(_NEXT_ID).fetchone()
    next_id = int(row[0]) if row is not None else 0
    states = _states(connection, [full_transaction_id(number, next_id) for number in transactions], where)
    if "in progress" in states:
        raise NotVisible(f"{where}: a transaction of the events is not visible yet")
    if "aborted" in states:
        raise ConfigError(
            f"{where}: a transaction of the events was aborted here, so they come from another server; "
            "correct reselect.database.*, or set reselect.visibility.check=off for a copy",
            "reselect.database.hostname",
        )


def _states(connection: Connection, full_ids: Sequence[int], where: str) -> set[str | None]:
    """The status of the transactions; null is too old for a status, and so visible."""
    asked = [number for number in full_ids if number >= FIRST_NORMAL_ID]
    try:
        return {row[0] for row in connection.execute(_STATES, (asked,))}
    except psycopg.errors.InvalidParameterValue as error:  # "transaction ID … is in the future"
        raise NotVisible(
            f"{where} does not know transaction {max(full_ids) & 0xFFFFFFFF} yet; if it is a copy or was restored, "
            "its transaction ids are not those of the events; set reselect.visibility.check=off"
        ) from error
