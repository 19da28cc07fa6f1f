"""Find out what a chain of transforms makes of a source table, by sending synthetic records through it.

A record of the probe has the table's schema, and in each cell an object of its own. A column of the result is a copy of
a source column if its cell is the identical object. So renamed, removed, flattened and inserted columns follow from the
transforms themselves, and none of them needs a description of its effects.

The chain must treat all records of a topic alike (``Chain.varying`` is empty): then what is true of the synthetic
records is true of all.

Tests: ``tests/unit/transforms/test_column_probe.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, ConfigError
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.transforms.chain import Chain
from headrace.transforms.decoder import KeyCompletion, is_change_event
from headrace.transforms.probe_values import Text, default, sample
from headrace.transforms.record import NOTHING, SinkRecord


class Form(Enum):
    """The form of a topic's records: Debezium's envelopes, or the rows that a transform at the source has made."""

    ENVELOPES = "envelopes"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class TransformedTable:
    """What a chain makes of the records of a source table.

    ``topic`` is the one that its rows get. ``sources`` are the source columns by the names of their copies; ``changed``
    are the other columns of the rows. ``key`` are the columns of the rows' key. ``problem`` is why the rows cannot be
    matched with those of the source.
    """

    topic: str
    sources: Mapping[str, str]
    changed: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    problem: str = ""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.sources) | frozenset(self.changed)


def routed_topic(chain: Chain, topic: str) -> str | None:
    """Return the topic that the rows of a topic get; None if the chain drops them.

    The schema of the rows is not needed for it: a transform that fails without their columns does not change topics.
    """
    schema = _envelope_schema(topic, Schema("struct", optional=True, name=f"{topic}.Value"))
    value: dict[str, Any] = {"before": None, "after": {}, "source": {}, "op": "u", "ts_ms": 0}
    record = SinkRecord(topic, 0, 0, 0, NOTHING, SchemaAndValue(schema, value))
    for link in chain.links:
        if not link.wants(record):
            continue
        try:
            made = link.transform(record)
        except BadRecord:
            continue
        if made is None:
            return None
        record = made
    return record.topic


class ColumnProbe:
    """Sends records of one source table through a chain.

    ``row`` is the schema of the table's rows in events. ``defaulted`` are the columns that accept NULL and have a
    default, by which a transform may replace a null.
    """

    def __init__(
        self,
        chain: Chain,
        topic: str,
        table: TableId,
        row: Schema,
        options: EnvelopeOptions,
        defaulted: Collection[str] = (),
    ) -> None:
        self._chain, self._topic, self._table, self._options = chain, topic, table, options
        self._row = replace(row, optional=True, name=f"{topic}.Value")
        self._schemas = {member.name: member.schema for member in row.fields}
        self._defaulted = frozenset(defaulted)
        self._key_completion = KeyCompletion(options.key_fields)

    def result(self, key: Sequence[str], form: Form) -> TransformedTable:
        """Return what the chain makes of records in ``form``, whose key is the columns ``key``.

        Raises ConfigError if the chain cannot transform them, or drops them.
        """
        originals = {name: sample(schema) for name, schema in self._schemas.items()}
        keys = {name: originals[name] for name in key}
        try:
            first = self._send(form, keys, keys)
        except BadRecord as error:
            raise ConfigError(f"{self.name}: the connector's transforms cannot transform its rows: {error}") from error
        if first is None:
            raise ConfigError(f"{self.name}: the connector's transforms drop all of its rows")
        names, copies = dict.fromkeys(self._row_of(first)), dict[str, str]()
        for column, original in originals.items():  # one at a time: a transform may be unable to convert the object
            try:
                result = self._send(form, {**keys, column: original}, keys)
            except BadRecord:
                continue
            for name, value in self._row_of(result).items():
                names[name] = None
                if value is original and self._is_of_type(result, name, self._schemas[column]):
                    copies[name] = column
        replaced = self._replaced_nulls(form, keys)
        sources = {
            name: column
            for name, column in copies.items()
            if column not in self._defaulted or (replaced is not None and replaced.get(name) is None)
        }
        changed = tuple(name for name in names if name not in sources)
        key_columns = self._options.key_fields or tuple(_members(first.key))
        made = TransformedTable(first.topic, sources, changed, key_columns)
        return replace(made, problem=self._problem(form, originals, keys, made))

    @property
    def name(self) -> str:
        return f"{self._table.schema}.{self._table.table}"

    def _send(
        self, form: Form, cells: Mapping[str, Any] | None, key: Mapping[str, Any], row: Schema | None = None
    ) -> SinkRecord | None:
        """Return the result for a change of a row, or for its delete if ``cells`` is None. Raises BadRecord."""
        row = row or self._row
        schema, value = row, None if cells is None else {member.name: cells.get(member.name) for member in row.fields}
        if form is Form.ENVELOPES:
            schema, value = _envelope_schema(self._topic, row), self._envelope(value, key)
        data = NOTHING if value is None else SchemaAndValue(schema if self._options.value_schemas else None, value)
        result = self._chain.apply(SinkRecord(self._topic, 0, 0, 0, self._key_data(key), data))
        return None if result is None else self._key_completion.complete(result)

    def _envelope(self, after: Mapping[str, Any] | None, key: Mapping[str, Any]) -> dict[str, Any]:
        """Return an envelope. That of a delete has the key only, as with PostgreSQL's default REPLICA IDENTITY."""
        names = {"name": self._table.name, "db": self._table.database}
        source = {"connector": "postgresql", **names, "schema": self._table.schema, "table": self._table.table}
        before = {name: key.get(name) for name in self._schemas} if after is None else None
        return {"before": before, "after": after, "source": source, "op": "d" if after is None else "u", "ts_ms": 0}

    def _key_data(self, key: Mapping[str, Any]) -> SchemaAndValue:
        if not key:
            return NOTHING
        fields = tuple(Field(name, self._schemas[name]) for name in key)
        schema = Schema("struct", name=f"{self._topic}.Key", fields=fields) if self._options.key_schemas else None
        return SchemaAndValue(schema, dict(key))

    def _row_of(self, record: SinkRecord | None) -> Mapping[str, Any]:
        """Return the row of a result, without the metadata that ExtractNewRecordState adds."""
        data = NOTHING if record is None else record.value
        row = data.value.get("after") if is_change_event(data) else data.value
        return {name: cell for name, cell in _members(row).items() if name not in self._options.added.fields}

    @staticmethod
    def _is_of_type(record: SinkRecord | None, name: str, source: Schema) -> bool:
        """Whether a column of the result has the type of its source; also if the records have no schemas."""
        if record is None or record.value.schema is None:
            return True
        row = record.value.schema.field("after") if is_change_event(record.value) else record.value.schema
        made = None if row is None else row.field(name)
        return made is not None and replace(made, optional=source.optional) == source

    def _replaced_nulls(self, form: Form, key: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the row that becomes of nulls in columns with a default; None if it cannot be transformed."""
        if not self._defaulted:
            return {}
        fields = (
            Field(member.name, replace(member.schema, default=default(member.schema)))
            if member.name in self._defaulted
            else member
            for member in self._row.fields
        )
        try:
            return self._row_of(self._send(form, key, key, replace(self._row, fields=tuple(fields))))
        except BadRecord:
            return None

    def _problem(self, form: Form, originals: Mapping[str, Any], key: Mapping[str, Any], made: TransformedTable) -> str:
        """Return why rows cannot be matched; "" if rows and deletes have one key, of copies of source columns."""
        if changed := [name for name in made.key if name not in made.sources]:
            return (
                "its rows cannot be matched with those of the lake: the connector's transforms make key column(s) "
                f"{', '.join(changed)}, which are no copies of source columns"
            )
        copies = {name: originals[made.sources[name]] for name in made.key}
        cells = {made.sources[name]: original for name, original in copies.items()}
        deletes = [result for result in self._deletes(form, key) if result is not None and result.topic == made.topic]
        if not deletes:
            return (
                "the connector's transforms drop its deletes, fail on them, or route them to another topic, so that "
                "the lake table keeps rows which the source does not have; let them pass (with ExtractNewRecordState "
                "by delete.tombstone.handling.mode=rewrite)"
            )
        for record in (self._send(form, {**key, **cells}, key), deletes[0]):
            keys = {} if record is None else _members(record.key)
            if not self._options.key_fields and any(keys.get(name) is not cell for name, cell in copies.items()):
                return (
                    "its rows cannot be matched with those of the lake: the connector's transforms give the key of a "
                    "row, or of its delete, other values than the columns of the row have"
                )
        return ""

    def _deletes(self, form: Form, key: Mapping[str, Any]) -> Iterator[SinkRecord | None]:
        """Yield the results of a delete that still delete. Rows may be deleted by a null or by ``__deleted``."""
        with suppress(BadRecord):  # then it goes to the dead letter queue
            result = self._send(form, None, key)
            if result is None or not is_change_event(result.value) or result.value.value["op"] == "d":
                yield result
        if form is Form.ROWS:
            mark = next(name for name, field in self._options.added.fields.items() if field == "deleted")
            text = Text("true")
            marked = replace(self._row, fields=(*self._row.fields, Field(mark, Schema("string", optional=True))))
            with suppress(BadRecord):
                result = self._send(form, {**key, mark: text}, key, marked)
                if result is not None and _members(result.value).get(mark) is text:
                    yield result


def transformed_table(
    probe: ColumnProbe, key: Sequence[str], stored_key: Sequence[str] = (), stored: Collection[str] = ()
) -> TransformedTable:
    """Return what a chain makes of a table with the source's ``key``.

    ``stored`` are the lake table's columns and ``stored_key`` its key; both are empty if it does not exist. They show
    the form of the topic's records, and their key, which the source connector may have configured. If both forms fit
    equally, a column is a copy if it is one in both. Raises ConfigError if no rows can be matched with the source's.
    """
    made, errors = [], []
    for form in Form:
        try:
            made.append(_with_stored_key(probe, key, stored_key, form))
        except ConfigError as error:
            errors.append(error)
    if not made:
        raise errors[0]
    unlike = [len(table.names ^ frozenset(stored)) if stored else 0 for table in made]
    fitting = [table for table, count in zip(made, unlike, strict=True) if count == min(unlike)]
    chosen = next((table for table in fitting if not table.problem), fitting[0])
    if chosen.problem:
        raise ConfigError(f"{probe.name}: {chosen.problem}")
    sources = {
        name: column
        for name, column in chosen.sources.items()
        if all(table.sources.get(name) == column for table in fitting)
    }
    changed = dict.fromkeys(name for table in fitting for name in (*table.sources, *table.changed))
    return replace(chosen, sources=sources, changed=tuple(name for name in changed if name not in sources))


def _with_stored_key(probe: ColumnProbe, key: Sequence[str], stored_key: Sequence[str], form: Form) -> TransformedTable:
    """Return the result for a key that becomes ``stored_key``. Raises ConfigError as ``ColumnProbe.result``."""
    made = probe.result(key, form)
    if stored_key and set(made.key) != set(stored_key):
        made = probe.result([made.sources[name] for name in stored_key if name in made.sources], form)
        if set(made.key) != set(stored_key):
            problem = (
                f"its rows cannot be matched: the lake table has the key {', '.join(stored_key)}, but the connector's "
                f"transforms make the key {', '.join(made.key) or '(none)'}; set primary.key.fields"
            )
            return replace(made, problem=problem)
    return made


def _members(data: Any) -> Mapping[str, Any]:
    value = data.value if isinstance(data, SchemaAndValue) else data
    return value if isinstance(value, dict) else {}


def _envelope_schema(topic: str, row: Schema) -> Schema:
    text, number = Schema("string", optional=True), Schema("int64", optional=True)
    source = tuple(Field(name, text) for name in ("version", "connector", "name", "snapshot", "db", "schema", "table"))
    transaction = tuple(Field(name, text) for name in ("id", "total_order", "data_collection_order"))
    fields = (
        Field("before", row),
        Field("after", row),
        Field("source", Schema("struct", fields=(*source, Field("ts_ms", number)))),
        Field("transaction", Schema("struct", optional=True, fields=transaction)),
        Field("op", text),
        Field("ts_ms", number),
    )
    return Schema("struct", name=f"{topic}.Envelope", fields=fields)
