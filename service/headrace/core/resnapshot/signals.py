"""The signals that Headrace sends to Debezium for a snapshot of one table.

Source: Debezium's page "Sending signals to a Debezium connector": a signal has an id (at most 42 characters), a type
and data in JSON. Debezium ignores members of ``data`` that it does not know.

The channel is also where the state of a request is stored. It outlives the command, the worker and the connector, and
Debezium itself only stores what it still has to read. A request is an ``execute-snapshot`` signal. It is open until a
signal of type ``log`` (which Debezium writes to its log) or ``stop-snapshot`` contains the id of the request.

Tests: ``tests/unit/core/resnapshot/test_signals.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

PREFIX = "headrace-"
"""Ids of Headrace's signals begin with this. Debezium's own signals in a signal table have UUIDs."""

_OWN = "headrace"
"""The member of ``data`` that is Headrace's."""
_REGULAR_EXPRESSION = re.compile(r"[][{}()*+?^$|\\]")


class SignalType(StrEnum):
    """The types of signals that are used."""

    EXECUTE = "execute-snapshot"
    STOP = "stop-snapshot"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal. ``data`` is a JSON object."""

    id: str
    type: str
    data: Mapping[str, Any]

    @property
    def sent_at(self) -> float:
        """The time of the sender's clock in the id, in seconds since the epoch; 0 for an id of another form."""
        milliseconds = self.id.removeprefix(PREFIX).partition("-")[0]
        return int(milliseconds) / 1000 if milliseconds.isdecimal() else 0.0

    @property
    def request(self) -> str | None:
        """The id of the request that this signal ends."""
        own = self.data.get(_OWN)
        ended = own.get("ends") if isinstance(own, Mapping) else None
        return ended if isinstance(ended, str) else None


def new_id(now: float, unique: str) -> str:
    """Return the id of a signal that is sent at ``now`` (seconds since the epoch); ``unique`` has 8 characters."""
    return f"{PREFIX}{int(now * 1000)}-{unique[:8]}"


def snapshot_request(id: str, table: str, connector: str) -> Signal:
    """Return the request of a snapshot of ``table`` (``schema.table``) for a sink connector."""
    return Signal(id, SignalType.EXECUTE, {**_of_table(table), _OWN: {"connector": connector}})


def stop_request(id: str, table: str, request: str) -> Signal:
    """Return the signal that ends the reads of ``table``, and the request with the id ``request``."""
    return Signal(id, SignalType.STOP, {**_of_table(table), _OWN: {"ends": request}})


def end_of(id: str, table: str, request: str) -> Signal:
    """Return the signal that marks the request as done. Debezium only logs it."""
    return Signal(id, SignalType.LOG, {"message": f"Headrace: {table} has its snapshot {{}}", _OWN: {"ends": request}})


def progress_mark(id: str, table: str) -> Signal:
    """Return a signal without an effect: Debezium stores its progress with it, also if the database is idle."""
    return Signal(id, SignalType.LOG, {"message": f"Headrace: {table} is read {{}}"})


def open_request(signals: Iterable[Signal], table: str, connector: str) -> Signal | None:
    """Return the newest request of ``connector`` for ``table`` that no later signal ends."""
    signals = list(signals)
    ended = {signal.request for signal in signals}
    requests = [
        signal
        for signal in signals
        if signal.type == SignalType.EXECUTE
        and signal.id not in ended
        and signal.data.get("data-collections") == _of_table(table)["data-collections"]
        and signal.data.get(_OWN) == {"connector": connector}
    ]
    return max(requests, key=lambda signal: signal.sent_at, default=None)


def _of_table(table: str) -> Mapping[str, Any]:
    """The members that name the table.

    Debezium takes a name as a regular expression for whole names, and as the name itself if no table that it knows
    matches. A new table is unknown to it. So a name is only quoted if it has other special characters than the dot.
    """
    name = re.escape(table) if _REGULAR_EXPRESSION.search(table) else table
    return {"data-collections": [name], "type": "INCREMENTAL"}
