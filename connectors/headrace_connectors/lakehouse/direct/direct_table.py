"""The Java side of direct commits (``DirectTable.java``), and reading columns of a table's files.

Tests: ``tests/contracts/test_direct_commits.py``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from headrace.core.model.errors import DamagedFile, Fatal
from headrace_connectors.lakehouse import deletion_vectors
from headrace_connectors.lakehouse.direct.data_file import ParquetFile
from headrace_connectors.lakehouse.direct.partitions import Partition
from headrace_connectors.lakehouse.failures import DAMAGED, MISSING, Damage, lost_connection, without_values
from headrace_connectors.lakehouse.iceberg_table import IcebergName, IcebergTable, Snapshot
from headrace_connectors.lakehouse.table_session import TableSession, java_member

_JAVA_CLASS = "headrace.DirectTable"
_MOST_PASSED = 64 * 1024
"""The bytes of a request that py4j passes, as a text: for a megabyte it needs a sixth of a commit's CPU time."""
_LOCAL = ("/", "file:/")
"""Files of this machine are mapped into memory; others are read by Iceberg."""


@dataclass(frozen=True, slots=True)
class VectorFile:
    """The location of a data file's deletion vector, which identifies it, and the number of rows that it deletes."""

    path: str
    offset: int
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file of the newest snapshot. ``sequence`` is the number of the snapshot that added its rows."""

    path: str
    partition: Partition
    size: int
    rows: int
    first_row_id: int
    sequence: int
    vector: VectorFile | None

    def lineage(self, ids: pa.ChunkedArray, numbers: pa.ChunkedArray, first: int = 0) -> tuple[Any, Any]:
        """Return the ids of the rows from position ``first`` on, and the numbers of the snapshots that changed them.

        ``ids`` and ``numbers`` are those that the file contains. Other rows have null in them.
        """
        places = pa.array(self.first_row_id + first + np.arange(len(ids)))
        return pc.coalesce(ids, places), pc.fill_null(numbers, self.sequence)


@dataclass(frozen=True, slots=True)
class TableState:
    """The files of the newest snapshot. ``refused`` is why direct commits are impossible, or None.

    ``schema`` and ``partitioning`` (the fields of the partition spec) are Iceberg's JSON, ``metrics`` are the metrics
    modes by column, ``compression`` is that of Parquet files. ``manifests`` counts the files that list these.
    """

    refused: str | None
    schema: Mapping[str, Any]
    partitioning: Sequence[Mapping[str, Any]]
    metrics: Mapping[str, str]
    compression: str
    manifests: int
    files: Sequence[StoredFile]

    @property
    def names(self) -> Mapping[int, str]:
        """The columns by their ids."""
        return {column["id"]: column["name"] for column in self.schema["fields"]}


@dataclass(frozen=True, slots=True)
class NewFile:
    """Rows of one partition."""

    partition: Partition
    rows: ParquetFile

    def header(self) -> Mapping[str, Any]:
        """Return what a request says of the file."""
        columns = {}
        for field_id, metrics in self.rows.columns.items():
            columns[field_id] = {
                name: value.hex() if isinstance(value, bytes) else value
                for name, value in asdict(metrics).items()
                if value is not None
            }
        return {
            "partition": self.partition,
            "size": self.rows.size,
            "row-groups": list(self.rows.row_groups),
            **({} if self.rows.path is None else {"file": str(self.rows.path)}),
            "rows": self.rows.rows,
            "columns": columns,
        }


@dataclass(frozen=True, slots=True)
class NewVector:
    """The complete vector of a data file (``path``), and the number of rows that it deletes."""

    path: str
    rows: int
    content: bytes


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A commit's snapshot, with its data files and its vectors in the order of the commit."""

    snapshot: Snapshot
    files: Sequence[StoredFile]
    vectors: Sequence[VectorFile]


class Unavailable(Exception):
    """Direct commits are impossible in this JVM. The message says why."""


class DirectTable:
    """An Iceberg table. All calls raise the errors of ``failures``."""

    def __init__(self, session: TableSession, name: IcebergName) -> None:
        """Raise Unavailable if the class of Java does not fit the version of Iceberg."""
        self._name = name
        self._session = session
        self._calling = session.calling
        self._snapshot: int | None = None  # of the last ``load`` or ``commit``
        jvm, _ = session.java
        try:
            with self._calling():
                self._java = java_member(jvm, _JAVA_CLASS)()
        except Fatal as error:
            raise Unavailable(f"this version of Iceberg has other classes ({error})") from error

    def is_current(self, loaded: IcebergTable | None = None) -> bool:
        """Load the table, and return whether its snapshot and schema are those of the last ``load`` or ``commit``.

        ``loaded`` is the table, if this thread has loaded it just before.
        """
        self._table = IcebergTable(self._session, self._name) if loaded is None else loaded
        with self._calling():
            # Compared here as well: the answer to a commit may have been lost.
            return bool(self._java.open(self._table.java) == self._snapshot)

    def load(self, *, with_files: bool = True) -> TableState:
        """Read the snapshot that ``is_current`` has loaded; without its files for commits that only add some."""
        with self._calling():
            state = json.loads(self._java.load(with_files))
        self._snapshot = state["snapshot"]
        files = [
            StoredFile(
                file["path"],
                tuple(file["partition"]),
                file["size"],
                file["rows"],
                file["first-row-id"],
                file["sequence"],
                VectorFile(**file["vector"]) if "vector" in file else None,
            )
            for file in state["files"]
        ]
        names = ("refused", "schema", "partitioning", "metrics", "compression", "manifests")
        return TableState(**{name: state[name] for name in names}, files=files)

    def commit(
        self,
        files: Sequence[NewFile],
        vectors: Sequence[NewVector],
        properties: Mapping[str, str],
        removed: Sequence[str] = (),
        *,
        equal: bool = False,
    ) -> NewSnapshot:
        """Add rows and replace vectors in one snapshot, whose parent is the one of the last ``load`` or ``commit``.

        Call ``is_current`` before.

        ``removed`` are the paths of files that the new ones replace; with ``equal``, by the same rows. Raises Conflict
        if the table has another snapshot, if its schema has changed, or if the result is unknown.
        """
        header = json.dumps(
            {
                "properties": dict(properties),
                "data": [file.header() for file in files],
                "removed": list(removed),
                "equal": equal,
                "vectors": [
                    {"file": vector.path, "rows": vector.rows, "size": len(vector.content)} for vector in vectors
                ],
            }
        ).encode()
        contents = [*(file.rows.content for file in files), *(vector.content for vector in vectors)]
        request = b"".join([len(header).to_bytes(4, "big"), header, *contents])
        result = json.loads(self._send(request))
        del self._table  # as in Java, so that no table keeps its metadata until its next batch
        snapshot = Snapshot(result["snapshot"], self._snapshot or None, result["sequence"], result["summary"])
        self._snapshot = snapshot.id
        stored, row_id = [], result.get("first-row-id", 0)
        for file, path in zip(files, result.get("files", ()), strict=True):
            size, rows = file.rows.size, file.rows.rows
            stored.append(StoredFile(path, file.partition, size, rows, row_id, snapshot.sequence, None))
            row_id += rows
        places = [VectorFile(**place) for place in result.get("vectors", ())]
        return NewSnapshot(snapshot, stored, places)

    def _send(self, request: bytes) -> str:
        """Pass a request in one call, because py4j takes a tenth of a millisecond for each; a large one in a file."""
        with self._calling():
            if len(request) <= _MOST_PASSED:
                return str(self._java.commit(request))
            with NamedTemporaryFile(dir=self._session.folder, prefix="headrace_commit_") as file:
                file.write(request)
                file.flush()
                return str(self._java.commitFile(file.name))

    def read_vector(self, vector: VectorFile | None) -> BitMap64:
        """Return the rows that a vector deletes."""
        if vector is None:
            return BitMap64()
        with _damage_of(vector.path, self._name):
            content = self._table.read_bytes(vector.path, vector.offset, vector.size)
            return BitMap64(deletion_vectors.decode(content).tolist())

    @contextmanager
    def open(self, file: StoredFile, metadata: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
        """Open a data file. ``metadata`` is its footer, if that is known."""
        with self._calling(), _damage_of(file.path, self._name):
            source = (
                pa.memory_map("/" + file.path.removeprefix("file:").lstrip("/"))
                if file.path.startswith(_LOCAL)
                else pa.PythonFile(_JavaFile(self._table.loaded.io().newInputFile(file.path).newStream(), file.size))
            )
            with closing(source), pq.ParquetFile(source, metadata=metadata) as parquet:
                yield parquet


@contextmanager
def _damage_of(path: str, table: IcebergName) -> Iterator[None]:
    """Raise errors of PyArrow, or of a vector's checksum, as DamagedFile."""
    try:
        yield
    except (OSError, ValueError) as error:
        if lost_connection(error):  # to Spark's JVM, which reads remote files
            raise
        fault = MISSING if isinstance(error, FileNotFoundError) else DAMAGED
        file = without_values(path)
        raise DamagedFile(Damage(file, fault).message(str(table), type(error).__name__), file) from error


class _JavaFile(io.RawIOBase):
    """A file of any storage, read by Iceberg with the catalog's credentials."""

    def __init__(self, stream: Any, size: int) -> None:
        self._stream = stream
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        wanted = self._size - self._position if size < 0 else min(size, self._size - self._position)
        self._stream.seek(self._position)
        content = bytes(self._stream.readNBytes(wanted))
        self._position += len(content)
        return content

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
