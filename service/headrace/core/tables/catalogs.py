"""The catalogs of Iceberg tables (``table.catalog``): ``lake``, and others that the worker file adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.core.model.errors import ConfigError

LAKE = "lake"
"""The catalog of connectors that name no other one."""
PREFIX = "spark.sql.catalog."
ICEBERG_CLASS = "org.apache.iceberg.spark.SparkCatalog"
OPTION = "table.catalog"
_OF_SPARK = "spark_catalog"  # Delta's, which finds tables by path


def other_catalogs(spark: Mapping[str, str]) -> list[str]:
    """Return the names of the Iceberg catalogs that the worker's ``spark.*`` options add to ``lake``."""
    names = (key.removeprefix(PREFIX) for key, value in spark.items() if key.startswith(PREFIX))
    iceberg = (name for name in names if spark[f"{PREFIX}{name}"] == ICEBERG_CLASS)
    return [name for name in iceberg if "." not in name and name not in (LAKE, _OF_SPARK)]


def check_catalog(name: str, table_format: str, others: Sequence[str] | None) -> None:
    """Raise ConfigError for a catalog that the worker does not have, or that the format cannot use.

    ``others`` are ``other_catalogs``, None where they are not known.
    """
    if name == LAKE:
        return
    if table_format == "delta":
        raise ConfigError(
            f"{OPTION}: Delta tables are in folders of the worker's warehouse, and in no catalog {name!r}; remove "
            f"{OPTION}, or set table.format=iceberg",
            OPTION,
        )
    if others is not None and name not in others:
        raise ConfigError(
            f"{OPTION}: the worker file has no catalog {name!r}, only {', '.join((LAKE, *others))}; correct the name, "
            f"or add {PREFIX}{name}={ICEBERG_CLASS}, its type and its uri to the worker file",
            OPTION,
        )
