"""The catalogs of the session: ``lake``, and others that the worker file configures for ``table.catalog``."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from headrace.core.model.errors import ConfigError

LAKE = "lake"
"""The catalog of connectors that name no other one."""

_PREFIX = "spark.sql.catalog."
_OF_SPARK = "spark_catalog"  # Delta's, which finds tables by path
_CLASS = "org.apache.iceberg.spark.SparkCatalog"
_ATOMIC_RENAME = ("", "file", "hdfs")  # what the hadoop catalog relies on; object stores have none


def catalog_settings(warehouse: str, spark: Mapping[str, str]) -> dict[str, str]:
    """Return the defaults of all catalogs: ``lake`` is a folder, and no catalog caches tables.

    A cache would show old snapshots to the sessions of the tables.
    """
    lake = f"{_PREFIX}{LAKE}"
    caches = {f"{_PREFIX}{name}.cache-enabled": "false" for name in (LAKE, *other_catalogs(spark))}
    kind = {} if f"{lake}.catalog-impl" in spark else {f"{lake}.type": "hadoop"}
    return {lake: _CLASS, **kind, f"{lake}.warehouse": warehouse, **caches}


def other_catalogs(spark: Mapping[str, str]) -> list[str]:
    """Return the names of the Iceberg catalogs that the worker file adds to ``lake``."""
    names = (key.removeprefix(_PREFIX) for key, value in spark.items() if key.startswith(_PREFIX) and value == _CLASS)
    return [name for name in names if "." not in name and name not in (LAKE, _OF_SPARK)]


def refuse_unsafe(settings: Mapping[str, str]) -> None:
    """Raise ConfigError for a folder as a catalog on storage without atomic renames."""
    for name in (LAKE, *other_catalogs(settings)):
        prefix = f"{_PREFIX}{name}"
        scheme = urlsplit(settings.get(f"{prefix}.warehouse", "")).scheme
        if settings.get(f"{prefix}.type") == "hadoop" and scheme not in _ATOMIC_RENAME:
            raise ConfigError(
                f"the embedded catalog needs atomic renames, which {scheme} does not support: "
                f"set {prefix}.type (rest, jdbc, hive…) and its uri, or use a local warehouse",
                key=f"{prefix}.type",
            )


def warehouse_of(name: str, settings: Mapping[str, str]) -> str | None:
    """Return where a catalog has its tables, None if only its server knows. Raises ConfigError for an unknown name."""
    known = [LAKE, *other_catalogs(settings)]
    if name not in known:
        raise ConfigError(
            f"table.catalog: the worker file has no catalog {name!r}, only {', '.join(known)}; correct the name, or "
            f"add {_PREFIX}{name}={_CLASS}, its type and its uri to the worker file",
            key="table.catalog",
        )
    warehouse = settings.get(f"{_PREFIX}{name}.warehouse", "")
    return warehouse if "/" in warehouse else None
