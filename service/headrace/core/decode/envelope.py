"""Decode Debezium envelopes (before, after, op, source, ts_ms) to change events in columns.

``TopicDecoder.decode`` takes the records of one partition in order and returns ``Changes`` and ``Truncate`` in the same
order, and the records that cannot be decoded by index with their stage. Records are decoded in runs that share a
schema, with one msgspec call per run, and one Arrow array per column and run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cachetools import LRUCache

from headrace.core.decode.codec import Codec, Source, source_with
from headrace.core.decode.decoded import Decoded, InsufficientMetadata, RoutedEvents, SnapshotBegan, TableAltered
from headrace.core.decode.envelope_block import Block, Unsuited, block_events
from headrace.core.decode.envelope_columns import ChangesBuilder
from headrace.core.decode.envelope_events import NO_SOURCE, EventReader, Events, Run
from headrace.core.decode.event_versions import EventVersions
from headrace.core.decode.flattened import (
    NO_ORDER,
    FlatCodec,
    FlattenedReader,
    MetadataNames,
    has_no_order,
    is_flattened,
    lacks_metadata,
    plain_is_flattened,
)
from headrace.core.decode.json_converter import Document, JsonConverter
from headrace.core.decode.log_servers import log_servers
from headrace.core.decode.records import Errant, KafkaRecord
from headrace.core.decode.schema_changes import schema_changes
from headrace.core.decode.topic_tables import IGNORED_TOMBSTONES, TABLE_UNKNOWN, TopicTables, Unapplied
from headrace.core.model.catalog import Catalog, HandlingModes, NoCatalog
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage
from headrace.core.model.events import NO_POSITION, Operation, RowVersion, Truncate
from headrace.core.model.notes import Note
from headrace.core.model.positions import Ordering
from headrace.core.model.schema import Schema
from headrace.core.model.unavailable import Placeholder

BLOCK = 512
"""The records that are decoded at once: few enough for the cache of a CPU core, which halves the time."""

_CODECS = 64  # a topic has a few schemas; with more, they do not repeat

_BEGIN_OF_SNAPSHOT = ("first", "first_in_data_collection")
"""``source.snapshot`` of the first row of a snapshot, and of a table's first row in it. Incremental ones have none."""

_SCHEMA_CHANGE = "SchemaChangeValue"
_NOT_ROWS = ("Heartbeat", "TransactionMetadataValue", "Notification", _SCHEMA_CHANGE, "MessageValue")

_ADVICE = (
    "set value.converter to the converter with which the source connector writes its values (Debezium's default is "
    "org.apache.kafka.connect.json.JsonConverter), or use a transform that makes structs"
)

NO_POSITIONS = Note(
    "the source block has no position that orders changes, so they are applied in order of arrival, and late ones "
    "count; set ordering.field to a field that orders them, if there is one"
)


@dataclass(frozen=True, slots=True)
class EnvelopeOptions:
    """The options of a connector for decoding.

    ``key_fields`` overrides the record key's field names. ``added`` are the names of metadata in flattened records.
    ``keyless`` accepts records without a key, for tables that every event is appended to. ``ordering`` provides
    positions if the source has none. ``tables_apart`` is whether lake tables are named after source tables, so that one
    topic may have several.
    """

    key_schemas: bool = True
    value_schemas: bool = True
    placeholder: Placeholder = field(default_factory=Placeholder)
    modes: HandlingModes = field(default_factory=HandlingModes)
    position_epoch: int = 0
    key_fields: tuple[str, ...] = ()
    added: MetadataNames = field(default_factory=MetadataNames)
    keyless: bool = False
    ordering: Ordering | None = None
    tables_apart: bool = False


class TopicDecoder:
    """Decode the records of one topic. It caches the codecs of schemas. Not thread-safe.

    ``packs`` are the connectors whose events are not changes of rows: they have decoders of their own.
    """

    def __init__(
        self, topic: str, options: EnvelopeOptions, catalog: Catalog | None = None, packs: Iterable[str] = ()
    ) -> None:
        self._topic = topic
        self._options = options
        self._values = JsonConverter(options.value_schemas)
        named = bool(options.key_fields)
        self._reader = EventReader(options.key_schemas, options.keyless, named)
        self._flattened = FlattenedReader(options.key_schemas, topic, options.added, options.keyless, named)
        self._builder = ChangesBuilder(
            EventVersions(topic, options.position_epoch, options.ordering, frozenset(packs)),
            catalog or NoCatalog(),
            options.placeholder,
            options.modes,
            options.value_schemas,
            options.keyless,
            named,
        )
        by = options.ordering
        self._source = source_with(by.field) if by is not None and by.of_source else Source
        self._codecs: LRUCache[int, tuple[Schema | None, Codec | None]] = LRUCache(_CODECS)
        self._last: Codec | None = None
        self._plain_is_flat: bool | None = None
        self._noted: set[Note] = set()
        self._notes: list[Note] = []
        self._tables = TopicTables(topic, options.tables_apart, self._reader.key_schema_name)

    def decode(self, records: Sequence[KafkaRecord]) -> Decoded:
        """Decode records of one partition, in order of arrival. The result lists bad records; none raises an error."""
        out, codec, events, early = Decoded(), None, Events(), Run()
        if records:
            self._tables.begin(records)
        # Tombstones with which a partition begins wait in ``early`` for an event that shows their table: after a
        # restart behind d(id=7), the first record may be its tombstone, of one of several tables.
        for schema, run in self._runs(records):
            out.errant += run.errant
            if self._tables.begins_unknown and not len(events):
                # A null whose headers name its table is a flattened delete, which needs no event before it.
                names_table = self._options.added.names_table
                named = {index for index in run.tombstones().indexes if names_table(records[index].headers)}
                early.extend(run.leading_tombstones(named))
            if not run.indexes:
                continue
            altered = self._schema_changes(schema, records, run)
            try:
                current = self._codec(schema, records, run)
                out.skipped += len(run.values) if current is None else 0
            except BadRecord as error:  # no value of this schema is a row
                current = None
                out.errant += [Errant(index, Stage.TASK_PUT, error) for index in run.values]
            if current is None:  # such values are not decoded, but the tombstones between them are
                run, current = run.tombstones(), self._tables.tail.codec
                out.skipped += 0 if current else len(run.indexes)  # their deletes came before a restart
            # Events of consecutive runs with one codec become one Changes. A schema change stays between the events
            # before and after it, because it invalidates the catalog for the later ones only.
            if current is not codec or altered:
                out.add(self._table_events(codec, events))
                codec, events = current, Events()
            out.messages += altered
            if current is not None:
                self._tables.tail.codec = current
                later, refused = self._read(current, records, run, early)
                events = events.followed_by(later)
                out.add(refused)
        out.add(self._table_events(codec, events))
        if early.indexes:  # no event came after them
            events, refused = self._early(self._last, records, early, Events())
            out.add(refused)
            out.add(self._table_events(self._last, events))
        if records:
            self._tables.end(records)
        out.errant.sort(key=lambda errant: errant.index)
        out.notes, self._notes = self._notes, []
        return out

    def decode_block(self, block: Block) -> Decoded | None:
        """Decode records of one value schema column by column; None if they have to be decoded one by one."""
        _, codec = self._codecs.get(id(self._values.intern(block.schema)), (None, None))
        if type(codec) is not Codec:  # no envelope of this schema has been decoded before
            return None
        try:
            events = block_events(block, codec, self._reader.key_row)
        except (BadRecord, Unsuited):
            return None
        self._tables.begin(block.records)
        self._tables.see(events)
        if self._tables.tombstones_to_omit(events):
            return None
        self._last = codec
        out = self._table_events(codec, events)
        self._tables.end(block.records)
        out.notes, self._notes = self._notes, []
        return out

    @property
    def reads_blocks(self) -> bool:
        """Whether records may be decoded in blocks, column by column; not if they are flattened."""
        return self._last is None or type(self._last) is Codec

    def discard_notes(self, notes: Sequence[Note]) -> None:
        """Discard notes whose records will be decoded again."""
        self._noted.difference_update(notes)

    # -- runs of one schema ---------------------------------------------------------------------------------

    def _runs(self, records: Sequence[KafkaRecord]) -> Iterator[tuple[Schema | None, Run]]:
        """Split into runs of one value schema, of at most one block. A tombstone belongs to the run before it."""
        for begin in range(0, len(records), BLOCK):
            documents = [record.value for record in records[begin : begin + BLOCK]]
            leading = next((at for at, document in enumerate(documents) if document is not None), len(documents))
            if leading and (begin or self._tables.tail.codec is not None):
                yield None, Run(list(range(begin, begin + leading)), [None] * leading)
                begin, documents = begin + leading, documents[leading:]
            if not documents:
                continue
            alike = self._values.split_alike(documents)
            if alike is not None:
                yield alike[0], Run(list(range(begin, begin + len(documents))), alike[1])
            else:
                yield from self._mixed_runs(begin, documents)

    def _read(self, codec: Codec, records: Sequence[KafkaRecord], run: Run, early: Run) -> tuple[Events, Decoded]:
        """Return the events of a run, and before them the tombstones in ``early``, which wait for the first event.

        Returns also what else the run contains: bad and skipped records.
        """
        reader = self._flattened if isinstance(codec, FlatCodec) else self._reader
        others = Decoded(skipped=self._tables.drop_repeated(codec, records, run))
        events = Events()
        if run.indexes:
            events, unread = reader.read(codec, records, run)
            others.add(unread)
        for index in reversed(self._tables.complete(events)) if reader is self._flattened else ():
            others.add(self._refuse_or_ignore(events.remove(index), Unapplied.UNKNOWN, True))
        if early.indexes and len(events):
            first, refused = self._early(codec, records, early, events)
            others.add(refused)
            events = first.followed_by(events)
        return events, others

    def _early(
        self, codec: Codec | None, records: Sequence[KafkaRecord], early: Run, events: Events
    ) -> tuple[Events, Decoded]:
        """Return the tombstones at the begin of a partition, before ``events``, whose table is certain.

        Returns also those that are refused or ignored.
        """
        flattened, certain, others = isinstance(codec, FlatCodec), Run(), Decoded()
        for index in early.indexes:
            if codec is not None and self._tables.certain(records[index], events):
                certain.add(index, None)
            else:
                alone = flattened or self._options.added.in_headers(records[index].headers)
                others.add(self._refuse_or_ignore(index, Unapplied.EARLY, alone))
        early.clear()
        if codec is None or not certain.indexes:
            return Events(), others
        tombstones, unread = (self._flattened if flattened else self._reader).read(codec, records, certain)
        others.add(unread)
        return tombstones, others

    def _mixed_runs(
        self, begin: int, documents: Sequence[bytes | Document | SchemaAndValue | None]
    ) -> Iterator[tuple[Schema | None, Run]]:
        run, current, begun = Run(), None, False
        for index, document in enumerate(documents, begin):
            if document is None:
                run.add(index, None)
                continue
            try:
                schema, payload = self._values.split(document)
            except BadRecord as error:
                run.errant.append(Errant(index, Stage.VALUE_CONVERTER, error))
                continue
            if begun and schema is not current:
                yield current, run
                run = Run()
            current, begun = schema, True
            run.add(index, payload)
        if run.indexes or run.errant:
            yield current, run

    def _codec(self, schema: Schema | None, records: Sequence[KafkaRecord], run: Run) -> Codec | None:
        """Return the codec of a run, None for values that are not rows (heartbeats, messages…). Raises BadRecord."""
        if run.only_tombstones and self._tables.tail.codec is not None:
            return self._tables.tail.codec
        if schema is None and self._options.value_schemas and run.only_tombstones:
            if self._last is None and not self._options.key_schemas:
                return None  # the types of these keys are unknown
            return self._last or self._compile(None, records, run)
        key = id(schema)
        if key not in self._codecs:
            if schema is not None and (schema.name or "").endswith(_NOT_ROWS):
                compiled = None
            elif schema is not None and schema.type != "struct":
                raise BadRecord(f"the value is {schema.name or schema.type} instead of a row; {_ADVICE}")
            else:
                compiled = self._compile(schema, records, run)
                if not compiled.key_fields or (schema is None and self._plain_is_flat is None):
                    return compiled  # perhaps only truncates or tombstones so far: a later record shows the key
            self._codecs[key] = (schema, compiled)  # holds the schema, so that its id stays unique
        codec = self._codecs[key][1]
        self._last = codec or self._last
        return codec

    def _schema_changes(
        self, schema: Schema | None, records: Sequence[KafkaRecord], run: Run
    ) -> Sequence[TableAltered]:
        """Return the schema changes in a run; without schemas, only before the first row of the topic."""
        if not ((schema.name or "").endswith(_SCHEMA_CHANGE) if schema is not None else self._plain_is_flat is None):
            return ()
        altered = []
        for index, payload in zip(run.indexes, run.payloads, strict=True):
            record = records[index]
            for change in schema_changes(payload):
                try:
                    position = change.position(self._options.position_epoch)
                except BadRecord:
                    position = NO_POSITION
                time = change.source_time(record.timestamp)
                version = RowVersion(position, self._topic, record.partition, record.offset, time)
                altered.append(TableAltered(change, version))
                for note in change.notes:
                    self._note(note)
        return altered

    def _compile(self, schema: Schema | None, records: Sequence[KafkaRecord], run: Run) -> Codec:
        key_schema, names = self._reader.key_shape(records[index] for index in run.indexes)
        key_fields = self._options.key_fields or names
        if is_flattened(schema) if schema is not None else self._are_flattened(records, run):
            return FlatCodec(schema, key_schema, key_fields, self._options.added)
        after = None if schema is None else schema.field("after")
        if after is not None and after.type != "struct":
            raise BadRecord(
                f"'after' is a {after.type} instead of a row; use ExtractNewDocumentState to convert documents to rows"
            )
        return Codec(after, key_schema, key_fields, self._source)

    def _are_flattened(self, records: Sequence[KafkaRecord], run: Run) -> bool:
        """Whether the topic's values are flattened; the first value that is recognized decides.

        Nulls are if the transform added a header to one of them.
        """
        if run.only_tombstones and self._plain_is_flat is None:
            return any(self._options.added.in_headers(records[index].headers) for index in run.indexes)
        for payload in run.payloads if self._plain_is_flat is None else ():
            if payload is not None and self._plain_is_flat is None:
                self._plain_is_flat = plain_is_flattened(payload)
        return bool(self._plain_is_flat)

    def _note(self, note: Note) -> None:
        if note not in self._noted:
            self._noted.add(note)
            self._notes.append(note)

    # -- the events of one schema ---------------------------------------------------------------------------

    def _table_events(self, codec: Codec | None, events: Events) -> Decoded:
        """Return the messages of events that one codec decodes, by table, and the events that do not fit."""
        out = Decoded()
        if codec is None:
            return out
        self._tables.see(events)
        is_flattened = isinstance(codec, FlatCodec)
        if Operation.TOMBSTONE in events.operations:
            # Remove the tombstones that do not belong to the table of the event before them.
            for index, why in reversed(self._tables.tombstones_to_omit(events).items()):
                out.add(self._refuse_or_ignore(events.remove(index), why, is_flattened))
        # Changes have one table, and a truncate is a message of its own. Of the events of a topic that a transform
        # has merged, as c(a.orders), u(a.orders), d(b.orders), tombstone, t(b.orders), c(a.orders), the pieces are
        # [c, u], [d, tombstone], [t] and [c]: a tombstone names no table and stays with the event before it.
        begin = 0
        mixed = Operation.TRUNCATE in events.operations or not events.of_one_table
        while begin < len(events):
            self._tables.enter(events, begin)
            end = self._end_of_piece(events, begin) if mixed else len(events)
            piece = events.slice(begin, end)
            begin = end
            if piece.operations[0] is not Operation.TRUNCATE:
                out.add(self._changes(codec, piece))
                continue
            try:
                version = self._builder.versions.of(piece)
            except BadRecord as error:
                out.errant.append(Errant(piece.indexes[0], Stage.TASK_PUT, error))
                continue
            truncate = Truncate(self._tables.current, version.row(0), log_servers(piece.sources, version.position))
            out.messages.append(RoutedEvents(self._topic, truncate))
        self._tables.store_deletes(codec, events)
        return out

    def _refuse_or_ignore(self, index: int, why: Unapplied, flattened: bool) -> Decoded:
        """Return a tombstone that is not applied: a bad record if it may be the delete itself, else a skipped one."""
        if why is Unapplied.UNKNOWN or (flattened and why is Unapplied.EARLY):
            return Decoded(errant=[Errant(index, Stage.TASK_PUT, BadRecord(TABLE_UNKNOWN))])
        if why is Unapplied.EARLY:
            self._note(IGNORED_TOMBSTONES)
        return Decoded(skipped=1)

    def _end_of_piece(self, events: Events, begin: int) -> int:
        """The index of the next truncate, or of the next event of another source table."""
        if events.operations[begin] is Operation.TRUNCATE:
            return begin + 1
        for index in range(begin + 1, len(events)):
            if events.operations[index] is Operation.TRUNCATE:
                return index
            if events.sources[index] is not NO_SOURCE and events.sources[index].names != self._tables.tail.names:
                return index
        return len(events)

    def _changes(self, codec: Codec, events: Events) -> Decoded:
        """Return the changes of one table, without the events that do not fit, and those as bad records."""
        out = Decoded()
        if Operation.READ in events.operations:
            began = {source.snapshot for source in events.sources if source.snapshot in _BEGIN_OF_SNAPSHOT}
            out.messages += [
                SnapshotBegan(None if word == "first" else self._tables.current) for word in sorted(map(str, began))
            ]
        searched = False
        while len(events):
            try:
                changes = self._builder.changes(self._tables.current, codec, events)
            except BadRecord as error:
                refused = dict.fromkeys((error.culprit, *error.also), error)
            else:
                is_flattened = isinstance(codec, FlatCodec)
                if is_flattened and lacks_metadata(changes):
                    out.messages.append(InsufficientMetadata(self._topic))
                if has_no_order(changes):
                    self._note(NO_ORDER if is_flattened else NO_POSITIONS)
                out.messages.append(RoutedEvents(self._topic, changes))
                while self._builder.notes:
                    self._note(self._builder.notes.pop())
                return out
            if len(refused) == 1 and not searched:
                # Find all at once: if none of thousands fits, removing one at a time takes minutes.
                refused = self._builder.misfits(self._tables.current, codec, events) or refused
                searched = True
            for place, problem in sorted(refused.items(), reverse=True):
                out.errant.append(Errant(events.remove(place), Stage.TASK_PUT, problem))
        return out
