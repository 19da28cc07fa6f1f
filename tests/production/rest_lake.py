"""Iceberg tables in an object store with a REST catalog: what a worker writes to, and a reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from production.catalog_example import example, secrets
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadataUtil

from headrace_dev import jars
from headrace_dev.demo.compare import data_rows
from headrace_dev.nessie import WAREHOUSE, Nessie
from headrace_dev.object_store import ACCESS_KEY, REGION, SECRET_KEY, ObjectStore
from headrace_dev.vending_catalog import CLIENT, CLIENT_SECRET, VendingCatalog

_CATALOG = "spark.sql.catalog.lake"


@dataclass(frozen=True, slots=True)
class RestLake:
    """The warehouse of ``nessie``, which a worker reaches through ``catalog``; ``name`` is that of an example."""

    name: str
    store: ObjectStore
    nessie: Nessie
    catalog: VendingCatalog

    @property
    def properties(self) -> Mapping[str, str]:
        """The keys of a worker. The storage is not AWS's, and has no credentials but those that somebody issues."""
        credential = secrets(self.store.folder / "secrets", credential=f"{CLIENT}:{CLIENT_SECRET}")
        changes = {
            "warehouse": self.nessie.location,
            f"{_CATALOG}.uri": self.catalog.url,
            f"{_CATALOG}.warehouse": WAREHOUSE,
            f"{_CATALOG}.oauth2-server-uri": self.catalog.token_url,
            f"{_CATALOG}.credential": credential["credential"],
            f"{_CATALOG}.client.region": REGION,
        }
        additions = {
            "headrace.jars.extra": str(jars.folder("lakehouse-aws")),
            f"{_CATALOG}.s3.endpoint": self.store.endpoint,
            f"{_CATALOG}.s3.path-style-access": "true",
        }
        if self.name == "s3-nessie":  # does not ask the catalog for credentials
            keys = {f"{_CATALOG}.s3.access-key-id": ACCESS_KEY, f"{_CATALOG}.s3.secret-access-key": SECRET_KEY}
            additions |= keys
        return example(self.name, changes, additions)

    def rows(self, namespace: str, name: str) -> Sequence[dict[str, Any]]:
        """The data columns of every row of a table; none while it does not exist."""
        table = self.table(namespace, name)
        return [] if table is None else data_rows(table)

    def table(self, namespace: str, name: str) -> StaticTable | None:
        """The state of a table that a reader sees now; None while it does not exist."""
        found = self.nessie.load(namespace, name)
        if found is None:
            return None
        metadata = TableMetadataUtil.parse_obj(found["metadata"])
        files = load_file_io(dict(self.store.reader_settings()))
        return StaticTable((namespace, name), metadata, found["metadata-location"], files, NoopCatalog("nessie"))
