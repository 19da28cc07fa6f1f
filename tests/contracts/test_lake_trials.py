"""A lakehouse is tried with a table of its own, of which nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.fix_spark import OTHER, Warehouse

from headrace.core.doctor.lake import findings
from headrace.core.model.errors import ConfigError
from headrace.core.tables.table_layout import table_layout
from headrace.ports import Lakehouse, TableOptions
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
