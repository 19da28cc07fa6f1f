"""A lakehouse is tried with a table of its own, of which nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.fix_spark import GONE, OTHER, Warehouse
from support.lake.lake_actions import TOPIC, text
from support.lake.lake_harness import ITEM, NOW

from headrace.core.doctor.findings import Severity
from headrace.core.doctor.lake import Transactions, findings
from headrace.core.model.errors import ConfigError, Retriable
from headrace.core.model.events import RowVersion
from headrace.core.tables.table_layout import table_layout
from headrace.ports import Lakehouse, TableOptions
from headrace_connectors.lakehouse.table_format import MetadataFile
from headrace_connectors.lakehouse.trial_readers import rows_by_reader
from headrace_dev.memory import MemoryLakehouse


def content(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


class LakeTrialSuite:
    """Inherit from it and provide ``lakehouse`` and, with the options to try, ``options``."""

    def test_a_good_lake_is_silent(
        self, lakehouse: Lakehouse, options: TableOptions, unique: Callable[[str], str]
    ) -> None:
        trial = lakehouse.try_out(unique("tried"), options)
        assert list(findings(trial, trial.format_version, ["spark"])) == []
        assert "headrace_doctor_" in trial.table
        assert trial.examined.transactions is Transactions.UNKNOWN, "only REST catalogs have them"


class TestMemoryTrial(LakeTrialSuite):
    """In memory."""

    @pytest.fixture
    def lakehouse(self) -> Lakehouse:
        return MemoryLakehouse()

    @pytest.fixture
    def options(self) -> TableOptions:
        return TableOptions()


@pytest.mark.spark
class TestSparkTrial(LakeTrialSuite):
    """In both formats, in both versions of Iceberg's, and in another catalog."""

    @pytest.fixture
    def lakehouse(self, warehouse: Warehouse) -> Lakehouse:
        return warehouse.lakehouse

    @pytest.fixture(
        params=[{}, {"format_version": 2}, {"catalog": OTHER}, {"format": "delta"}],
        ids=["iceberg", "version 2", "other catalog", "delta"],
    )
    def options(self, request: pytest.FixtureRequest) -> TableOptions:
        """The layout is that of the connector's tables, and has columns that the table does not have."""
        given: Mapping[str, str] = request.param
        by = table_layout(given.get("format", "iceberg"), "region", "")
        return TableOptions(**given, layout=by)  # type: ignore[arg-type]

    @pytest.mark.parametrize("existing", [False, True])
    def test_nothing_is_left(
        self, warehouse: Warehouse, options: TableOptions, unique: Callable[[str], str], existing: bool
    ) -> None:
        """A namespace stays if it existed before."""
        folder = warehouse.path / (OTHER if options.catalog == OTHER else "") / (namespace := unique("tried"))
        folder.parent.mkdir(exist_ok=True)
        if existing:
            folder.mkdir()
        warehouse.lakehouse.try_out(namespace, options)
        assert (folder.exists(), content(folder)) == (existing, set())

    def test_the_version_is_read(self, warehouse: Warehouse, options: TableOptions) -> None:
        wanted = None if options.format == "delta" else options.format_version
        assert warehouse.lakehouse.try_out("versions", options).format_version == wanted


@pytest.mark.spark
@pytest.mark.parametrize("version", [2, 3])
def test_readers_that_are_installed(warehouse: Warehouse, unique: Callable[[str], str], version: int) -> None:
    """PyIceberg reads the table, and DuckDB if its extensions are there (make soak installs them)."""
    wanted = {"pyiceberg": ""}
    if find_spec("duckdb"):
        import duckdb
        from duckdb_extensions import import_extension

        with duckdb.connect() as connection:
            for name in ("avro", "iceberg"):
                import_extension(name, con=connection)
        wanted["duckdb"] = ""
    trial = warehouse.lakehouse.try_out(
        unique("read"), TableOptions(format_version=version), ["spark", "pyiceberg", "duckdb", "trino"]
    )
    assert trial.readers == wanted
    assert [finding.rule for finding in findings(trial, version, [])] == []


@pytest.mark.spark
def test_tables_that_are_older_than_the_readers(warehouse: Warehouse, unique: Callable[[str], str]) -> None:
    """They keep their version, which Athena cannot read and DuckDB reads with a setting. Ledgers do not count."""
    namespace = unique("older")
    for version in (2, 3):
        table = warehouse.lakehouse.table(namespace, f"version_{version}", TableOptions(format_version=version))
        table.evolve(ITEM, ["id"])
        table.record_tombstones({"1": RowVersion(text(3), TOPIC, 0, 3, 30)}, NOW)
    warehouse.sql(f"CREATE TABLE lake.`{namespace}`.of_others (id BIGINT) USING iceberg")
    options = TableOptions(format_version=2)
    assert warehouse.lakehouse.try_out(namespace, options, ["spark"]).tables == {}
    trial = warehouse.lakehouse.try_out(namespace, options, ["athena"])
    assert trial.tables == {"version_2": 2, "version_3": 3}
    found = list(findings(trial, 2, ["athena", "duckdb", "trino"]))
    assert [(finding.severity, finding.subject) for finding in found] == [
        (Severity.ERROR, "reader athena, existing tables"),
        (Severity.WARNING, "reader duckdb, existing tables"),
    ]
    assert all("version 3 have version_3 (" in finding.evidence for finding in found)
    for version in (2, 3):
        again = warehouse.lakehouse.table(namespace, f"version_{version}", options)
        again.evolve(ITEM, ["id"])
        assert warehouse.static_table(namespace, f"version_{version}").metadata.format_version == version


@pytest.mark.spark
def test_a_reader_that_reads_other_rows(warehouse: Warehouse, unique: Callable[[str], str]) -> None:
    """The table has two rows, as if a reader ignored deletes, or one too few. Its file may be damaged, too."""
    warehouse.lakehouse.start()
    table = unique("two_rows")
    warehouse.sql(f"CREATE TABLE lake.tried.`{table}` (id BIGINT) USING iceberg")
    warehouse.sql(f"INSERT INTO lake.tried.`{table}` VALUES (1), (2)")
    location = warehouse.static_table("tried", table).metadata_location
    for expected, fault in (
        ([1, 2], ""),
        ([2], "it returns deleted rows"),
        ([1, 2, 3], "it does not return all rows"),
        ([2, 3], "it does not return all rows"),
    ):
        assert rows_by_reader(["pyiceberg"], MetadataFile(location, {}), expected) == {"pyiceberg": fault}
    gone = MetadataFile(f"{location}.gone", {})
    assert rows_by_reader(["pyiceberg"], gone, [1]) == {"pyiceberg": "it fails with FileNotFoundError"}


@pytest.mark.spark
def test_a_catalog_that_does_not_answer(warehouse: Warehouse) -> None:
    """Nothing can be said of it."""
    with pytest.raises(Retriable, match="does not answer"):
        warehouse.lakehouse.try_out("tried", TableOptions(catalog=GONE))


@pytest.mark.spark
def test_a_table_whose_files_must_stay(warehouse: Warehouse, unique: Callable[[str], str]) -> None:
    """The property of the connector's tables forbids to drop them with their files, which the trial does."""
    namespace = unique("kept")
    trial = warehouse.lakehouse.try_out(namespace, TableOptions(properties={"gc.enabled": "false"}))
    assert (trial.failed_step, trial.removal) == ("", "")
    assert not (warehouse.path / namespace).exists()


@pytest.mark.spark
def test_a_namespace_that_cannot_be_created(warehouse: Warehouse, unique: Callable[[str], str]) -> None:
    """A file is where its folder should be."""
    name = unique("file")
    (warehouse.path / name).touch()
    trial = warehouse.lakehouse.try_out(name, TableOptions())
    [finding] = findings(trial, 3, [])
    assert finding.rule == "lake-table-refused"
    assert finding.evidence.startswith(("cannot create the namespace: ", "cannot create a table: "))
    assert (warehouse.path / name).is_file()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "step"),
    [
        (TableOptions(properties={"write.format.default": "csv"}), "commit a row"),
        (TableOptions(format="delta", properties={"delta.appendOnly": "true"}), "delete a row"),
        (TableOptions(format="delta", properties={"delta.checkpointInterval": "never"}), "create a table"),
    ],
    ids=["commit", "delete", "create"],
)
def test_a_step_that_fails(
    warehouse: Warehouse, unique: Callable[[str], str], options: TableOptions, step: str
) -> None:
    """The table is removed all the same."""
    namespace = unique("refused")
    trial = warehouse.lakehouse.try_out(namespace, options)
    assert (trial.failed_step, trial.removal) == (step, "")
    assert not (warehouse.path / namespace).exists()


@pytest.mark.spark
def test_a_catalog_that_does_not_exist(warehouse: Warehouse) -> None:
    with pytest.raises(ConfigError, match=r"spark\.sql\.catalog\.nothing"):
        warehouse.lakehouse.try_out("tried", TableOptions(catalog="nothing"))
