"""``lake.readers`` chooses the version of new Iceberg tables, where ``table.format.version`` is not set."""

from __future__ import annotations

import pytest

from headrace.config.validation import WorkerDefaults, sink_connector_config, validate
from headrace.runtime.task.task_options import table_options

DEFAULTS = WorkerDefaults({"key.converter": "JsonConverter", "value.converter": "JsonConverter"}, "1.0")
MINIMAL = {"name": "shop", "connector.class": "LakehouseSink", "topics": "a"}


@pytest.mark.parametrize(
    ("given", "version"),
    [
        ({}, 3),
        ({"lake.readers": "spark,trino"}, 3),
        ({"lake.readers": "spark,athena"}, 2),
        ({"lake.readers": "duckdb"}, 2),
        ({"lake.readers": "athena", "table.format.version": "3"}, 3),
        ({"lake.readers": "spark", "table.format.version": "2"}, 2),
    ],
    ids=["neither", "read 3", "one cannot read 3", "needs a setting for 3", "set to 3", "set to 2"],
)
def test_the_version_of_new_tables(given: dict[str, str], version: int) -> None:
    """It is the one that the tables are created with."""
    tables = sink_connector_config({**MINIMAL, **given}, DEFAULTS).tables
    assert (tables.format_version, table_options(tables).format_version) == (version, version)


def test_the_option_has_no_default() -> None:
    """A default of 3 would be a version that the readers of the connector may not have."""
    [info] = [info for info in validate(MINIMAL, DEFAULTS).configs if info.definition.name == "table.format.version"]
    assert (info.value.value, list(info.value.errors)) == (None, [])


def test_an_unknown_version() -> None:
    infos = validate({**MINIMAL, "table.format.version": "4"}, DEFAULTS)
    assert [info.definition.name for info in infos.configs if info.value.errors] == ["table.format.version"]
