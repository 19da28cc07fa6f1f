"""Each example of ``config/catalogs`` is a configuration of a worker, and names classes that its jars contain."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path

import pytest

from headrace_app.command import worker_config
from headrace_connectors.lakehouse.spark_settings import settings
from headrace_dev.jars import resolve

EXAMPLES = Path(__file__).parents[3] / "config" / "catalogs"
CATALOG = "spark.sql.catalog.lake"
CATALOG_CLASSES = {
    "rest": "org.apache.iceberg.rest.RESTCatalog",
    "jdbc": "org.apache.iceberg.jdbc.JdbcCatalog",
    "glue": "org.apache.iceberg.aws.glue.GlueCatalog",
    "hive": "org.apache.iceberg.hive.HiveCatalog",
    "hadoop": "org.apache.iceberg.hadoop.HadoopCatalog",
}


@cache
def classes() -> frozenset[str]:
    """Return the names of all classes in the jars of the table formats."""
    found = set()
    for jar in resolve("lakehouse"):
        with zipfile.ZipFile(jar) as archive:
            found |= {name.removesuffix(".class").replace("/", ".") for name in archive.namelist()}
    return frozenset(found)


@pytest.mark.parametrize("name", sorted(each.stem for each in EXAMPLES.iterdir()))
def test_an_example_is_a_configuration_of_a_worker(tmp_path: Path, name: str) -> None:
    """Only the folders of the Secret and of additional jars differ from the file."""
    (tmp_path / "jars" / "hadoop-aws").mkdir(parents=True)
    (tmp_path / "jars" / "hadoop-aws" / "hadoop-aws.jar").touch()
    for secret in ("catalog", "s3"):
        lines = ("credential=id:secret", "password=secret", "id=key", "key=secret")
        (tmp_path / f"{secret}.properties").write_text("\n".join(lines))
    for jar in ("postgresql", "iceberg-gcp-bundle", "iceberg-azure-bundle"):
        (tmp_path / "jars" / f"{jar}.jar").touch()
    text = (EXAMPLES / f"{name}.properties").read_text()
    file = tmp_path / "worker.properties"
    file.write_text(text.replace("/secrets", str(tmp_path)).replace("=/jars", f"={tmp_path}/jars"))
    config = worker_config(file, distributed=True)
    spark = settings(
        config.lake.warehouse, config.spark_properties(), resolve("lakehouse"), None, config.engine.extra_jars
    )
    assert spark[CATALOG] == "org.apache.iceberg.spark.SparkCatalog"
    assert "${" not in "".join(value for key, value in spark.items() if key.startswith(CATALOG))
    for wanted in (CATALOG_CLASSES[spark[f"{CATALOG}.type"]], spark.get(f"{CATALOG}.io-impl")):
        assert wanted is None or wanted in classes()
    unused = name == "s3-delta"
    assert spark[f"{CATALOG}.warehouse"] in ("lake", config.lake.warehouse) or unused
