"""Columns that PostgreSQL generates: its snapshot reads contain them, and its streamed events do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.lake.delta_tables import delta_rows, delta_table

from headrace.core.model.absent_columns import UNREAD
from headrace_dev.connect import debezium_postgres
from headrace_dev.demo.compare import lake_rows
from headrace_dev.postgres import SUPERUSER
from headrace_dev.server import LOOPBACK, wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark]

ROWS = 20
TABLE = f"""
CREATE TABLE items (id int PRIMARY KEY, price numeric(10,2), label text, spare int,
    total numeric(12,2) GENERATED ALWAYS AS (price * 3) STORED,
    upper_label text GENERATED ALWAYS AS (upper(label)) STORED);
INSERT INTO items (id, price, label, spare) SELECT id, id + 0.25, 'item ' || id, id FROM generate_series(1, {ROWS}) id
"""
FIRST_CHANGES = """
UPDATE items SET price = price * 2 WHERE id <= 5;
UPDATE items SET label = 'other ' || id WHERE id BETWEEN 4 AND 8;
INSERT INTO items (id, price, label, spare) VALUES (101, 7, 'new', 101), (102, NULL, NULL, NULL);
UPDATE items SET id = 103 WHERE id = 9;
DELETE FROM items WHERE id = 10
"""
LATER_CHANGES = """
ALTER TABLE items DROP COLUMN spare;
UPDATE items SET price = price + 1 WHERE id IN (1, 11, 101)
"""
CHANGED = {1, 2, 3, 4, 5, 6, 7, 8, 11, 101, 102, 103}
"""The rows that were streamed after their snapshot read, or came without one."""


@pytest.mark.parametrize("table_format", ["iceberg", pytest.param("delta", marks=pytest.mark.long)])
def test_generated_columns_are_read_or_null_but_never_stale(
    stack: Stack, tmp_path: Path, unique: Callable[[str], str], table_format: str
) -> None:
    """With a database they equal it; without one, changed rows have NULL and a note names each column.

    A kill between snapshot and changes loses nothing of it. A column that is dropped later keeps its values.
    """
    name = unique("generated")
    topic = f"{name}.public.items"
    stack.postgres.create_database(name)
    stack.postgres.execute(TABLE, name)
    stack.connect.put_connector(name, debezium_postgres(stack.postgres, name, name))
    storage = {"config.storage.topic": f"{name}-configs", "status.storage.topic": f"{name}-status"}
    properties = {"group.id": name, **storage, **SHORT_LIVED}
    worker = Worker(tmp_path, stack.kafka, tmp_path / "warehouse", properties=properties)
    database = {
        "reselect.database.hostname": LOOPBACK,
        "reselect.database.port": str(stack.postgres.port),
        "reselect.database.user": SUPERUSER,
        "reselect.database.password": "unused",
        "reselect.database.dbname": name,
    }
    connectors: dict[str, dict[str, str]] = {"with": database, "without": {}}

    def rows(connector: str) -> dict[int, dict[str, Any]]:
        folder = tmp_path / "warehouse" / "shop" / connector
        if not folder.exists():
            return {}
        found = lake_rows(folder) if table_format == "iceberg" else delta_rows(delta_table(folder)).to_pylist()
        return {row["id"]: row for row in found}

    def source() -> dict[int, dict[str, Any]]:
        with stack.postgres.connect(name) as connection:
            cursor = connection.execute("SELECT * FROM items")
            columns = [column.name for column in cursor.description or ()]
            return {row[0]: dict(zip(columns, row, strict=True)) for row in cursor}

    def wait_for(written: Callable[[dict[int, dict[str, Any]]], bool]) -> None:
        for connector in connectors:
            wait_until(lambda connector=connector: written(rows(connector)), f"the rows of {connector}", 180)

    worker.start()
    try:
        for connector, options in connectors.items():
            config = {
                "connector.class": "LakehouseSink",
                "topics": topic,
                "table.namespace": "shop",
                "collection.name.format": connector,
                "table.format": table_format,
                "batch.linger.ms": "0",
                **options,
            }
            wait_until(lambda: topic in stack.kafka.topics(), "the topic", 60)
            worker.put_connector(f"{name}-{connector}", config)
        wait_for(lambda found: len(found) == ROWS)
        assert _columns(rows("without"), source()) == source()
        worker.kill()
        stack.postgres.execute(FIRST_CHANGES, name)
        worker.start()
        wait_for(lambda found: 103 in found and 10 not in found)
        stack.postgres.execute(LATER_CHANGES, name)
        wait_for(lambda found: found[101]["price"] == 8)

        wanted = source()
        assert _columns(rows("with"), wanted) == wanted
        unread = {
            id: row | {"total": None, "upper_label": None} if id in CHANGED else row for id, row in wanted.items()
        }
        assert _columns(rows("without"), wanted) == unread
        spare = {id: row["spare"] for id, row in rows("without").items()}
        assert (spare[1], spare[11], spare[20], spare[101]) == (1, 11, 20, 101)
        notes = {
            connector: [each["where"] for each in task.get("notes", ()) if each["note"] == UNREAD.text]
            for connector in connectors
            for task in worker.tasks(f"{name}-{connector}")
        }
        assert notes == {"with": [], "without": [[f"{topic} column total", f"{topic} column upper_label"]]}
    finally:
        worker.kill()
        stack.connect.delete_connector(name)


def _columns(rows: dict[int, dict[str, Any]], like: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return the rows with only the columns that the source has."""
    columns = next(iter(like.values())).keys()
    return {id: {column: row[column] for column in columns} for id, row in rows.items()}
