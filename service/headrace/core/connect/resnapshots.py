"""The resnapshots of a connector's tables: what was requested, and how far each one is.

The config topic has the requests (``headrace-resnapshots-<n>``), as it has the paused tables: the leader writes them,
so a table has at most one that is open. The status topic has the newest progress and the result
(``status-resnapshot-<table>:<n>``), which the worker writes that runs the resnapshot. Both outlive every worker. The
signal itself is stored in its channel (``core/resnapshot/signals.py``), so a worker that continues finds it there.

Tests: ``tests/unit/core/connect/test_resnapshots.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from headrace.core.connect.stored_members import seconds_of, text_of
from headrace.core.model.instants import iso_text


class ResnapshotState(StrEnum):
    """WAITING: for its turn, or for the connector's task to run. READING: the source connector reads, and the sink
    applies the rows. COMPARING: with the source, row by row. The others are results."""

    WAITING = "WAITING"
    READING = "READING"
    COMPARING = "COMPARING"
    EQUAL = "EQUAL"
    DIFFERS = "DIFFERS"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"

    @property
    def is_open(self) -> bool:
        return self in (ResnapshotState.WAITING, ResnapshotState.READING, ResnapshotState.COMPARING)


@dataclass(frozen=True, slots=True)
class ResnapshotRequest:
    """A request to fill a lake table again from ``source_table`` (``schema.table``), whose rows are in ``topic``.

    ``requested`` is in seconds since the epoch.
    """

    id: str
    source_table: str
    topic: str
    requested: float
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class ResnapshotProgress:
    """How far the resnapshot of the request ``request`` is. Times are in seconds since the epoch.

    ``rows`` of ``total`` (0: unknown) are in the lake table; ``left`` records of the topic are to be applied.
    ``signal`` is the id of the signal, and ``is_read`` whether the source connector has begun to read for it.
    ``differing`` rows differ at the end, after ``repaired`` ones were written again; ``not_compared`` are the columns
    whose cells the connector's transforms make.
    """

    request: str
    state: ResnapshotState
    updated: float
    step: str = ""
    rows: int = 0
    total: int = 0
    chunk_size: int = 0
    left: int = 0
    estimated_end: float | None = None
    waits_for: str = ""
    signal: str = ""
    is_read: bool = False
    compared: int = 0
    differing: int = 0
    repaired: int = 0
    not_compared: tuple[str, ...] = ()
    error: str = ""

    def document(self) -> Mapping[str, Any]:
        """Return the members of a REST answer: those that are known."""
        document: dict[str, Any] = {"state": self.state, "updated": iso_text(self.updated)}
        texts = {"step": self.step, "waits_for": self.waits_for, "error": self.error}
        document |= {name: text for name, text in texts.items() if text}
        if self.rows or self.total:
            document["rows"] = self.rows
            document["chunks"] = self._chunks(self.rows)
        if self.total:
            document |= {"total_rows": self.total, "total_chunks": self._chunks(self.total)}
        if self.left:
            document["records_left"] = self.left
        if self.estimated_end is not None:
            document["estimated_end"] = iso_text(self.estimated_end)
        if self.compared:
            document["compared_rows"] = self.compared
        if self.state in (ResnapshotState.EQUAL, ResnapshotState.DIFFERS):
            document |= {"differing_rows": self.differing, "repaired_rows": self.repaired}
            document |= {"not_compared": list(self.not_compared)} if self.not_compared else {}
        return document

    def _chunks(self, rows: int) -> int:
        """Return the number of chunks of these rows (``incremental.snapshot.chunk.size``)."""
        return -(-rows // max(self.chunk_size, 1))


Requests = Mapping[str, ResnapshotRequest]
"""The newest request of each lake table."""


def state_of(request: ResnapshotRequest, progress: ResnapshotProgress | None) -> ResnapshotState:
    """Return the state of a request. ``progress`` may be that of an earlier request of the table."""
    if progress is None or progress.request != request.id:
        return ResnapshotState.CANCELLED if request.is_cancelled else ResnapshotState.WAITING
    return progress.state


def result_text(progress: ResnapshotProgress) -> str:
    """Return the result of a resnapshot as a line, without values of cells."""
    text = str(progress.state)
    if progress.state in (ResnapshotState.EQUAL, ResnapshotState.DIFFERS):
        text += f": {progress.compared:,} rows compared, {progress.repaired:,} repaired, {progress.differing:,} differ"
    return f"{text}: {progress.error}" if progress.error else text


def resnapshot_document(
    table: str, request: ResnapshotRequest, progress: ResnapshotProgress | None
) -> Mapping[str, Any]:
    """Return the answer of ``GET /connectors/{name}/tables/{table}/resnapshot``."""
    document: dict[str, Any] = {
        "table": table,
        "source_table": request.source_table,
        "topic": request.topic,
        "requested": iso_text(request.requested),
        "state": state_of(request, progress),
    }
    if progress is not None and progress.request == request.id:
        document |= progress.document()
    elif document["state"].is_open:
        document["waits_for"] = "its turn, and for a running task that reads the topic"
    if request.is_cancelled and document["state"].is_open:
        document["step"] = "is being cancelled"
    return document


def resnapshot_requests(document: Mapping[str, Any]) -> Requests:
    """Return the requests of a stored document. Raises an exception for one that is not usable."""
    return {
        text_of(table): ResnapshotRequest(
            text_of(entry["id"]),
            text_of(entry["source_table"]),
            text_of(entry["topic"]),
            seconds_of(entry["requested"]),
            bool(entry.get("cancelled", False)),
        )
        for table, entry in document["tables"].items()
    }


def resnapshot_requests_document(requests: Requests) -> Mapping[str, Any]:
    return {
        "tables": {
            table: {
                "id": request.id,
                "source_table": request.source_table,
                "topic": request.topic,
                "requested": iso_text(request.requested),
                **({"cancelled": True} if request.is_cancelled else {}),
            }
            for table, request in requests.items()
        }
    }


_TEXTS = ("step", "waits_for", "signal", "error")
_NUMBERS = ("rows", "total", "chunk_size", "left", "compared", "differing", "repaired")


def progress_document(progress: ResnapshotProgress) -> Mapping[str, Any]:
    """Return the progress as it is stored; what is empty is omitted."""
    optional = {name: value for name in (*_TEXTS, *_NUMBERS, "is_read") if (value := getattr(progress, name))}
    if progress.estimated_end is not None:
        optional["estimated_end"] = iso_text(progress.estimated_end)
    if progress.not_compared:
        optional["not_compared"] = list(progress.not_compared)
    return {
        "request": progress.request,
        "state": progress.state,
        "updated": iso_text(progress.updated),
        **optional,
    }


def resnapshot_progress(document: Mapping[str, Any]) -> ResnapshotProgress:
    """Return the progress in a stored document. Raises an exception for one that is not usable."""
    progress = ResnapshotProgress(
        text_of(document["request"]), ResnapshotState(document["state"]), seconds_of(document["updated"])
    )
    values: dict[str, Any] = {name: text_of(document[name]) for name in _TEXTS if name in document}
    values |= {name: int(document[name]) for name in _NUMBERS if name in document}
    if "estimated_end" in document:
        values["estimated_end"] = seconds_of(document["estimated_end"])
    values["not_compared"] = tuple(map(text_of, document.get("not_compared", ())))
    return replace(progress, is_read=bool(document.get("is_read", False)), **values)
