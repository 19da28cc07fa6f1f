"""How to query a lake table with engines that read its format, for people to copy.

Texts contain names and addresses, and no credentials. What ``docs/operations.md`` says of readers applies.

Tests: ``tests/unit/core/tables/test_table_queries.py``, ``tests/contracts/test_iceberg_readers.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.core.connect.connector_plan import without_secrets

FOLDER = "hadoop"
"""Iceberg's name of the catalog that is a folder; also that of a catalog without a type."""
_CLASSES = {"RESTCatalog": "rest", "JdbcCatalog": "jdbc", "HadoopCatalog": FOLDER}
"""The types of catalogs that are configured by their class."""
_NO_CACHE = "SET enable_external_file_cache = false;\n"
"""DuckDB 1.5.5 may otherwise return deleted rows: duckdb/duckdb-iceberg#1182."""
_UNTESTED = "not tested here"
_METADATA_FILE = "METADATA_FILE"


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table is. ``properties`` are those of its catalog, ``warehouse`` is the worker's, absolute or a URL."""

    format: str
    catalog: str
    namespace: str
    table: str
    properties: Mapping[str, str]
    warehouse: str

    @property
    def catalog_type(self) -> str:
        """The type of the catalog, or the simple name of its class."""
        of_class = self.properties.get("catalog-impl", "").rpartition(".")[2]
        return self.properties.get("type") or _CLASSES.get(of_class, of_class) or FOLDER

    @property
    def folder(self) -> str:
        """The folder of the table, in a catalog that is a folder."""
        warehouse = self.properties.get("warehouse") or self.warehouse
        return f"{_public(warehouse).rstrip('/')}/{self.namespace}/{self.table}"


@dataclass(frozen=True, slots=True)
class TableQuery:
    """What to run in an engine. ``note`` is what it needs, empty if nothing. Without a ``text`` it cannot be done."""

    engine: str
    text: str
    note: str = ""


def table_queries(place: TablePlace) -> list[TableQuery]:
    """Return a query of each engine that is known to read the format."""
    if place.format == "delta":
        return _of_delta(place)
    name = ".".join(map(_spark_name, (place.catalog, place.namespace, place.table)))
    key = f"spark.sql.catalog.{place.catalog}"
    if place.catalog_type == FOLDER:
        where = (
            f"{key}.type={FOLDER} and {key}.warehouse={_public(place.properties.get('warehouse') or place.warehouse)}"
        )
        note = f"In a session with {key}=org.apache.iceberg.spark.SparkCatalog, {where}"
        return [
            TableQuery("Spark", f"SELECT * FROM {name}", note),
            _static_pyiceberg(place.folder),
            _static_duckdb(place.folder),
            TableQuery(
                "Trino", "", "Trino has no catalog that is a folder: configure a REST, JDBC, Hive or Glue catalog"
            ),
        ]
    note = f"In a session with the worker's {key}.*, and credentials of your own"
    spark = TableQuery("Spark", f"SELECT * FROM {name}", note)
    if place.catalog_type == "rest":
        return [spark, *_of_rest(place), _trino(place)]
    newest = f"SELECT file FROM {name}.metadata_log_entries ORDER BY timestamp DESC LIMIT 1"
    needs = f"{_METADATA_FILE} is the newest metadata file, which Spark names: {newest}"
    return [spark, _static_pyiceberg(_METADATA_FILE, needs), _static_duckdb(_METADATA_FILE, needs), _trino(place)]


def _of_delta(place: TablePlace) -> list[TableQuery]:
    folder = f"{_public(place.warehouse).rstrip('/')}/{place.namespace}/{place.table}"
    names = ", ".join(
        f"{key} => {_text(value)}"
        for key, value in (("schema_name", place.namespace), ("table_name", place.table), ("table_location", folder))
    )
    return [
        TableQuery("Spark", f"SELECT * FROM delta.{_spark_name(folder)}", "In a session with Delta Lake's extension"),
        TableQuery(
            "Python",
            "import pyarrow as pa\nfrom deltalake import DeltaTable, QueryBuilder\n\n"
            f'table = DeltaTable({folder!r})\npa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t"))',
            "deltalake; not for a table with a widened column",
        ),
        TableQuery(
            "Trino",
            f"CALL delta.system.register_table({names});\n"
            f"SELECT * FROM delta.{_sql_name(place.namespace)}.{_sql_name(place.table)}",
            f"Once, in a catalog delta of the Delta Lake connector; {_UNTESTED}",
        ),
    ]


def _static_pyiceberg(location: str, note: str = "") -> TableQuery:
    text = f"from pyiceberg.table import StaticTable\n\nStaticTable.from_metadata({location!r}).scan().to_arrow()"
    return TableQuery("PyIceberg", text, note)


def _static_duckdb(location: str, note: str = "") -> TableQuery:
    return TableQuery("DuckDB", f"{_NO_CACHE}SELECT * FROM iceberg_scan({_text(location)})", note)


def _of_rest(place: TablePlace) -> list[TableQuery]:
    uri, warehouse = _public(place.properties.get("uri", "")), _public(place.properties.get("warehouse", ""))
    options = f"type='rest', uri={uri!r}" + (f", warehouse={warehouse!r}" if warehouse else "")
    catalog = _sql_name(place.catalog)
    table = ".".join((catalog, _sql_name(place.namespace), _sql_name(place.table)))
    return [
        TableQuery(
            "PyIceberg",
            "from pyiceberg.catalog import load_catalog\n\n"
            f"catalog = load_catalog({place.catalog!r}, {options})\n"
            f"catalog.load_table({(place.namespace, place.table)!r}).scan().to_arrow()",
            "With credentials of your own, as options of load_catalog",
        ),
        TableQuery(
            "DuckDB",
            f"{_NO_CACHE}ATTACH {_text(warehouse)} AS {catalog} (TYPE iceberg, ENDPOINT {_text(uri)});\n"
            f"SELECT * FROM {table}",
            f"After CREATE SECRET with credentials of your own; {_UNTESTED}",
        ),
    ]


def _trino(place: TablePlace) -> TableQuery:
    table = ".".join(map(_sql_name, (place.catalog, place.namespace, place.table)))
    note = f"In a catalog {place.catalog} of the Iceberg connector for the same catalog as the worker's; {_UNTESTED}"
    return TableQuery("Trino", f"SELECT * FROM {table}", note)


def _public(address: str) -> str:
    """Return an address without its credentials, which its query may contain as well."""
    return without_secrets(address, hidden=False).partition("?")[0]


def _spark_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _sql_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
