"""Which nulls of an update are values and which may hide one, for each connector."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.decode.cell_states import SOURCE_LENGTH, SOURCE_TYPE, null_may_hide, schema_with_doubt
from headrace.core.model.catalog import CatalogColumn, HandlingModes, SqlType
from headrace.core.model.events import CellState, Changes, Column, TableId, Versions
from headrace.core.model.inferred_types import infer_schema, is_inferred, resolve_untyped_nulls
from headrace.core.model.schema import Schema

MODES, WITH_LOBS = HandlingModes(), HandlingModes(lob_enabled=True)
TEXT, BYTES = Schema("string", optional=True), Schema("bytes", optional=True)
XML = Schema("string", optional=True, name="io.debezium.data.Xml")
INSTANT = Schema("string", optional=True, name="io.debezium.time.ZonedTimestamp")
LONG_DECIMAL = Schema(
    "bytes", optional=True, name="org.apache.kafka.connect.data.Decimal", parameters=(("scale", "10"),)
)
NUMBER = Schema("struct", optional=True, name="io.debezium.data.VariableScaleDecimal")


@pytest.mark.parametrize("connector", ["mysql", "mariadb", "sqlserver", "db2"])
@pytest.mark.parametrize("schema", [TEXT, BYTES, LONG_DECIMAL, NUMBER, infer_schema([None])])
def test_a_null_is_a_value_if_the_connector_uses_placeholders(connector: str, schema: Schema) -> None:
    """These databases send the columns that PostgreSQL omits as null, so a null is the value."""
    assert not null_may_hide(connector, schema, None, MODES)


def test_the_rules_of_postgres_apply_to_unknown_connectors() -> None:
    """PostgreSQL's rules apply to YugabyteDB and to an event that names no connector."""
    for connector in ("postgresql", "yugabytedb", ""):
        assert null_may_hide(connector, LONG_DECIMAL, None, MODES)
        assert not null_may_hide(connector, TEXT, None, MODES)


@pytest.mark.parametrize("schema", [TEXT, BYTES, XML, infer_schema(["a"]), infer_schema([None])])
def test_a_null_of_oracle_may_hide_a_lob(schema: Schema) -> None:
    """A null of text or bytes without a known type may hide a LOB, unless the connector reads LOBs."""
    assert null_may_hide("oracle", schema, None, MODES)
    assert not null_may_hide("oracle", schema, None, WITH_LOBS)


@pytest.mark.parametrize("schema", [NUMBER, LONG_DECIMAL, INSTANT, infer_schema([1]), infer_schema([{"scale": 1}])])
def test_a_null_that_cannot_be_a_lob_is_a_value(schema: Schema) -> None:
    """A null of a number or an instant is the value: such a column is never a LOB."""
    assert not null_may_hide("oracle", schema, None, MODES)


@pytest.mark.parametrize(("kind", "hides"), [("VARCHAR2", False), ("RAW", False), ("CLOB", True), ("blob", True)])
def test_a_known_type_decides_whether_a_null_may_hide_a_lob(kind: str, hides: bool) -> None:
    """The type comes from the database's catalog or from the connector's column.propagate.source.type."""
    column = CatalogColumn("C", 1, SqlType(0, "", kind))
    assert null_may_hide("oracle", BYTES, column, MODES) is hides
    assert null_may_hide("oracle", TEXT, CatalogColumn("C", 1, SqlType(0, "", kind), attstorage="x"), MODES)
    propagated = Schema("bytes", parameters=((SOURCE_TYPE, kind),))
    assert null_may_hide("oracle", propagated, None, MODES) is hides


@pytest.mark.parametrize(
    ("kind", "length", "hides"),
    [
        ("VARCHAR2", "4000", False),
        ("VARCHAR2", "4001", True),
        ("NVARCHAR2", "2000", False),
        ("NVARCHAR2", "2001", True),
        ("RAW", "2000", False),
        ("RAW", "32767", True),
        ("CHAR", "2000", False),
    ],
)
def test_a_text_that_is_declared_too_long_for_its_row_is_a_lob(kind: str, length: str, hides: bool) -> None:
    """Oracle stores its extended types as LOBs: the propagated length shows it, in the catalog ``attstorage``."""
    parameters = ((SOURCE_LENGTH, length), (SOURCE_TYPE, kind))
    assert null_may_hide("oracle", Schema("string", parameters=parameters), None, MODES) is hides


@pytest.mark.parametrize(
    ("kind", "state"),
    [(pa.string(), CellState.UNKNOWN), (pa.binary(), CellState.UNKNOWN), (pa.int64(), CellState.NULL)],
)
def test_without_schemas_the_stored_type_decides_what_may_be_a_lob(kind: pa.DataType, state: CellState) -> None:
    """A batch of nulls has no type; a null is a value if the stored column is a number."""
    schema = schema_with_doubt("oracle", infer_schema([None]), MODES)
    assert is_inferred(schema)
    column = Column("C", schema, pa.nulls(1), np.array([CellState.UNKNOWN], np.uint8))
    zero = np.zeros(1, np.int64)
    version = Versions("t", np.array([b""]), zero.astype(np.int32), zero, zero)
    key, table = pa.array(["=1"]), TableId("", "", "", "t")
    changes = Changes(table, ("id",), zero.astype(np.uint8), key, version, zero, (column,))
    [judged] = resolve_untyped_nulls(changes, pa.schema([("C", kind)])).columns
    assert judged.states is not None
    assert judged.states.tolist() == [state]
    assert schema_with_doubt("oracle", infer_schema([None]), WITH_LOBS) == infer_schema([None])
    assert schema_with_doubt("oracle", TEXT, MODES) is TEXT
