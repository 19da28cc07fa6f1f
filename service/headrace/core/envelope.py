"""Debezium envelopes become change events in columns: the only place that knows before, after, op, source and ts_ms.

``TopicDecoder.decode`` takes the records of one partition in order and returns, in the same order, ``Changes`` and
``Truncate``; what cannot be decoded comes back by index with its stage, and everything else goes on. Records are
decoded in runs that share a schema, one msgspec call and one Arrow build per column and run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

from cachetools import LRUCache

from headrace.core.cassandra.batch import CassandraBatch
from headrace.core.catalog import Catalog, HandlingModes, NoCatalog
from headrace.core.codec import Codec, Names, Source, source_with
from headrace.core.connect_data import SchemaAndValue
from headrace.core.converters.json_types import Document, JsonConverter
from headrace.core.envelope_block import Block, Unsuited, block_events
from headrace.core.envelope_columns import ChangesBuilder
from headrace.core.envelope_events import NO_SOURCE, Errant, EventReader, Events, KafkaRecord, Run
from headrace.core.errors import BadRecord, Stage
from headrace.core.events import NO_POSITION, Changes, Operation, RowVersion, TableId, Truncate
from headrace.core.flattened import (
    NO_ORDER,
    FlatCodec,
    FlattenedReader,
    MetadataNames,
    has_no_order,
    is_flattened,
    plain_is_flattened,
    tells_too_little,
)
from headrace.core.notes import Note
from headrace.core.ordering import Ordering
from headrace.core.schema import Schema
from headrace.core.schema_changes import SchemaChange, schema_changes
from headrace.core.unavailable import Placeholder

BLOCK = 512
"""Records that go from bytes to values at once: few enough to stay in a core's cache, which halves the time."""

_CODECS = 64  # a topic has a handful of schemas; more means that they do not repeat

_BEGIN_OF_SNAPSHOT = ("first", "first_in_data_collection")
"""``source.snapshot`` of the first row of a snapshot, and of a table's first row in it. Incremental ones have none."""

_SCHEMA_CHANGE = "SchemaChangeValue"
_NOT_ROWS = ("Heartbeat", "TransactionMetadataValue", "Notification", _SCHEMA_CHANGE, "MessageValue")

_ADVICE = "let the value converter give structs (JsonConverter, AvroConverter…), or a transform make one of it"

NO_POSITIONS = Note(
    "the source block has no position that orders changes, so they are applied in order of arrival, and late ones "
    "count; name a field that orders them in ordering.field, if there is one"
)


@dataclass(frozen=True, slots=True)
class EnvelopeOptions:
    """What a connector says about its envelopes.

    ``key_fields`` overrides the record key's field names; ``added`` is what flattened records call their metadata;
    ``keyless`` lets records come without a key, for tables that every event is appended to; ``ordering`` makes
    positions where the source tells none.
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


@dataclass(slots=True)
class Decoded:
    """What a run of records holds. ``skipped`` counts records that are no row changes (heartbeats, messages…).

    ``snapshots`` has the tables of which a snapshot begins among the records; None stands for all of the connector's.
    ``altered`` has those whose schema the source says to have changed, and from where on.
    ``notes`` are for the operator: what the topic lacks, said once; ``losses`` counts values of which the source's
    connector does not tell all. ``tells_too_little`` is set where records have too little of their events for reselect
    and its cache. ``topics`` are those that transforms have given the pieces, one for each; empty without transforms.
    ``dropped`` are the indexes of records with a value that transforms have dropped: changes that are not applied.
    """

    pieces: list[Changes | Truncate | CassandraBatch] = field(default_factory=list)
    errant: list[Errant] = field(default_factory=list)
    skipped: int = 0
    snapshots: list[TableId | None] = field(default_factory=list)
    altered: list[tuple[SchemaChange, RowVersion]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    losses: Counter[str] = field(default_factory=Counter)
    tells_too_little: bool = False
    topics: list[str] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)

    @property
    def lost(self) -> list[int]:
        """The indexes of the records that may hold changes and are not applied, ascending."""
        return sorted({*self.dropped, *(each.index for each in self.errant)})

    def add(self, other: Decoded) -> None:
        """Take over what ``other`` holds. Indexes of errant records stay as they are."""
        for each in fields(self):
            mine, its = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, mine or its if isinstance(mine, bool) else mine + its)


class TopicDecoder:
    """Decodes the records of one topic. Remembers schemas from call to call; one thread at a time."""

    def __init__(self, topic: str, options: EnvelopeOptions, catalog: Catalog | None = None) -> None:
        self._topic = topic
        self._options = options
        self._values = JsonConverter(options.value_schemas)
        named = bool(options.key_fields)
        self._reader = EventReader(options.key_schemas, options.keyless, named)
        self._flattened = FlattenedReader(options.key_schemas, topic, options.added, options.keyless, named)
        self._builder = ChangesBuilder(
            topic,
            catalog or NoCatalog(),
            options.placeholder,
            options.modes,
            options.position_epoch,
            options.value_schemas,
            options.keyless,
            options.ordering,
        )
        by = options.ordering
        self._source = source_with(by.field) if by is not None and by.of_source else Source
        self._codecs: LRUCache[int, tuple[Schema | None, Codec | None]] = LRUCache(_CODECS)
        self._last: Codec | None = None
        self._plain_kind: bool | None = None
        self._noted: set[Note] = set()
        self._notes: list[Note] = []
        self._table = TableId("", "", "", topic)
        self._names: Names | None = None

    def decode(self, records: Sequence[KafkaRecord]) -> Decoded:
        """Decode records of one partition, in order of arrival. Never raises for a bad record: it reports it."""
        out, codec, events = Decoded(), None, Events()
        for schema, run in self._runs(records, out):
            current = self._codec(schema, records, run, out)
            if current is not codec:
                self._add_pieces(codec, events, out)
                codec, events = current, Events()
            if current is not None:
                reader = self._flattened if isinstance(current, FlatCodec) else self._reader
                events = events.followed_by(reader.read(current, records, run))
        self._add_pieces(codec, events, out)
        for errant, skipped in (self._reader.taken(), self._flattened.taken()):
            out.errant += errant
            out.skipped += skipped
        out.errant.sort(key=lambda each: each.index)
        out.notes, self._notes = self._notes, []
        return out

    def decode_block(self, block: Block) -> Decoded | None:
        """Decode records of one value schema column by column; None where each of them has to be looked at."""
        codec = self._known_codec(block.schema)
        if codec is None:
            return None
        out = Decoded()
        try:
            events = block_events(block, codec, self._reader.key_row)
        except (BadRecord, Unsuited):
            return None
        self._last = codec
        self._add_pieces(codec, events, out)
        out.notes, self._notes = self._notes, []
        return out

    @property
    def reads_blocks(self) -> bool:
        """Whether the topic may have blocks that are decoded column by column: not of flattened records."""
        return self._last is None or type(self._last) is Codec

    def untold(self, notes: Sequence[Note]) -> None:
        """Notes that nobody was told, since their records are decoded again."""
        self._noted.difference_update(notes)

    def _known_codec(self, schema: Schema) -> Codec | None:
        """The codec of a schema of envelopes, of which records were decoded before."""
        known = self._codecs.get(id(self._values.one(schema)))
        return known[1] if known is not None and type(known[1]) is Codec else None

    # -- runs of one schema ---------------------------------------------------------------------------------

    def _runs(self, records: Sequence[KafkaRecord], out: Decoded) -> Iterator[tuple[Schema | None, Run]]:
        """Split into runs of one value schema, of a block at most. A tombstone, having none, belongs to its run."""
        for begin in range(0, len(records), BLOCK):
            documents = [record.value for record in records[begin : begin + BLOCK]]
            alike = self._values.split_alike(documents)
            if alike is not None:
                yield alike[0], Run(list(range(begin, begin + len(documents))), alike[1])
            else:
                yield from self._mixed_runs(begin, documents, out)

    def _mixed_runs(
        self, begin: int, documents: Sequence[bytes | Document | SchemaAndValue | None], out: Decoded
    ) -> Iterator[tuple[Schema | None, Run]]:
        run, current, begun = Run(), None, False
        for index, document in enumerate(documents, begin):
            if document is None:
                run.add(index, None)
                continue
            try:
                schema, payload = self._values.split(document)
            except BadRecord as error:
                out.errant.append(Errant(index, Stage.VALUE_CONVERTER, error))
                continue
            if begun and schema is not current:
                yield current, run
                run = Run()
            current, begun = schema, True
            run.add(index, payload)
        if run.indexes:
            yield current, run

    def _codec(self, schema: Schema | None, records: Sequence[KafkaRecord], run: Run, out: Decoded) -> Codec | None:
        self._heed_schema_changes(schema, records, run, out)
        if schema is None and self._options.value_schemas and run.only_tombstones:
            if self._last is None and not self._options.key_schemas:
                # Nothing says of which types these keys are. They repeat deletes that were applied before a restart.
                out.skipped += len(run.indexes)
                return None
            return self._last or self._compile(None, records, run)
        key = id(schema)
        if key not in self._codecs:
            if schema is not None and (schema.name or "").endswith(_NOT_ROWS):
                compiled = None
            elif schema is not None and schema.type != "struct":
                raise_for = BadRecord(f"a value that is no row but {schema.name or schema.type}: {_ADVICE}")
                out.errant += [Errant(index, Stage.TASK_PUT, raise_for) for index in run.indexes]
                return None
            else:
                try:
                    compiled = self._compile(schema, records, run)
                except BadRecord as error:
                    out.errant += [Errant(index, Stage.TASK_PUT, error) for index in run.indexes]
                    return None
                if not compiled.key_fields or (schema is None and self._plain_kind is None):
                    return compiled  # only truncates or tombstones so far, perhaps: a later record may tell
            self._codecs[key] = (schema, compiled)  # holding the schema keeps its id its own
        codec = self._codecs[key][1]
        if codec is None:
            out.skipped += len(run.indexes)
        else:
            self._last = codec
        return codec

    def _heed_schema_changes(
        self, schema: Schema | None, records: Sequence[KafkaRecord], run: Run, out: Decoded
    ) -> None:
        """Of a run that may tell how tables were altered; without schemas, only before the topic has had a row."""
        if (schema.name or "").endswith(_SCHEMA_CHANGE) if schema is not None else self._plain_kind is None:
            for index, payload in zip(run.indexes, run.payloads, strict=True):
                for change in schema_changes(payload):
                    out.altered.append((change, self._place(change, records[index])))
                    for note in change.notes:
                        self._note(note)

    def _place(self, change: SchemaChange, record: KafkaRecord) -> RowVersion:
        try:
            position = change.position(self._options.position_epoch)
        except BadRecord:
            position = NO_POSITION
        time = change.source_time(record.timestamp)
        return RowVersion(position, self._topic, record.partition, record.offset, time)

    def _compile(self, schema: Schema | None, records: Sequence[KafkaRecord], run: Run) -> Codec:
        key_schema, names = self._reader.key_shape(records[index] for index in run.indexes)
        key_fields = self._options.key_fields or names
        if is_flattened(schema) if schema is not None else self._plain_is_flattened(run):
            return FlatCodec(schema, key_schema, key_fields, self._options.added)
        after = None if schema is None else schema.field("after")
        if after is not None and after.type != "struct":
            raise BadRecord(f"'after' is a {after.type} and no row: let ExtractNewDocumentState make rows of documents")
        return Codec(after, key_schema, key_fields, self._source)

    def _plain_is_flattened(self, run: Run) -> bool:
        """The first value that tells decides for the topic."""
        for payload in run.payloads if self._plain_kind is None else ():
            if payload is not None and self._plain_kind is None:
                self._plain_kind = plain_is_flattened(payload)
        return bool(self._plain_kind)

    def _note(self, note: Note) -> None:
        if note not in self._noted:
            self._noted.add(note)
            self._notes.append(note)

    # -- the events of one schema ---------------------------------------------------------------------------

    def _add_pieces(self, codec: Codec | None, events: Events, out: Decoded) -> None:
        begin = 0
        mixed = Operation.TRUNCATE in events.operations or not events.of_one_table
        while codec is not None and begin < len(events):
            self._note_table(events.sources[begin], events.sources)
            end = self._end_of_piece(events, begin) if mixed else len(events)
            add = self._add_truncate if events.operations[begin] is Operation.TRUNCATE else self._add_changes
            add(codec, events.slice(begin, end), out)
            begin = end

    def _end_of_piece(self, events: Events, begin: int) -> int:
        """Where the next truncate or another source table begins."""
        if events.operations[begin] is Operation.TRUNCATE:
            return begin + 1
        for place in range(begin + 1, len(events)):
            if events.operations[place] is Operation.TRUNCATE:
                return place
            if events.sources[place] is not NO_SOURCE and events.sources[place].names != self._names:
                return place
        return len(events)

    def _note_table(self, source: Source, others: Sequence[Source]) -> None:
        """Remember an event's table. A tombstone has no source: it is of the last table, or of the first one told."""
        if source is NO_SOURCE and self._names is None:
            source = next((each for each in others if each is not NO_SOURCE), NO_SOURCE)
        if source is not NO_SOURCE and source.names != self._names:
            self._names = source.names
            self._table = TableId(source.name, source.db or "", source.schema or "", source.table or "")

    def _add_truncate(self, _codec: Codec, events: Events, out: Decoded) -> None:
        try:
            out.pieces.append(Truncate(self._table, self._builder.versions(events).row(0)))
        except BadRecord as error:
            out.errant.append(Errant(events.indexes[0], Stage.TASK_PUT, error))

    def _add_changes(self, codec: Codec, events: Events, out: Decoded) -> None:
        if Operation.READ in events.operations:
            self._note_snapshots(events, out)
        while len(events):
            try:
                changes = self._builder.changes(self._table, codec, events)
                out.pieces.append(changes)
                self._judge(changes, isinstance(codec, FlatCodec), out)
                return
            except BadRecord as error:
                out.errant.append(Errant(events.remove(error.index or 0), Stage.TASK_PUT, error))

    def _judge(self, changes: Changes, flattened: bool, out: Decoded) -> None:
        """Say what the changes lack."""
        if flattened:
            out.tells_too_little |= tells_too_little(changes)
        if has_no_order(changes):
            self._note(NO_ORDER if flattened else NO_POSITIONS)

    def _note_snapshots(self, events: Events, out: Decoded) -> None:
        told = {source.snapshot for source in events.sources if source.snapshot in _BEGIN_OF_SNAPSHOT}
        out.snapshots += [None if word == "first" else self._table for word in sorted(map(str, told))]
