"""Appends to the ledger of a table without a look at the ledger's files.

Iceberg's own append reads the table again after its commit, and the list of its manifests. For the few rows of a batch
it costs as much as the commit of the batch's table.

Tests: ``tests/contracts/test_ledger_appends.py``.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from headrace_connectors.lakehouse.direct.data_file import write_file
from headrace_connectors.lakehouse.direct.direct_table import DirectTable, NewFile, TableState
from headrace_connectors.lakehouse.direct.partitions import divide
from headrace_connectors.lakehouse.failures import Conflict
from headrace_connectors.lakehouse.iceberg_table import IcebergName, IcebergTable
from headrace_connectors.lakehouse.table_format import Head
from headrace_connectors.lakehouse.table_session import TableSession

_MOST_MANIFESTS = 100
"""With more, Iceberg's append merges them into one (``commit.manifest.min-count-to-merge``)."""
_ATTEMPTS = 5


class LedgerAppends:
    """The ledger called ``name``. One thread at a time calls ``append``."""

    _state: TableState
    """The snapshot that ``_table`` knows, once it knows one."""

    def __init__(self, session: TableSession, name: IcebergName) -> None:
        """Raise Unavailable if the class of Java does not fit the version of Iceberg."""
        self._session = session
        self._name = name
        self._table = DirectTable(session, name)

    def append(self, rows: pa.Table) -> Head:
        """Add rows in a durable commit, and return it. After an unknown commit rows are added again, and count once.

        Raises Conflict if other writers have been faster again and again.
        """
        for attempt in Retrying(
            retry=retry_if_exception_type(Conflict), stop=stop_after_attempt(_ATTEMPTS), reraise=True
        ):
            with attempt:
                head = self._append(rows)
        return head

    def _append(self, rows: pa.Table) -> Head:
        loaded = IcebergTable(self._session, self._name)
        if not self._table.is_current(loaded):
            self._state = self._table.load(with_files=False)
        state = self._state
        if state.refused is not None or state.manifests >= _MOST_MANIFESTS:
            return append_by_iceberg(loaded, rows)

        files = [
            NewFile(partition, write_file(rows.take(pa.array(part)), state.schema, {}, state.compression))
            for partition, part in divide(rows, state.partitioning, state.names)
        ]
        snapshot = self._table.commit(files, [], {}).snapshot
        self._state = replace(state, manifests=state.manifests + 1)
        return Head(snapshot.sequence, str(snapshot.id))


def append_by_iceberg(ledger: IcebergTable, rows: pa.Table) -> Head:
    """Append rows, which belong to one day because they are recorded at the same time, by Iceberg's own operation."""
    day = pc.strftime(rows["recorded_at"][0], "%Y-%m-%d").as_py()
    return ledger.append(rows, f"recorded_at_day={day}")
