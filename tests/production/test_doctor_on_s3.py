"""``headrace doctor`` tries a lake in an object store: transactions of a REST catalog, and files that exist once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.servers.unconditional_store import UnconditionalStore

from headrace.core.doctor.findings import Severity
from headrace.core.doctor.lake import LakeTrial, Transactions, findings
from headrace.ports import TableOptions
from headrace_connectors.lakehouse import SparkLakehouse
from headrace_dev import jars
from headrace_dev.nessie import WAREHOUSE, Nessie
from headrace_dev.object_store import ACCESS_KEY, REGION, SECRET_KEY, ObjectStore
from headrace_dev.splitting_catalog import SplittingCatalog
from headrace_dev.worker import SHORT_LIVED

pytestmark = [pytest.mark.spark, pytest.mark.production, pytest.mark.long]

NAMESPACE = "shop"


@contextmanager
def lakehouse(warehouse: str, spark: Mapping[str, str], bundle: str) -> Iterator[SparkLakehouse]:
    """A lakehouse with a small JVM, as the command has it, and the jars of the formats and of ``bundle``."""
    small = {**SHORT_LIVED, "spark.master": "local[2]", "spark.driver.memory": "1g"}
    used = SparkLakehouse(warehouse, {**small, **spark}, [*jars.resolve("lakehouse"), *jars.resolve(bundle)])
    try:
        yield used
    finally:
        used.close()


def rules(trial: LakeTrial, version: int | None) -> list[tuple[str, Severity]]:
    return [(finding.rule, finding.severity) for finding in findings(trial, version, [])]


@pytest.fixture
def splitting(nessie: Nessie) -> Iterator[SplittingCatalog]:
    """The same catalog, without such transactions of its own."""
    catalog = SplittingCatalog(nessie.url)
    catalog.start()
    yield catalog
    catalog.stop()


def test_transactions_of_two_tables(store: ObjectStore, nessie: Nessie, splitting: SplittingCatalog) -> None:
    """An atomic catalog is silent, and one that splits transactions is an information. No table is left."""
    spark = {}
    for name, url in (("lake", nessie.url), ("split", splitting.url)):
        catalog = f"spark.sql.catalog.{name}"
        spark |= {
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "rest",
            f"{catalog}.uri": url,
            f"{catalog}.warehouse": WAREHOUSE,
            **store.catalog_settings(catalog),
        }
    with lakehouse(nessie.location, spark, "lakehouse-aws") as tried:
        found = {
            name: tried.try_out(NAMESPACE, TableOptions(catalog=name, format_version=2), ["pyiceberg"])
            for name in ("lake", "split")
        }
    assert {name: trial.failed_step for name, trial in found.items()} == {"lake": "", "split": ""}
    assert {name: trial.examined.transactions for name, trial in found.items()} == {
        "lake": Transactions.ATOMIC,
        "split": Transactions.SPLIT,
    }
    assert rules(found["lake"], 2) == []
    assert rules(found["split"], 2) == [("lake-transactions-split", Severity.INFORMATION)]
    assert found["lake"].readers == {"pyiceberg": ""}, "PyIceberg reads the object store with the catalog's settings"
    assert [trial.removal for trial in found.values()] == ["", ""]
    assert nessie.tables(NAMESPACE) == []


def test_a_catalog_that_makes_other_tables_and_drops_none(
    store: ObjectStore, nessie: Nessie, splitting: SplittingCatalog
) -> None:
    """Nessie makes tables of version 2. The names of the tables that are left are in the remedy."""
    catalog = "spark.sql.catalog.lake"
    spark = {f"{catalog}.type": "rest", f"{catalog}.uri": splitting.url, f"{catalog}.warehouse": WAREHOUSE}
    splitting.refuses_drops = True
    with lakehouse(nessie.location, {**spark, **store.catalog_settings(catalog)}, "lakehouse-aws") as tried:
        trial = tried.try_out(NAMESPACE, TableOptions(format_version=3))
    assert trial.failed_step == ""
    version, left, transactions = findings(trial, 3, [])
    assert (version.rule, left.rule) == ("lake-format-version", "lake-table-left")
    assert transactions.rule == "lake-transactions-split"
    tables = nessie.tables(NAMESPACE)
    assert len(tables) == 2
    assert all(f"DROP TABLE `lake`.`{NAMESPACE}`.`{table}` PURGE;" in left.remedy for table in tables)


@pytest.mark.parametrize("conditional", [True, False])
def test_entries_of_the_log_of_delta(tmp_path: Path, conditional: bool) -> None:
    """A store that ignores ``If-None-Match`` is an error."""
    store = ObjectStore(tmp_path)
    store.start()
    unconditional = UnconditionalStore(store)
    s3a = "spark.hadoop.fs.s3a"
    spark = {
        "spark.sql.catalog.lake.warehouse": str(tmp_path / "no-tables"),
        f"{s3a}.endpoint": store.endpoint if conditional else unconditional.endpoint,
        f"{s3a}.endpoint.region": REGION,
        f"{s3a}.path.style.access": "true",
        f"{s3a}.access.key": ACCESS_KEY,
        f"{s3a}.secret.key": SECRET_KEY,
    }
    try:
        with lakehouse(f"s3a://{store.bucket}/delta", spark, "lakehouse-delta-aws") as tried:
            trial = tried.try_out(NAMESPACE, TableOptions(format="delta"))
    finally:
        unconditional.close()
        store.stop()
    assert (trial.failed_step, trial.cause, trial.examined.creates_once) == ("", "", conditional)
    assert rules(trial, None) == ([] if conditional else [("lake-files-replaced", Severity.ERROR)])
    assert unconditional.ignored == (0 if conditional else 1)
    assert store.objects("delta/**/*") == set()
