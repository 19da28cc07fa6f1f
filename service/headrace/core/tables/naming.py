"""Where lake tables are: their names, catalogs, and the locations of their files.

Names are made as in Debezium's JDBC sink (``collection.name.format``), plus ``table.namespace``. ``table.catalog`` is
the name of an Iceberg catalog: ``lake``, or another one that the worker file adds.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from headrace.core.connect.config_def import InvalidValue
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import OWN_PREFIX, TableId

KEY = "collection.name.format"
NAMESPACE = "table.namespace"
_SHOWN = 200
"""Characters of a name that a message repeats."""
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_SEPARATES = re.compile(r"[/\\\x00-\x1f\x7f-\x9f]")
_VARIABLES = ("topic", "source.name", "source.db", "source.schema", "source.table")


class TableNaming:
    """Make table names from topics and source tables. Raises ConfigError for an unknown variable."""

    def __init__(self, pattern: str) -> None:
        unknown = [variable for variable in _VARIABLE.findall(pattern) if variable not in _VARIABLES]
        if unknown:
            variables = ", ".join(f"${{{variable}}}" for variable in _VARIABLES)
            raise ConfigError(f"{KEY}: ${{{unknown[0]}}} is not known; use {variables}", KEY)
        if problem := path_problem(_VARIABLE.sub("_", pattern).replace(".", "_")):
            raise ConfigError(f"{KEY}: {problem}", KEY)
        self._pattern = pattern

    @property
    def by_source(self) -> bool:
        """Whether names depend on the source table, so that one topic may feed several tables."""
        return "${source." in self._pattern

    def name(self, topic: str, table: TableId) -> str:
        """Return the table's name without its namespace; dots of the topic become underscores.

        Raises ConfigError for a name that cannot be a folder of the namespace: sources and transforms choose the name.
        """
        values = dict(zip(_VARIABLES, (topic, table.name, table.database, table.schema, table.table), strict=True))
        name = _VARIABLE.sub(lambda variable: values[variable[1]], self._pattern).replace(".", "_")
        if problem := path_problem(name):
            raise ConfigError(
                f"topic {topic}: the name of its lake table {name[:_SHOWN]!r} {problem}; change {KEY}, or rename the "
                "topic with a transform",
                KEY,
            )
        return name


def path_problem(name: str) -> str | None:
    """Return why ``name`` is not a valid name of a namespace or table, which is one folder; None if it is valid."""
    if name in ("", ".", ".."):
        return "is empty, . or .."
    if _SEPARATES.search(name):
        return "contains / or \\ or a control character"
    if OWN_PREFIX in name:
        return f"contains {OWN_PREFIX}, which names Headrace's own tables"
    return None


def check_table_path(namespace: str, name: str) -> None:
    """Raise ConfigError unless namespace and table are folders of the warehouse and of the namespace."""
    for key, part in ((NAMESPACE, namespace), (KEY, name)):
        if problem := path_problem(part):
            raise ConfigError(f"{key}: the name {part[:_SHOWN]!r} {problem}; choose another one", key)


def namespace(name: str, value: Any) -> None:
    if value is not None and (problem := path_problem(value)):
        raise InvalidValue(f"Invalid value {value[:_SHOWN]} for configuration {name}: the name {problem}")


def table_of_topic(topic: str, database: str) -> TableId | None:
    """Return the source table of a topic that Debezium named ``<prefix>.<schema>.<table>``, None for other names."""
    parts = topic.rsplit(".", 2)
    if len(parts) != 3 or not all(parts):
        return None
    prefix, schema, table = parts
    return TableId(prefix, database, schema, table)


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

    ``others`` are ``other_catalogs``, None without a worker file.
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


_CLASSES = ("write.location-provider.impl",)
"""Properties that name a Java class, which chooses the location of each file."""
_ENDINGS = ("path", "location")
_OF_A_COLUMN = ".column."
"""Part of the name of a column's setting, which ends with the column's name: this may be ``path``."""
_LOCAL = ("", "file")


def location_problems(properties: Mapping[str, str], warehouse: str | None) -> dict[str, str]:
    """Return the problems of the properties that contain a location, by their names.

    ``warehouse`` is a URL or an absolute path; without it only relative locations and those with ``..`` are rejected.
    """
    problems = {}
    for name, value in properties.items():
        if name in _CLASSES:
            problems[name] = f"{name} names a class that may write anywhere; set write.data.path instead"
        elif name.endswith(_ENDINGS) and _OF_A_COLUMN not in name and not _is_below(value.strip(), warehouse):
            problems[name] = f"{name} is not an absolute location below the worker's warehouse; choose one there"
    return problems


def check_locations(properties: Mapping[str, str], warehouse: str | None) -> None:
    for name, problem in location_problems(properties, warehouse).items():
        raise ConfigError(f"table.properties.{problem}", f"table.properties.{name}")


def _is_below(location: str, warehouse: str | None) -> bool:
    server, path = _parts(location)
    if not path.startswith("/") or ".." in path.split("/"):
        return False
    if warehouse is None:
        return True
    warehouse_server, folder = _parts(warehouse)
    return server == warehouse_server and path.startswith(posixpath.normpath(folder).rstrip("/") + "/")


def _parts(location: str) -> tuple[tuple[str, str], str]:
    """Split a URL into its server and its path; a path alone has no server."""
    url = urlsplit(location)
    scheme = "" if url.scheme in _LOCAL else url.scheme
    return (scheme, url.netloc), posixpath.normpath(url.path) if ".." not in url.path.split("/") else url.path
