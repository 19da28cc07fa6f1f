"""Records that do not fit their converter's settings: the advice, and the work until all of them are reported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest
from support.records.envelopes import change, key

from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.json_converter import EMBEDDED_SCHEMA_ADVICE, JsonConverter
from headrace.core.decode.record_decoder import RecordDecoder
from headrace.core.model.catalog import NoCatalog
from headrace.core.model.errors import BadRecord, Stage
from headrace.core.model.events import TableId
from headrace.core.model.schema import Schema
from headrace.core.model.unavailable import Mask, Placeholder

SCHEMA = {"type": "struct", "fields": [{"type": "int32", "field": "id"}]}
RECORDS = 1_024


@dataclass(frozen=True)
class Record:
    """A record as decoders read it."""

    key: bytes
    value: bytes
    offset: int
    partition: int = 0
    timestamp: int = 7
    headers: Sequence[tuple[str, bytes]] = ()


class CountingCatalog(NoCatalog):
    """Counts how often cells without a schema are converted: each conversion looks up the types of the table."""

    def __init__(self) -> None:
        self.conversions = 0

    def schema(self, table: TableId) -> Schema | None:
        """Nothing is known."""
        self.conversions += 1
        return None


class CountingPlaceholder(Placeholder):
    """Counts the converted cells: each column of an event is compared with the placeholder."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = 0

    def mask(self, schema: Schema, values: pa.Array, *, embedded: bool = True) -> Mask | None:
        """As the placeholder's own."""
        self.cells += len(values)
        return super().mask(schema, values, embedded=embedded)


PLAIN = {"key_schemas": False, "value_schemas": False}


def decoded(records: Sequence[Record], catalog: NoCatalog | None = None, **options: object) -> Decoded:
    return RecordDecoder("t", EnvelopeOptions(**options), catalog).decode(records)  # type: ignore[arg-type] # options of EnvelopeOptions


def refusals(result: Decoded) -> set[tuple[Stage, str]]:
    return {(each.stage, str(each.error)) for each in result.errant}


@pytest.mark.parametrize(
    "document",
    [
        {"schema": SCHEMA, "payload": {"id": 1}},
        {"payload": {"id": 1}, "schema": SCHEMA},
        {"schema": SCHEMA, "payload": None},
        {"schema": None, "payload": {"op": "c"}},
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_with_its_schema_is_no_row(document: object, indent: int | None) -> None:
    """In any layout, an object of exactly schema and payload is refused where schemas are not expected."""
    with pytest.raises(BadRecord) as refused:
        JsonConverter(False).split(json.dumps(document, indent=indent).encode())
    assert str(refused.value) == EMBEDDED_SCHEMA_ADVICE


@pytest.mark.parametrize(
    "row",
    [
        {"schema": "public", "payload": "text"},
        {"schema": None, "payload": None},
        {"schema": None, "payload": 5},
        {"schema": {}, "payload": {}, "id": 1},
        {"schema": {}},
        {"id": 1, "schema": {}, "payload": {}},
    ],
)
def test_a_row_with_such_columns_is_a_row(row: object) -> None:
    """A row may have columns of these names: other members, and a schema that is no object, show it."""
    document = json.dumps(row).encode()
    assert JsonConverter(False).split(document) == (None, document)


@pytest.mark.parametrize("flattened", [False, True])
def test_values_with_schemas_are_bad_records(flattened: bool) -> None:
    """Each of them is refused at the value's converter; the records between them are decoded."""
    plain = change("c", {"id": 1}, 1, schemas=False)
    embedded = json.dumps({"schema": SCHEMA, "payload": {"id": 2}}).encode()
    if flattened:
        plain = json.dumps({"id": 1, "__op": "c", "__lsn": 1, "__table": "t"}).encode()
    values = [embedded, plain, embedded]
    result = decoded([Record(b'{"id":1}', value, n) for n, value in enumerate(values)], None, **PLAIN)
    assert [each.index for each in result.errant] == [0, 2]
    assert refusals(result) == {(Stage.VALUE_CONVERTER, EMBEDDED_SCHEMA_ADVICE)}
    assert [len(changes) for changes in result.events] == [1]  # type: ignore[arg-type] # changes of rows


@pytest.mark.parametrize("value_schemas", [False, True])
def test_keys_with_schemas_are_bad_records(value_schemas: bool) -> None:
    """Each of them is refused at the key's converter, whatever the value is: Kafka Connect converts keys first."""
    values = [change("c", {"id": n}, n + 1, schemas=value_schemas) for n in range(3)]
    records = [Record(key({"id": n}), value, n) for n, value in enumerate(values)]
    result = decoded(records, None, key_schemas=False, value_schemas=value_schemas)
    assert len(result.errant) == 3
    assert refusals(result) == {(Stage.KEY_CONVERTER, EMBEDDED_SCHEMA_ADVICE)}


def test_key_columns_that_no_event_has_are_found_before_any_cell_is_converted() -> None:
    """Every event is reported; the rest of a poll is not converted once for each of them."""
    catalog = CountingCatalog()
    records = [Record(b'{"id":1}', change("c", {"id": n}, n + 1, schemas=False), n) for n in range(RECORDS)]
    result = decoded(records, catalog, **PLAIN, key_fields=("number",))
    assert len(result.errant) == RECORDS
    [(stage, text)] = refusals(result)
    assert stage is Stage.TASK_PUT
    assert text.startswith("primary.key.fields names number, which the event's row does not have; correct the option")
    assert [each for each in result.errant if each.error.__context__] == []  # no trace repeats it as its own cause
    assert catalog.conversions == 0


def test_values_that_conflict_are_found_in_one_conversion() -> None:
    """Every second value has another type: all of them are reported by the first conversion of their column."""
    catalog = CountingCatalog()
    values = [change("c", {"id": n, "v": n if n % 2 else "text"}, n + 1, schemas=False) for n in range(RECORDS)]
    result = decoded([Record(b'{"id":1}', value, n) for n, value in enumerate(values)], catalog, **PLAIN)
    assert [each.index for each in result.errant] == list(range(1, RECORDS, 2))
    assert refusals(result) == {(Stage.TASK_PUT, "column 'v': a value has another type than the column's other values")}
    assert catalog.conversions == 2


def test_values_that_do_not_fit_are_found_by_halves() -> None:
    """Half of a poll does not fit its type: the conversions of all other events do not grow with their number."""
    columns = {"id": 1, "v": 1.5}
    events = [change("c", {"id": n, "v": "text" if n % 2 else 0.5}, n + 1, columns=columns) for n in range(RECORDS)]
    placeholder = CountingPlaceholder()
    result = decoded(
        [Record(key({"id": 1}), value, n) for n, value in enumerate(events)], None, placeholder=placeholder
    )
    assert [each.index for each in result.errant] == list(range(1, RECORDS, 2))
    assert {each.stage for each in result.errant} == {Stage.TASK_PUT}
    assert placeholder.cells < 20 * RECORDS
