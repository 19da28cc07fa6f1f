"""Convert events in lists to ``Changes``: cells with their states, and row keys.

Tests: ``tests/unit/core/decode/test_envelope.py``, ``test_notes_on_nulls.py``, ``test_replica_identity.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.decode import binlog_order
from headrace.core.decode.cell_states import null_may_hide, schema_with_doubt, with_states
from headrace.core.decode.codec import Codec, ColumnCells
from headrace.core.decode.envelope_events import OLD_KEY_HEADER, Events
from headrace.core.decode.event_versions import EventVersions, connector_of, transactions_of
from headrace.core.decode.log_servers import log_servers
from headrace.core.model.catalog import Catalog, HandlingModes
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage
from headrace.core.model.events import Bools, Changes, Column, KeyChanges, Operation, TableId
from headrace.core.model.keys import canonical_keys
from headrace.core.model.notes import Note
from headrace.core.model.unavailable import Placeholder

NEW_KEY_HEADER = "__debezium.newkey"

UNREADABLE_KEYS = Note(
    "headers of key changes (__debezium.oldkey, __debezium.newkey) cannot be read, so such a change counts as a delete "
    "and an insert, and values that it omits are read from the database or by reselect.unresolved.insert.mode; set "
    "header.converter=org.apache.kafka.connect.json.JsonConverter at the source"
)

_MISSING_NAMED = (
    "primary.key.fields names {missing}, which the event's row does not have; correct the option, or, if only other "
    "tables of the connector have this column, read the topic with a connector of its own"
)
_MISSING = (
    "the record's key has the column(s) {missing}, which the event's row does not have; set message.key.columns at the "
    "source, or primary.key.fields, to columns of the row"
)
_NOT_A_STRUCT = (
    "the record's key {problem}, so it names no key columns; set key.converter to the converter with which the "
    "source connector writes its keys (Debezium's default is org.apache.kafka.connect.json.JsonConverter), or "
    "primary.key.fields to the columns that identify a row"
)
_SHOWN = 50
"""Columns that a message names."""

UNPUBLISHED_TABLE = Note(
    "no publication of the database contains the table, so only snapshots send its rows, and the lake table becomes "
    "stale; add the table to the source connector's publication (ALTER PUBLICATION … ADD TABLE …)"
)
UNPUBLISHED_PARTITION = Note(
    "no publication of the database contains this partition under its own name, so only snapshots send its rows, and "
    "the lake table becomes stale (publish.via.partition.root=true sends its changes under the partitioned table); "
    "exclude the partition at the source connector (table.exclude.list) or from the connector's topics"
)
UNPUBLISHED_ROOT = Note(
    "no publication of the database contains this partitioned table under its own name, so its changes are sent under "
    "its partitions, and the lake table becomes stale unless their topics are routed to it; publish them under the "
    "table (ALTER PUBLICATION … SET (publish_via_partition_root = true)) or exclude the table"
)
HIDDEN_NULL = Note(
    "a null of an update may hide a value that did not change, and no database is configured to read it from: with "
    "reselect.unknown.null.mode=keep, the default, the stored value stays even if the update has set it to NULL; "
    "configure reselect.database.*, or set reselect.unknown.null.mode=null if the column's values are never omitted"
)
DEFAULT_OF_NULLABLE = Note(
    "the column accepts NULL and has a default, and no null of it has arrived since the task started: the source "
    "connector's converter writes the default in the place of NULL by default, which events do not show; "
    "set value.converter.replace.null.with.default=false there (AvroConverter of Confluent: "
    "value.converter.ignore.default.for.nullables=true)"
)

_OMIT_GENERATED = frozenset({"postgresql"})
"""The connectors whose streamed events lack generated columns."""


class ChangesBuilder:
    """Build the Changes of one topic.

    ``named_keys`` is whether the operator has configured the key's columns.
    """

    def __init__(
        self,
        versions: EventVersions,
        catalog: Catalog,
        placeholder: Placeholder,
        modes: HandlingModes,
        embedded: bool,
        keyless: bool = False,
        named_keys: bool = False,
    ) -> None:
        self.versions = versions
        self._keyless = keyless
        self._named_keys = named_keys
        self._catalog = catalog
        self._placeholder = placeholder
        self._modes = modes
        self._embedded = embedded
        self._binlog_order = binlog_order.BinlogOrder()
        self._unlisted: dict[TableId, set[str]] = {}  # columns in events that the catalog does not have
        self._with_nulls: set[str] = set()  # columns with a default of which a null has arrived
        self.notes: list[Note] = []
        """Notes on the events, until the caller takes them."""

    def changes(self, table: TableId, codec: Codec, events: Events) -> Changes:
        """The events of one table in columns. Raises BadRecord with the place of an event that does not fit.

        Those of a partition are given in order of arrival; after an error they are given again without the event.
        """
        changes = self._changes(table, codec, events)
        if connector_of(events) == binlog_order.CONNECTOR and not self._keyless:  # proven: equal-positions-refused
            self._binlog_order.check(changes)
        return changes

    def misfits(self, table: TableId, codec: Codec, events: Events) -> dict[int, BadRecord]:
        """Return the events that do not fit by themselves, by their place, in few conversions even of many events."""
        try:
            self._changes(table, codec, events)
        except BadRecord as error:
            if len(events) == 1:
                return {0: error}
        else:
            return {}
        # Outside of the handler: there the error of all events would be shown as the cause of each event's own error.
        half = len(events) // 2
        first = self.misfits(table, codec, events.slice(0, half))
        second = self.misfits(table, codec, events.slice(half, len(events)))
        return first | {half + place: problem for place, problem in second.items()}

    def _changes(self, table: TableId, codec: Codec, events: Events) -> Changes:
        if codec.key_fields or not self._keyless:
            _refuse_without_key(codec, events, named=self._named_keys)
        old_documents, new_documents = _key_changes(events)
        arrays = self._plain_cells(table, codec, events) if codec.schemaless else codec.columns(events.rows, None)
        operations = np.frombuffer(bytes(events.operations), np.uint8)
        # A key change of id 1 to 2 arrives as d(1) with header newkey={"id":2}, then c(2) with header
        # oldkey={"id":1}. The create is an update in its source: nulls in it may hide values of the old row.
        columns = self._classify(table, arrays, events, operations, list(old_documents))
        by_name = {column.name: column for column in columns}
        self.notes += sorted(codec.notes, key=repr)
        if unordered := self.versions.unordered(events, by_name):
            self.notes.append(unordered)
        if not codec.key_fields and self._keyless:
            key = pa.nulls(len(events), pa.string())
        else:
            key = canonical_keys([by_name[name].values for name in codec.key_fields])
            if key.null_count:
                null = int(np.flatnonzero(np.asarray(key.is_null()))[0])
                raise BadRecord("a key column is null", index=null, stage=Stage.TASK_PUT)
        old_keys, new_keys = (codec.canonical(documents, by_name) for documents in (old_documents, new_documents))
        if len(old_keys) < len(old_documents) or len(new_keys) < len(new_documents):
            self.notes.append(UNREADABLE_KEYS)
        if self._named_keys and not self._keyless:
            _refuse_deletes_of_kept_rows(codec.key_fields, key, new_keys)
        version = self.versions.of(events, by_name)
        return Changes(
            table=table,
            key_fields=codec.key_fields,
            operation=operations,
            key=key,
            version=version,
            transaction=transactions_of(events.sources),
            columns=columns,
            key_changes=KeyChanges(old_keys, frozenset(new_keys), new_keys),
            omits_generated=connector_of(events) in _OMIT_GENERATED,
            servers=log_servers(events.sources, version.position),
        )

    def _plain_cells(self, table: TableId, codec: Codec, events: Events) -> Iterable[ColumnCells]:
        """Cells of JSON without schemas. A row is rejected only if it does not match the table's current types."""
        cached = self._catalog.schema(table)
        if cached is not None:
            unlisted = self._unlisted.setdefault(table, set())
            names = set[str]().union(*events.rows)
            if names - unlisted - {member.name for member in cached.fields}:
                # Events have a column that the catalog did not have before. Its type would be guessed from its values,
                # and the lake's column would keep that type. So the catalog is read again.
                cached = self._catalog.schema_now(table)
                listed = set[str]() if cached is None else {member.name for member in cached.fields}
                unlisted |= names  # a dropped column, which later events still have, is queried once
                unlisted -= listed
        try:
            return list(codec.columns(events.rows, cached))
        except BadRecord:
            now = None if cached is None else self._catalog.schema_now(table)
            if now == cached:
                raise
        return list(codec.columns(events.rows, now))

    def _classify(
        self,
        table: TableId,
        arrays: Iterable[ColumnCells],
        events: Events,
        operations: npt.NDArray[np.uint8],
        key_changes: list[int],
    ) -> tuple[Column, ...]:
        connector = connector_of(events) or ""
        entry = self._catalog.table(table)
        if entry is not None and not entry.published:
            table_note = UNPUBLISHED_ROOT if entry.relkind == "p" else UNPUBLISHED_TABLE
            self.notes.append(UNPUBLISHED_PARTITION if entry.partition else table_note)
        by_name = {} if entry is None else {column.name: column for column in entry.columns}
        # Also in snapshot reads: there, a text equal to the placeholder is the row's value.
        may_omit = (operations != Operation.DELETE) & (operations != Operation.TOMBSTONE)
        may_hide = operations == Operation.UPDATE
        may_hide[key_changes] = True  # proven: nulls-of-new-key
        # The catalog has the current replica identity. With another one, an event does not contain the old row.
        unavailable = may_hide & ~np.array(events.before, np.bool_) if by_name else may_hide
        columns = []
        for cells in arrays:
            schema, values = cells.schema, cells.values
            placeholders = self._placeholder.mask(schema, values, embedded=self._embedded)
            if placeholders is not None:
                placeholders &= may_omit  # proven: placeholders-of-deletes
            cut = self._placeholder.ambiguous(schema, values)
            if cut is not None:
                cut &= may_omit
            column, hiding = by_name.get(cells.name), may_hide
            if column is not None and column.recoverable:
                column, hiding = replace(column, recoverable=False), unavailable
            hides = null_may_hide(connector, schema, column, self._modes)
            schema = schema_with_doubt(connector, schema, self._modes)
            absent = None if cells.absent is None else cells.absent & may_omit  # a delete has only its key
            self._note_nulls(cells, may_omit, hiding if hides and entry is None else None)
            masks = placeholders, cut, hiding if hides else None, absent
            columns.append(with_states(cells.name, schema, values, *masks))
        return tuple(columns)

    def _note_nulls(self, cells: ColumnCells, images: Bools, hiding: Bools | None) -> None:
        """Note a column whose nulls the source's converter may replace, or may hide a value that nothing can read.

        ``images`` are the events with a row, ``hiding`` those whose nulls may hide a value.
        """
        schema, values = cells.schema, cells.values
        defaulted = schema.optional and schema.default is not None and cells.name not in self._with_nulls
        if not defaulted and (hiding is None or not values.null_count or pa.types.is_null(values.type)):
            return
        nulls = np.asarray(values.is_null())
        if defaulted and (nulls & images).any():
            self._with_nulls.add(cells.name)
        elif defaulted and images.any():
            self.notes.append(Note(DEFAULT_OF_NULLABLE.text, cells.name))
        if hiding is not None and (nulls & hiding).any():
            self.notes.append(Note(HIDDEN_NULL.text, cells.name))


def _refuse_without_key(codec: Codec, events: Events, *, named: bool) -> None:
    """Raise BadRecord if no event has the key columns: before the cells are converted, which may take long.

    ``named`` is whether they are those of primary.key.fields.
    """
    names = codec.key_fields
    if not names:  # the key is not a struct, such as one that StringConverter reads; nor is that of any other event
        key, problem = events.records[0].key, "is not a struct with columns"
        if isinstance(key, SchemaAndValue) and not isinstance(key.value, dict):
            type_name = key.schema.type if key.schema is not None else type(key.value).__name__
            problem = f"is of type {type_name}, not a struct"
        raise BadRecord(_NOT_A_STRUCT.format(problem=problem), index=0)
    columns = set[str]().union(*events.rows) if codec.schemaless else set(codec.names)
    if not columns.issuperset(names):
        missing = ", ".join(name for name in names if name not in columns)
        listed = sorted(columns) if codec.schemaless else codec.names
        shown = ", ".join(listed[:_SHOWN]) + (", …" if len(listed) > _SHOWN else "")
        problem = (_MISSING_NAMED if named else _MISSING).format(missing=missing)
        raise BadRecord(f"{problem}; the columns are {shown}", index=0)  # nor does any other event have them


def _refuse_deletes_of_kept_rows(names: Sequence[str], key: pa.StringArray, new_keys: Mapping[int, str]) -> None:
    """Reject a key change without a change of the row key: its delete and insert have one row and one position."""
    for place, new_key in new_keys.items():
        if key[place].as_py() == new_key:
            raise BadRecord(
                "the record's key changes and the row's key does not, so this delete would remove a row that exists: "
                f"primary.key.fields ({', '.join(names)}) names fewer columns than the record's key has; name all of "
                "them, or set message.key.columns at the source to the same columns",
                index=place,
            )


def _key_changes(events: Events) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Return, by index, the old key's document of second halves of key changes, and the new key's of first halves."""
    old_keys: dict[int, bytes] = {}
    new_keys: dict[int, bytes] = {}
    all_headers = [record.headers for record in events.records]
    for place, headers in enumerate(all_headers if any(all_headers) else ()):
        for name, value in headers:
            if name == OLD_KEY_HEADER and events.operations[place] is Operation.CREATE:
                old_keys[place] = value or b""
            elif name == NEW_KEY_HEADER:
                new_keys[place] = value or b""
    return old_keys, new_keys
