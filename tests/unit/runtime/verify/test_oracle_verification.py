"""The verification of a table of Oracle, against a fake of python-oracledb (``tests/fake_oracle``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from fake_oracle.driver import FakeDriver
from fake_oracle.server import OracleColumn, OracleServer, OracleTable
from support.lake.lake_actions import Row, actions, commit

from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.config.verify_options import VerifySettings
from headrace.core.model.proof import DifferingRow, VerificationReport
from headrace.core.verify.verification import source_rows
from headrace.ports import TableOptions, TopicPartition
from headrace.runtime.verify.connector_tables import ConnectorTables
from headrace.runtime.verify.continuous_verification import ContinuousVerification
from headrace_connectors.sql import OracleRowSource, oracle_tables
from headrace_dev.memory import MemoryLakehouse

TOPIC, NAME = "ora.APP.ORDERS", "ora_APP_ORDERS"
COLUMNS = (
    OracleColumn("ID", "NUMBER", 9, 0),
    OracleColumn("NOTE", "VARCHAR2", length=100),
    OracleColumn("PRICE", "NUMBER", 10, 2),
    OracleColumn("AT", "TIMESTAMP", None, 6),
)
PROPERTIES = {
    "name": "shop",
    "connector.class": "LakehouseSink",
    "topics": TOPIC,
    "reselect.database.type": "oracle",
    "reselect.database.hostname": "db.example",
    "reselect.database.user": "READER",
    "reselect.database.password": "secret",
    "reselect.database.dbname": "SHOP",
}
DEFAULTS = WorkerDefaults({"key.converter": "JsonConverter", "value.converter": "JsonConverter"}, "1.0")


class AppliedTopic:
    """Offsets of a topic whose records are all applied."""

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        return {TopicPartition(topic, 0): 1}

    def committed_offsets(self) -> Mapping[TopicPartition, int]:
        return {TopicPartition(TOPIC, 0): 1}


def order(number: int, **changed: Any) -> dict[str, Any]:
    at = "2026-01-02 03:04:05.678901000"
    return {"ID": Decimal(number), "NOTE": f"note {number}", "PRICE": Decimal("9.50"), "AT": at, **changed}


@pytest.fixture
def server() -> OracleServer:
    """Return a server with nine orders."""
    server = OracleServer()
    server.add(OracleTable("APP", "ORDERS", COLUMNS, ("ID",)), [order(number) for number in range(9)])
    return server


@pytest.fixture
def tables(server: OracleServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConnectorTables]:
    """Return the tables of a connector whose lake table has all rows of the source; the source is read in parts."""
    monkeypatch.setattr(oracle_tables, "PART_ROWS", 4)
    config, driver = sink_connector_config(PROPERTIES, DEFAULTS), FakeDriver(server)
    lakehouse = MemoryLakehouse()
    tables = ConnectorTables(config, lambda _, options: OracleRowSource(options, driver), lakehouse)
    [(id, source)] = tables.of(TOPIC)
    table, name = tables.open(TOPIC, id, source)
    assert name == NAME
    rows = pa.table(source_rows(table.wanted, next(iter(source.scan(table.catalog, table.wanted.fields)))).columns)
    lake = lakehouse.table(tables.task.namespace, name, TableOptions())
    lake.evolve(rows.schema, table.wanted.key_fields)
    cells = [Row(row) for row in rows.to_pylist()]  # as of a snapshot, which has no positions
    lake.merge(actions(rows.schema, cells, table.wanted.key_fields), commit())
    yield tables
    tables.close()


def verified(tables: ConnectorTables, timeout: float = 180.0) -> VerificationReport:
    """Return the report of one verification."""
    verification = ContinuousVerification(VerifySettings(interval=3600.0), tables, AppliedTopic(), timeout=timeout)
    try:
        verification._verify_topic(TOPIC)
        return verification.reports([TOPIC])[NAME]
    finally:
        verification.close()


def test_an_equal_table_is_proven_at_an_scn(tables: ConnectorTables, server: OracleServer) -> None:
    """The proof has the SCN, and the table was read in parts of the primary key."""
    server.statements.clear()
    report = verified(tables)
    assert (report.error, report.is_equal) == (None, True)
    assert report.proof is not None
    assert (report.proof.position, report.proof.rows) == (f"oracle:{server.scn + 1},0", 9)
    assert len([text for text, _ in server.statements if "FETCH FIRST" in text]) == 4


def test_a_row_that_differs_is_named_and_not_proven(tables: ConnectorTables, server: OracleServer) -> None:
    """The database does not report how far the source connector is, so that its change may still be on its way."""
    rows = [order(number) for number in range(9) if number != 7]
    server.commit("APP", "ORDERS", *rows[:3], order(3, PRICE=Decimal("9.51")), *rows[4:])
    report = verified(tables, timeout=2.0)
    assert (report.error, report.is_equal, report.differing, report.undecided) == (None, False, 0, 2)
    found = sorted(report.rows, key=lambda row: row.key["ID"])
    assert found == [
        DifferingRow({"ID": "3"}, "both", ("PRICE",), proven=False),
        DifferingRow({"ID": "7"}, "lake", (), proven=False),
    ]
    assert report.document(0.0)["rows"][0]["proven"] is False
