"""Iceberg tables in an object store with a JDBC catalog in PostgreSQL: what a worker writes to, and a reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from production.catalog_example import example, secrets
from pyiceberg.table import StaticTable

from headrace_dev import jars
from headrace_dev.demo.compare import data_rows
from headrace_dev.object_store import ACCESS_KEY, REGION, SECRET_KEY, ObjectStore
from headrace_dev.postgres import SUPERUSER, Postgres
from headrace_dev.server import LOOPBACK

_CATALOG = "spark.sql.catalog.lake"


class ObjectLake:
    """A warehouse in the bucket of ``store``; the catalog is a database of its own."""

    def __init__(self, store: ObjectStore, postgres: Postgres, database: str) -> None:
        self.store = store
        self._postgres = postgres
        self._database = database
        postgres.create_database(database)

    @property
    def properties(self) -> Mapping[str, str]:
        """The keys of a worker: the example ``s3-jdbc``."""
        warehouse = f"s3://{self.store.bucket}/{self._database}"
        [driver] = jars.unpacked("debezium-postgres").glob("*/postgresql-*.jar")  # of JDBC
        database = secrets(self.store.folder / "secrets", password="unused")
        keys = secrets(self.store.folder / "secrets", id=ACCESS_KEY, key=SECRET_KEY)
        changes = {
            "warehouse": warehouse,
            "headrace.jars.extra": f"{jars.folder('lakehouse-aws')},{driver}",
            f"{_CATALOG}.uri": f"jdbc:postgresql://{LOOPBACK}:{self._postgres.port}/{self._database}",
            f"{_CATALOG}.jdbc.user": SUPERUSER,
            f"{_CATALOG}.jdbc.password": database["password"],
            f"{_CATALOG}.s3.endpoint": self.store.endpoint,
            f"{_CATALOG}.s3.access-key-id": keys["id"],
            f"{_CATALOG}.s3.secret-access-key": keys["key"],
            f"{_CATALOG}.client.region": REGION,
        }
        return example("s3-jdbc", changes, {})

    def rows(self, namespace: str, name: str) -> Sequence[dict[str, Any]]:
        """The data columns of every row of a table; none while it does not exist."""
        table = self.table(namespace, name)
        return [] if table is None else data_rows(table)

    def table(self, namespace: str, name: str) -> StaticTable | None:
        """The state of a table that a reader sees now; None while it does not exist."""
        with self._postgres.connect(self._database) as connection:
            if connection.execute("SELECT to_regclass('iceberg_tables')").fetchone() == (None,):
                return None
            found = connection.execute(
                "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = %s AND table_name = %s",
                (namespace, name),
            ).fetchone()
        return None if found is None else StaticTable.from_metadata(found[0], self.store.reader_settings())
