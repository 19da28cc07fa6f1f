"""The dashboard's queries on a real Prometheus that scrapes a real worker, which loads a table from a real Debezium."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from support.repository.prometheus import prometheus
from support.repository.rendered_chart import ROOT

from headrace_dev.connect import debezium_postgres
from headrace_dev.postgres import SUPERUSER
from headrace_dev.server import LOOPBACK, Server, free_ports, http, wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark]

TABLE = """
CREATE TABLE items (id int PRIMARY KEY, price int, total int GENERATED ALWAYS AS (price * 3) STORED, body text);
ALTER TABLE items ALTER COLUMN body SET STORAGE EXTERNAL;
INSERT INTO items (id, price, body) VALUES (1, 1, repeat('x', 9000)), (2, 2, repeat('y', 9000))
"""
DASHBOARDS = {"helm/headrace/files/dashboard.json": "namespace", "config/monitoring/dashboard.json": "job"}


def test_every_query_of_the_dashboard_has_data(stack: Stack, tmp_path: Path, unique: Callable[[str], str]) -> None:
    """Each panel and each variable has a result, the rules load without an error, and no alert is firing."""
    name = unique("monitored")
    stack.postgres.create_database(name)
    stack.postgres.execute(TABLE, name)
    stack.connect.put_connector(name, debezium_postgres(stack.postgres, name, name))
    storage = {"config.storage.topic": f"{name}-configs", "status.storage.topic": f"{name}-status"}
    worker = Worker(
        tmp_path, stack.kafka, tmp_path / "warehouse", properties={"group.id": name, **storage, **SHORT_LIVED}
    )
    worker.start()
    try:
        topic = f"{name}.public.items"
        wait_until(lambda: topic in stack.kafka.topics(), "the topic", 60)
        worker.put_connector(
            name,
            {
                "connector.class": "LakehouseSink",
                "topics": topic,
                "table.namespace": "shop",
                "reselect.cache.enabled": "true",
                "reselect.database.hostname": LOOPBACK,
                "reselect.database.port": str(stack.postgres.port),
                "reselect.database.user": SUPERUSER,
                "reselect.database.password": "unused",
                "reselect.database.dbname": name,
            },
        )
        with _scraping(worker, tmp_path) as query:
            wait_until(lambda: bool(query("headrace_events_total > 0")), "the first commit of the table", 240)
            prices = iter(range(10_000))

            def queries_without_data() -> list[str]:
                """Change a row: its events contain neither the generated column nor the long value."""
                stack.postgres.execute(f"UPDATE items SET price = {next(prices)} WHERE id = 1", name)
                return [place for place in expressions if not query(expressions[place])]

            expressions = dict(_expressions())
            assert len(expressions) > 60
            deadline = time.monotonic() + 150
            while (empty := queries_without_data()) and time.monotonic() < deadline:
                pass  # each round is a transaction and 80 requests
            assert empty == []
            assert query('ALERTS{alertstate="firing"}') == []
    finally:
        worker.kill()
        stack.connect.delete_connector(name)


Query = Callable[[str], list[Any]]


@contextmanager
def _scraping(worker: Worker, folder: Path) -> Iterator[Query]:
    """Run Prometheus with the rule file on the worker. Yields a function that evaluates an expression."""
    (port,) = free_ports(1)
    url = f"http://{LOOPBACK}:{port}"
    target = {"targets": [worker.url.removeprefix("http://")], "labels": {"namespace": "data"}}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "config" / "monitoring" / "rules.yaml")],
        "scrape_configs": [{"job_name": "headrace", "static_configs": [target]}],
    }
    home = folder / "prometheus"
    home.mkdir()
    (home / "prometheus.yaml").write_text(yaml.safe_dump(config))
    options = {"config.file": home / "prometheus.yaml", "storage.tsdb.path": home / "data"}
    options["web.listen-address"] = f"{LOOPBACK}:{port}"
    server = Server("prometheus", [prometheus(), *(f"--{key}={value}" for key, value in options.items())], home)

    def ready() -> bool:
        try:
            return http.get(f"{url}/-/ready", timeout=5).is_success
        except httpx.TransportError:
            return False

    def query(expression: str) -> list[Any]:
        answer = http.get(f"{url}/api/v1/query", params={"query": expression}, timeout=10).json()
        assert answer["status"] == "success", f"{expression}: {answer.get('error')}"
        result: list[Any] = answer["data"]["result"]
        return result

    server.start(ready, 30)
    try:
        yield query
    finally:
        server.stop()


def _expressions() -> Iterator[tuple[str, str]]:
    """The queries of the panels and variables of both dashboards by their places, with values for the variables."""
    for file, label in DASHBOARDS.items():
        dashboard = json.loads((ROOT / file).read_text())
        value = {"namespace": "data", "job": "headrace"}[label]
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                expression = target["expr"].replace(f"${label}", value).replace("$connector", ".+")
                yield f"{label}: {panel['title']} {target['refId']}", expression
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                selector = variable["query"].removeprefix("label_values(").rpartition(",")[0]
                yield f"{label}: ${variable['name']}", selector.replace(f"${label}", value)
