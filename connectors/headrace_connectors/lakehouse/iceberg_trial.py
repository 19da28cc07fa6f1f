"""Try whether a REST catalog commits a transaction of two tables completely or not at all.

Iceberg's REST protocol has ``POST /v1/{prefix}/transactions/commit``, which several catalogs implement by one commit
after the other. A conflict in the second table shows it: the first one is changed all the same.

Tests: ``tests/production/test_doctor_on_s3.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.doctor.lake import Transactions
from headrace.core.model.errors import EngineFailed, HeadraceError
from headrace_connectors.lakehouse.failures import Conflict
from headrace_connectors.lakehouse.iceberg_table import IcebergName, IcebergTable
from headrace_connectors.lakehouse.table_session import TableSession, java_member

_REST = "org.apache.iceberg.rest.RESTCatalog"
_MARK = "headrace.doctor"


def commit_two_tables(
    session: TableSession, name: IcebergName, create_other: Callable[[], IcebergName]
) -> Transactions:
    """Return what the catalog did with a transaction that changes another table, and ``name`` from an old snapshot.

    ``name`` is a table with a snapshot, and gets another one. The other table is created only in a REST catalog.
    """
    jvm, spark = session.java
    with session.calling():
        util = java_member(jvm, "org.apache.iceberg.spark.Spark3Util")
        catalog = util.catalogAndIdentifier(spark, str(name)).catalog().icebergCatalog()
        if str(catalog.getClass().getName()) != _REST:
            return Transactions.UNKNOWN
    other = create_other()
    table = IcebergTable(session, name)
    loaded, loaded_other = table.loaded, IcebergTable(session, other).loaded
    with session.calling():
        metadata = java_member(jvm, "org.apache.iceberg.TableMetadata")
        old, first = loaded.operations().current(), loaded_other.operations().current()
        properties = jvm.java.util.HashMap()
        properties.put(_MARK, "true")
        # The reference to the newest snapshot keeps its snapshot, and so requires that it has not moved since.
        branch = java_member(jvm, "org.apache.iceberg.SnapshotRef.branchBuilder")(old.currentSnapshot().snapshotId())
        changes = (
            (other, first, metadata.buildFrom(first).setProperties(properties).build()),
            (name, old, metadata.buildFrom(old).setRef("main", branch.minSnapshotsToKeep(2).build()).build()),
        )
        commits = jvm.java.util.ArrayList()
        for each, before, after in changes:
            identifier = util.identifierToTableIdentifier(util.catalogAndIdentifier(spark, str(each)).identifier())
            commits.add(java_member(jvm, "org.apache.iceberg.catalog.TableCommit.create")(identifier, before, after))
    table.append_nothing({})
    try:
        with session.calling():
            catalog.commitTransaction(commits)
    except Conflict:
        refused = Transactions.ATOMIC
    except EngineFailed:
        raise
    except HeadraceError:  # no such endpoint, or it is not allowed
        refused = Transactions.UNKNOWN
    else:
        return Transactions.UNCHECKED
    changed = _MARK in IcebergTable(session, other).properties()
    return Transactions.SPLIT if changed else refused
