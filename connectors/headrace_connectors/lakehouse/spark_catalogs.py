"""The catalogs of the session: ``lake``, and others that the worker file configures for ``table.catalog``."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from headrace.core.model.errors import ConfigError
from headrace.core.tables.naming import ICEBERG_CLASS, LAKE, PREFIX, other_catalogs

_ATOMIC_RENAME = ("", "file", "hdfs")  # what the hadoop catalog relies on; object stores have none


def catalog_settings(warehouse: str, spark: Mapping[str, str]) -> dict[str, str]:
    """Return the defaults of all catalogs: ``lake`` is a folder, and no catalog caches tables.

    A cache would show old snapshots to the sessions of the tables.
    """
    lake = f"{PREFIX}{LAKE}"
    caches = {f"{PREFIX}{name}.cache-enabled": "false" for name in (LAKE, *other_catalogs(spark))}
    kind = {} if f"{lake}.catalog-impl" in spark else {f"{lake}.type": "hadoop"}
    return {lake: ICEBERG_CLASS, **kind, f"{lake}.warehouse": warehouse, **caches}


def refuse_unsafe(settings: Mapping[str, str]) -> None:
    """Raise ConfigError for a folder as a catalog on storage without atomic renames."""
    for name in (LAKE, *other_catalogs(settings)):
        prefix = f"{PREFIX}{name}"
        scheme = urlsplit(settings.get(f"{prefix}.warehouse", "")).scheme
        if settings.get(f"{prefix}.type") == "hadoop" and scheme not in _ATOMIC_RENAME:
            raise ConfigError(
                f"the embedded catalog needs atomic renames, which {scheme} does not support: "
                f"set {prefix}.type (rest, jdbc, hive…) and its uri, or use a local warehouse",
                key=f"{prefix}.type",
            )


def warehouse_of(name: str, settings: Mapping[str, str]) -> str | None:
    """Return where a catalog has its tables, None if only its server knows."""
    warehouse = settings.get(f"{PREFIX}{name}.warehouse", "")
    return warehouse if "/" in warehouse else None
