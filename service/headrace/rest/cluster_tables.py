"""The documents of lake tables, of this worker's tasks and of those of the other workers.

Each worker has the reports of the tables of its own tasks, and requests those of the others with ``forward=false``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

from fastapi import Request

from headrace.core.connect.status import worst_first
from headrace.core.model.errors import RestError
from headrace.rest.route import Forwarder
from headrace.runtime.worker.herder import Herder

Json = dict[str, Any]


class ClusterTables:
    """Answers requests for tables. All methods raise RestError, 409 if another worker does not answer."""

    def __init__(self, herder: Herder, forwarder: Forwarder) -> None:
        self._herder = herder
        self._forwarder = forwarder

    async def of(self, name: str, request: Request) -> list[Json]:
        """Return the tables of a connector by name."""
        now, waits_for = time.time(), self._herder.waits_for
        tables = [dict(report.document(task, now, waits_for)) for task, report in self._herder.tables(name)]
        tables += await self._forwarder.collect(request, _path(name), self._herder.other_owners(name))
        return sorted(tables, key=lambda table: str(table["table"]))

    async def one(self, name: str, table: str, request: Request) -> Json:
        """Return a table of a connector with its details. Raises RestError 404 for an unknown one."""
        now, waits_for = time.time(), self._herder.waits_for
        for task, report in self._herder.tables(name):
            if report.table == table:
                return dict(report.complete_document(task, now, waits_for))
        path = f"{_path(name)}/{quote(table, safe='')}"
        for document in await self._forwarder.collect(request, path, self._herder.other_owners(name)):
            return document
        raise unknown_table(name, table)

    async def all(self, request: Request) -> list[Mapping[str, Any]]:
        """Return the tables of all connectors with ``connector``, worst first."""
        now, waits_for = time.time(), self._herder.waits_for
        tables: list[Json] = [
            {"connector": name, **report.document(task, now, waits_for)}
            for name, task, report in self._herder.all_tables()
        ]
        tables += await self._forwarder.collect(request, "/tables", self._herder.other_owners())
        return worst_first(tables)

    async def topics(self, name: str, table: str, request: Request) -> Collection[str]:
        """Return the topics of a table. Raises RestError 404 for an unknown one.

        The leader needs them for a request that another worker has forwarded, and requests them from all workers.
        """
        if topics := self._herder.paused_topics(name, table):
            return topics
        tables = [{"table": report.table, "topics": report.topics} for _, report in self._herder.tables(name)]
        if table not in {report["table"] for report in tables}:
            tables += await self._forwarder.lists(request, _path(name), self._herder.other_owners(name))
        known = [report["topics"] for report in tables if report["table"] == table]
        topics = {topic for listed in known for topic in listed} or self._herder.topics_of_quiet_table(name, table)
        if not topics and not known:
            raise unknown_table(name, table)
        return topics


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}/tables"


def unknown_table(name: str, table: str) -> RestError:
    return RestError(f"Connector {name} has no table {table}; GET /connectors/{name}/tables lists its tables", 404)
