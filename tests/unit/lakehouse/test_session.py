"""Settings of the Spark session, and the configurations that are refused before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.core.model.errors import ConfigError
from headrace.ports import TableOptions
from headrace_connectors.lakehouse.lakehouse import SparkLakehouse
from headrace_connectors.lakehouse.spark_jars import DELTA_S3_JAR, ICEBERG_JAR, LOCAL_FILES_JAR, PACKAGES
from headrace_connectors.lakehouse.spark_settings import local_cores, settings


def test_the_workers_settings_replace_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's Java options are appended to the default ones."""
    monkeypatch.delenv("HEADRACE_JARS", raising=False)
    chosen = settings("/w", {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-Xss4m"}, [])
    assert chosen["spark.driver.memory"] == "1024m"
    assert chosen["spark.driver.extraJavaOptions"].endswith(
        "log4j2.properties -XX:+UseParallelGC -XX:+ExitOnOutOfMemoryError -XX:CompileThresholdScaling=10 "
        "-XX:MaxMetaspaceSize=384m -XX:MaxDirectMemorySize=256m -XX:ReservedCodeCacheSize=192m -Xss4m"
    )
    assert chosen["spark.sql.catalog.lake.cache-enabled"] == "false"
    assert chosen["spark.jars.packages"] == ",".join(PACKAGES)


def test_a_garbage_collector_of_the_operator_replaces_the_default() -> None:
    """A JVM with options for two collectors does not start."""
    chosen = settings("/w", {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}, [])
    options = chosen["spark.driver.extraJavaOptions"]
    assert options.endswith("-XX:+UseG1GC")
    assert "ParallelGC" not in options


def test_the_order_of_the_sources_of_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's settings come first, then the given jars, then the folder of HEADRACE_JARS, then Ivy."""
    jar = tmp_path / "iceberg.jar"
    jar.touch()
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path))
    assert settings("/w", {})["spark.jars"] == f"{jar},{ICEBERG_JAR}"
    assert settings("/w", {}, [Path("/x.jar")])["spark.jars"] == f"/x.jar,{ICEBERG_JAR}"
    assert settings("/w", {"spark.jars": "/mine.jar"})["spark.jars"] == f"/mine.jar,{ICEBERG_JAR}"
    assert settings("/w", {"spark.jars.packages": "a:b:1"})["spark.jars"] == str(ICEBERG_JAR)


def test_local_files_have_a_class_of_their_own() -> None:
    """The driver has its jar on the class path, because Spark uses local files before it loads other jars."""
    chosen = settings("/w", {"spark.master": "local[2]"})
    assert chosen["spark.driver.extraClassPath"] == str(LOCAL_FILES_JAR)
    assert chosen["spark.hadoop.fs.file.impl"] == "headrace.LocalFiles"
    assert chosen["spark.hadoop.fs.AbstractFileSystem.file.impl"] == "headrace.LocalFiles$Context"
    more = settings("/w", {"spark.driver.extraClassPath": "/more"})
    assert more["spark.driver.extraClassPath"] == f"{LOCAL_FILES_JAR}:/more"


@pytest.mark.parametrize(
    "spark",
    [
        pytest.param({"spark.master": "spark://host:7077"}, id="executors start without it"),
        pytest.param({"spark.hadoop.fs.file.impl": "org.example.Files"}, id="the operator's class"),
        pytest.param({"spark.hadoop.fs.AbstractFileSystem.file.impl": "org.example.Files"}, id="its counterpart"),
    ],
)
def test_other_classes_for_local_files(spark: dict[str, str]) -> None:
    """Spark does not start with a class that it does not find."""
    chosen = settings("/w", spark)
    assert "spark.driver.extraClassPath" not in chosen
    for option in ("spark.hadoop.fs.file.impl", "spark.hadoop.fs.AbstractFileSystem.file.impl"):
        assert chosen.get(option) == spark.get(option)


def test_only_a_local_master_listens_on_loopback() -> None:
    """The driver of a cluster listens on an address that executors reach."""
    assert settings("/w", {"spark.master": "local[2]"})["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in settings("/w", {"spark.master": "spark://cluster:7077"})


def test_executors_in_pods_share_a_secret_and_need_an_image() -> None:
    """Spark makes the secret; without an image it would start, and log an error for each pod that it cannot create."""
    pods = {"spark.master": "k8s://https://cluster"}
    with pytest.raises(ConfigError, match=r"spark\.kubernetes\.container\.image is required") as refused:
        settings("/w", pods)
    assert refused.value.key == "spark.kubernetes.container.image"
    chosen = settings("/w", {**pods, "spark.kubernetes.container.image": "headrace:1"})
    assert (chosen["spark.authenticate"], chosen["spark.network.crypto.enabled"]) == ("true", "true")
    assert "spark.driver.host" not in chosen
    assert "spark.sql.shuffle.partitions" not in chosen


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
@pytest.mark.parametrize(
    ("namespace", "name", "properties"),
    [
        ("../../etc", "items", {}),
        ("lake", "../../etc", {}),
        ("..", "items", {}),
        ("lake", "a/b", {}),
        ("lake", "items", {"write.data.path": "/etc"}),
        ("lake", "items", {"location": "file:///etc"}),
    ],
)
def test_no_table_is_opened_outside_of_the_warehouse(
    tmp_path: Path, table_format: str, namespace: str, name: str, properties: dict[str, str]
) -> None:
    """A configuration from any source is refused before Spark starts."""
    lakehouse = SparkLakehouse(str(tmp_path / "warehouse"), {"spark.master": "no such master"})
    with pytest.raises(ConfigError, match=r"table\.namespace|collection\.name\.format|table\.properties"):
        lakehouse.table(namespace, name, TableOptions(table_format, properties=properties))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4)])
def test_cores_of_a_local_master(master: str, cores: int) -> None:
    """``local_cores`` returns the number of threads of a local master."""
    assert local_cores(master) == cores


def test_the_embedded_catalog_is_refused_on_object_stores() -> None:
    """It relies on atomic renames; other catalogs are accepted there."""
    with pytest.raises(ConfigError, match="atomic renames") as refused:
        settings("s3a://bucket/w", {})
    assert refused.value.key == "spark.sql.catalog.lake.type"
    settings("s3a://bucket/w", {"spark.sql.catalog.lake.type": "rest"})
    assert "spark.sql.catalog.lake.type" not in settings("s3a://b/w", {"spark.sql.catalog.lake.catalog-impl": "x.Y"})


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_delta_creates_entries_of_its_log_conditionally_on_s3(scheme: str) -> None:
    """The operator's own class takes precedence, and other storage needs none."""
    store, rest = f"spark.delta.logStore.{scheme}.impl", {"spark.sql.catalog.lake.type": "rest"}
    chosen = settings(f"{scheme}://bucket/w", rest, [Path("/jars/delta.jar")])
    assert chosen[store] == "headrace.ConditionalS3LogStore"
    assert chosen["spark.jars"] == f"/jars/delta.jar,{ICEBERG_JAR},{DELTA_S3_JAR}"
    assert settings(f"{scheme}://bucket/w", {**rest, store: "x.Y"})[store] == "x.Y"
    assert store not in settings(f"{scheme}://bucket/w", {**rest, "spark.delta.logStore.class": "x.Y"})
    local = settings("/w", {}, [Path("/jars/delta.jar")])
    assert store not in local
    assert local["spark.jars"] == f"/jars/delta.jar,{ICEBERG_JAR}"


def test_ranges_of_local_files_are_not_read_by_threads() -> None:
    """Those of object stores are: their clients use memory of the heap."""
    vectored, rest = "spark.hadoop.parquet.hadoop.vectored.io.enabled", {"spark.sql.catalog.lake.type": "rest"}
    assert settings("/w", {})[vectored] == "false"
    assert vectored not in settings("s3a://bucket/w", rest)


def test_a_warehouse_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """The check runs before Spark starts, and its error names the option."""
    place = tmp_path / "file"
    place.touch()
    for path in (place, place / "below"):
        with pytest.raises(ConfigError, match="not a folder") as refused:
            SparkLakehouse(str(path), {}).check()
        assert refused.value.key == "warehouse"


def test_a_missing_warehouse_is_created(tmp_path: Path) -> None:
    """The check creates the folder and nothing in it."""
    SparkLakehouse(f"file://{tmp_path}/new/one", {}).check()
    assert list((tmp_path / "new" / "one").iterdir()) == []


def test_unknown_formats_are_refused(tmp_path: Path) -> None:
    """The error names the option, before Spark starts."""
    with pytest.raises(ConfigError, match="hudi") as refused:
        SparkLakehouse(str(tmp_path), {}).table("shop", "item", TableOptions(format="hudi"))
    assert refused.value.key == "table.format"


@pytest.mark.parametrize(
    ("wanted", "there", "sign"),
    [("iceberg", "delta", "_delta_log"), ("delta", "iceberg", "metadata/version-hint.text")],
)
def test_a_folder_with_a_table_of_another_format_is_refused(tmp_path: Path, wanted: str, there: str, sign: str) -> None:
    """Two formats in one folder would delete the files of one another."""
    (tmp_path / "shop" / "item" / sign).mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"table of format {there}.*table.format is {wanted}"):
        SparkLakehouse(str(tmp_path), {}).table("shop", "item", TableOptions(format=wanted))


def test_spark_connect_is_refused() -> None:
    """The error names the option and the masters that can be used."""
    with pytest.raises(ConfigError, match=r"Spark Connect is not supported.*local") as refused:
        settings("/w", {"spark.master": "sc://host:15002"})
    assert refused.value.key == "spark.master"


OTHER = {"spark.sql.catalog.other": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.other.type": "hadoop"}


def test_further_catalogs_are_safe_like_the_first() -> None:
    """They cache no tables, and none is a folder on storage without atomic renames."""
    assert settings("/w", OTHER)["spark.sql.catalog.other.cache-enabled"] == "false"
    with pytest.raises(ConfigError, match="atomic renames, which s3 does not") as refused:
        settings("/w", {**OTHER, "spark.sql.catalog.other.warehouse": "s3://bucket/w"})
    assert refused.value.key == "spark.sql.catalog.other.type"


def test_a_connector_names_a_catalog_that_the_worker_has(tmp_path: Path) -> None:
    """Another name is refused before Spark starts, and so is a catalog for Delta tables, which are in folders."""
    spark = {"spark.master": "no such master", **OTHER, "spark.sql.catalog.other.warehouse": str(tmp_path / "other")}
    lakehouse = SparkLakehouse(str(tmp_path / "warehouse"), spark)
    with pytest.raises(ConfigError, match="has no catalog 'others', only lake, other; correct the name") as unknown:
        lakehouse.table("shop", "orders", TableOptions(catalog="others"))
    with pytest.raises(ConfigError, match=r"Delta tables are in folders .*; remove table\.catalog") as delta:
        lakehouse.table("shop", "orders", TableOptions("delta", "other"))
    assert unknown.value.key == delta.value.key == "table.catalog"
    outside = {"write.data.path": str(tmp_path / "warehouse" / "data")}
    with pytest.raises(ConfigError, match="not an absolute location below the worker's warehouse"):
        lakehouse.table("shop", "orders", TableOptions(catalog="other", properties=outside))
