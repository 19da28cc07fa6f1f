"""Texts that people copy: names are quoted, and addresses have no credentials.

Readers run the texts for tables in folders in ``tests/contracts/test_iceberg_readers.py``.
"""

from __future__ import annotations

import pytest

from headrace.core.tables.table_queries import TablePlace, table_queries

SECRET = "s3cr3t"


def place(table_format: str = "iceberg", table: str = "orders", **properties: str) -> TablePlace:
    """A table of the namespace shop."""
    named = {name.replace("_", "-"): value for name, value in properties.items()}
    return TablePlace(table_format, "lake", "shop", table, named, "/warehouse")


@pytest.mark.parametrize(
    ("properties", "catalog_type"),
    [
        ({}, "hadoop"),
        ({"type": "rest"}, "rest"),
        ({"catalog_impl": "org.apache.iceberg.rest.RESTCatalog"}, "rest"),
        ({"catalog_impl": "org.apache.iceberg.aws.glue.GlueCatalog"}, "GlueCatalog"),
    ],
)
def test_the_type_of_a_catalog(properties: dict[str, str], catalog_type: str) -> None:
    assert place(**properties).catalog_type == catalog_type


def test_a_rest_catalog_has_its_address() -> None:
    texts = {
        query.engine: query.text
        for query in table_queries(place(type="rest", uri="https://catalog/api", warehouse="shops"))
    }
    assert texts["Spark"] == "SELECT * FROM `lake`.`shop`.`orders`"
    assert "load_catalog('lake', type='rest', uri='https://catalog/api', warehouse='shops')" in texts["PyIceberg"]
    assert "ATTACH 'shops' AS \"lake\" (TYPE iceberg, ENDPOINT 'https://catalog/api')" in texts["DuckDB"]
    assert texts["Trino"] == 'SELECT * FROM "lake"."shop"."orders"'


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
@pytest.mark.parametrize("catalog_type", ["hadoop", "rest", "jdbc"])
def test_credentials_are_in_no_text(table_format: str, catalog_type: str) -> None:
    uri = f"https://user:{SECRET}@catalog/api?password={SECRET}"
    at = place(
        table_format, type=catalog_type, uri=uri, warehouse=f"s3://key:{SECRET}@lake/w", token=SECRET, credential=SECRET
    )
    assert SECRET not in str(table_queries(at))


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
@pytest.mark.parametrize("catalog_type", ["hadoop", "rest", "jdbc"])
def test_names_are_quoted(table_format: str, catalog_type: str) -> None:
    """A name of a table comes from the source."""
    name = "a`b\"c'd"
    for query in table_queries(place(table_format, name, type=catalog_type)):
        if "pyiceberg" in query.text or "deltalake" in query.text:
            compile(query.text, "query", "exec")
        elif query.engine == "Spark":
            assert "a``b\"c'd`" in query.text
        elif query.text and "METADATA_FILE" not in query.text:
            assert "a`b\"c''d" in query.text or 'a`b""c\'d' in query.text
