"""Try a catalog with a table of its own: create it, write and delete a row, and drop it again.

Tests: ``tests/contracts/test_lake_trials.py``.
"""

from __future__ import annotations

import uuid

import pyarrow as pa

from headrace.core.doctor.lake import LakeTrial
from headrace.core.model.errors import EngineFailed, HeadraceError
from headrace_connectors.lakehouse.table_format import TableFormat, TablePath
from headrace_connectors.lakehouse.table_session import TableSession

NAME = "headrace_doctor_"
"""The beginning of the table's name. The rest differs each time, so that no table of anybody else is touched."""
_SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("note", pa.string())])


def trial_path(namespace: str) -> TablePath:
    return TablePath(namespace, f"{NAME}{uuid.uuid4().hex[:12]}")


def try_out(session: TableSession, table_format: TableFormat, path: TablePath) -> LakeTrial:
    """Return how far it went. The table is removed, also after an error. Raises EngineFailed if Spark ends."""
    table = table_format.sql_name(path)
    version: int | None = None
    removal = failed_step = cause = ""
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
        if [row.id for row in session.rows(f"SELECT id FROM {table}")] != [2]:
            failed_step, cause = step, "the rows are not those that were written"
        version = table_format.format_version(session, path)
    except EngineFailed:
        raise
    except HeadraceError as error:
        failed_step, cause = step, str(error).replace("\n", " ")
    finally:
        try:
            table_format.remove(session, path, namespace=new_namespace)
        except HeadraceError:
            removal = table_format.removal(path)
    return LakeTrial(table, failed_step, cause, version, removal)
