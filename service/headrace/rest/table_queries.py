"""``/connectors/{name}/tables/{table}/queries``: how to query a table, unknown to Kafka Connect.

Tests: ``tests/rest/test_table_queries.py``.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from headrace.core.connect.typed_options import below
from headrace.core.model.errors import ConfigError, RestError
from headrace.core.tables.naming import LAKE, PREFIX
from headrace.core.tables.table_queries import TablePlace, table_queries
from headrace.rest.route import ConnectRoute
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.worker import Worker


class TableQueries:
    """Answers from the configurations alone, without a look at the lake."""

    def __init__(self, worker: Worker, herder: Herder) -> None:
        self._worker = worker
        self._herder = herder

    def of(self, name: str, table: str) -> list[dict[str, Any]]:
        """Return a query of each engine. Raises RestError: 404 for an unknown connector, 400 if it is not valid."""
        try:  # not resolved: a reference to a secret stays one
            tables = self._worker.connector_class.config(self._herder.config(name)).tables
        except ConfigError as error:
            raise RestError(str(error), 400) from error
        warehouse = self._worker.connector_class.defaults.warehouse or ""
        properties = dict(below(self._worker.config.spark_properties(), f"{PREFIX}{tables.catalog}."))
        if tables.catalog == LAKE:
            properties.setdefault("warehouse", warehouse)
        place = TablePlace(tables.format, tables.catalog, tables.namespace, table, properties, warehouse)
        return [asdict(query) for query in table_queries(place)]


def router(queries: TableQueries) -> APIRouter:
    routes = APIRouter(route_class=ConnectRoute)

    @routes.get("/connectors/{name}/tables/{table}/queries")
    async def get_queries(name: str, table: str) -> Response:
        return JSONResponse(queries.of(name, table))

    return routes
