"""Read a table with the readers of ``lake.readers`` that are installed beside the worker: PyIceberg and DuckDB.

DuckDB reads files of this machine only, and only if its extension ``iceberg`` is installed: nothing is downloaded.

Tests: ``tests/contracts/test_lake_trials.py``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from headrace_connectors.lakehouse.table_format import MetadataFile


class _NotInstalled(Exception):
    """A part of the reader that is not there, so that nothing can be said of it."""


def rows_by_reader(readers: Collection[str], file: MetadataFile | None, expected: Sequence[int]) -> Mapping[str, str]:
    """Return what each reader that could be tried did wrong, empty if it read the ``expected`` keys.

    ``file`` is the newest metadata of the table, None in another format than Iceberg's, which nobody reads here.
    """
    found: dict[str, str] = {}
    if file is None:
        return found
    for name in readers:
        if name not in _READERS or find_spec(name) is None:
            continue
        try:
            keys = sorted(_READERS[name](file))
        except _NotInstalled:
            continue
        except Exception as error:  # of somebody else's library, whose errors have no common class
            found[name] = f"it fails with {type(error).__name__}"
        else:
            wrong = "it returns deleted rows" if len(keys) > len(expected) else "it does not return all rows"
            found[name] = "" if keys == list(expected) else wrong
    return found


def _by_pyiceberg(file: MetadataFile) -> list[int]:
    table = importlib.import_module("pyiceberg.table").StaticTable.from_metadata(file.location, dict(file.properties))
    keys: list[int] = table.scan().to_arrow()["id"].to_pylist()
    return keys


def _by_duckdb(file: MetadataFile) -> list[int]:
    duckdb: Any = importlib.import_module("duckdb")
    address = urlsplit(file.location)
    if address.scheme not in ("", "file"):
        raise _NotInstalled
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        try:
            for extension in ("avro", "iceberg"):
                connection.load_extension(extension)
        except duckdb.Error as error:
            raise _NotInstalled from error
        rows = connection.execute("SELECT id FROM iceberg_scan(?)", [address.path]).fetchall()
    return [key for (key,) in rows]


_READERS: Mapping[str, Callable[[MetadataFile], list[int]]] = {"pyiceberg": _by_pyiceberg, "duckdb": _by_duckdb}
