"""``GET /connectors/{name}/tables/{table}/queries`` and its part of the table's page."""

from __future__ import annotations

import pytest
from support.rest.worker_api import Api, table_report

pytestmark = pytest.mark.anyio
PATH = "/connectors/shop/tables/orders/queries"
SECRET = "s3cr3t"


async def test_a_table_in_a_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("warehouse")
    api = Api(warehouse=str(folder))
    await api.worker.start()
    await api.create(**{"table.namespace": "shops"})
    queries = {query["engine"]: query for query in (await api.call("GET", PATH)).json()}
    assert queries["Spark"]["text"] == "SELECT * FROM `lake`.`shops`.`orders`"
    assert f"StaticTable.from_metadata('{folder}/shops/orders')" in queries["PyIceberg"]["text"]
    assert f"iceberg_scan('{folder}/shops/orders')" in queries["DuckDB"]["text"]
    assert queries["Trino"]["text"] == ""
    await api.worker.stop()


async def test_a_delta_table_and_its_page(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("warehouse")
    api = Api(warehouse=str(folder))
    await api.worker.start()
    await api.create(**{"table.format": "delta"})
    await api.until("RUNNING", "RUNNING")
    api.tasks.tasks["shop-0"].tables = [table_report("orders")]
    queries = (await api.call("GET", PATH)).json()
    assert queries[0]["text"] == f"SELECT * FROM delta.`{folder}/headrace/orders`"
    html = (await api.call("GET", "/ui/connectors/shop/tables/orders")).body.decode()
    assert queries[0]["text"] in html
    await api.worker.stop()


async def test_the_secrets_of_a_catalog_are_in_no_text() -> None:
    """The worker's options have the address of the catalog, and how it logs in."""
    catalog = {
        "type": "rest",
        "uri": f"https://user:{SECRET}@catalog/api",
        "credential": f"id:{SECRET}",
        "s3.secret-access-key": SECRET,
    }
    api = Api(**{f"spark.sql.catalog.lake.{name}": value for name, value in catalog.items()})
    await api.worker.start()
    await api.create()
    answer = await api.call("GET", PATH)
    assert b"ENDPOINT 'https://[hidden]@catalog/api'" in answer.body
    assert SECRET.encode() not in answer.body
    await api.worker.stop()


async def test_an_unknown_connector() -> None:
    api = Api()
    await api.worker.start()
    assert (await api.call("GET", PATH)).status == 404
    await api.worker.stop()
