"""Try a catalog with a table of its own: create it, write and delete a row, read it, and drop it again.

What only one format depends on is tried by the format: ``iceberg_trial.py``, and ``delta.py``.

Tests: ``tests/contracts/test_lake_trials.py``, ``tests/production/test_doctor_on_s3.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping

import pyarrow as pa

from headrace.core.doctor.lake import FormatTrial, LakeTrial
from headrace.core.doctor.readers import NEWEST_VERSION, version_for
from headrace.core.doctor.versions import JAVA, SPARK, Software
from headrace.core.model.errors import EngineFailed, HeadraceError
from headrace_connectors.lakehouse.table_format import TableFormat, TablePath
from headrace_connectors.lakehouse.table_session import TableSession
from headrace_connectors.lakehouse.trial_readers import rows_by_reader

NAME = "headrace_doctor_"
"""The beginning of the table's name. The rest differs each time, so that no table of anybody else is touched."""
_SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("note", pa.string())])
_LEFT = [2]
"""The keys of the rows that the table has in the end."""


def trial_path(namespace: str) -> TablePath:
    return TablePath(namespace, f"{NAME}{uuid.uuid4().hex[:12]}")


def try_out(
    session: TableSession, table_format: TableFormat, path: TablePath, readers: Collection[str] = ()
) -> LakeTrial:
    """Return how far it went. The table is removed, also after an error. Raises EngineFailed if Spark ends.

    ``readers`` are those of ``lake.readers``. The ones that are installed beside the worker read the table as well.
    """
    table = table_format.sql_name(path)
    other = TablePath(path.namespace, f"{path.name}_other")
    version: int | None = None
    examined = FormatTrial()
    read: Mapping[str, str] = {}
    tables: Mapping[str, int] = {}
    failed_step = cause = ""
    software = _software(session)
    new_namespace = not table_format.has_namespace(session, path.namespace)
    step = "create the namespace"
    try:
        session.run(*table_format.create_namespace(path.namespace))
        step = "create a table"
        session.run(*table_format.create(path, _SCHEMA, {}))
        step = "commit a row"
        session.run(f"INSERT INTO {table} VALUES (1, 'headrace doctor'), (2, 'headrace doctor')")
        step = "delete a row"
        session.run(f"DELETE FROM {table} WHERE id = 1")
        step = "read the rows"
        if [row.id for row in session.rows(f"SELECT id FROM {table}")] != _LEFT:
            failed_step, cause = step, "the rows are not those that were written"
        version = table_format.format_version(session, path)
        if version_for(readers) != NEWEST_VERSION:
            step = "load the existing tables"
            found = table_format.versions(session, path.namespace)
            tables = {name: number for name, number in found.items() if name != path.name}
        read = rows_by_reader(readers, table_format.metadata_file(session, path), _LEFT)
        step = "try transactions and conditional writes"
        examined = table_format.examine(session, path, lambda: _create(session, table_format, other))
    except EngineFailed:
        raise
    except HeadraceError as error:
        failed_step, cause = step, str(error).replace("\n", " ")
    finally:
        left = [_remove(session, table_format, other, False), _remove(session, table_format, path, new_namespace)]
    return LakeTrial(
        table,
        failed_step,
        cause,
        version,
        removal=" ".join(filter(None, left)),
        software=[*software, *examined.software],
        examined=examined,
        readers=read,
        tables=tables,
    )


def _create(session: TableSession, table_format: TableFormat, path: TablePath) -> TablePath:
    session.run(*table_format.create(path, _SCHEMA, {}))
    return path


def _remove(session: TableSession, table_format: TableFormat, path: TablePath, namespace: bool) -> str:
    """Remove a table, if it exists. Return the statement with which an operator does it, if that is refused."""
    try:
        table_format.remove(session, path, namespace=namespace)
    except HeadraceError:
        return table_format.removal(path)
    return ""


def _software(session: TableSession) -> list[Software]:
    jvm, spark = session.java
    with session.calling():
        java = str(jvm.java.lang.System.getProperty("java.version"))
        return [Software(JAVA, java), Software(SPARK, str(spark.version()))]
