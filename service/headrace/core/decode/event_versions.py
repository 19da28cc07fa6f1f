"""The versions of events (where they are in source and Kafka, and their time), and their transactions.

Tests: ``tests/unit/core/decode/test_envelope.py``, ``tests/properties/test_ordering_laws.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.decode.codec import Source, ordering_attribute
from headrace.core.decode.envelope_events import NO_SOURCE, WITH_ROW, Events
from headrace.core.decode.records import KafkaRecord
from headrace.core.model.errors import BadRecord
from headrace.core.model.events import Column, Operation, Versions
from headrace.core.model.notes import Note
from headrace.core.model.positions import (
    NO_FORMAT,
    Ordering,
    PositionFormat,
    field_values,
    ordered_positions,
    position_format,
    positions,
)

_LARGEST = 2**63 - 1
_DIGITS = 40  # more than an SCN has

_UNORDERED = (
    "ordering.field names the column {field}, which the rows do not have, so their changes apply in order of arrival, "
    "late ones too; correct the option"
)


@dataclass(frozen=True, slots=True)
class EventVersions:
    """The versions of one topic's events.

    ``packs`` are the connectors whose events are not changes of rows.
    """

    topic: str
    position_epoch: int
    ordering: Ordering | None = None
    packs: frozenset[str] = frozenset()

    def of(self, events: Events, columns: Mapping[str, Column] = MappingProxyType({})) -> Versions:
        """The version of each event. ``columns`` are those of the events' rows."""
        form = self._format(events)
        offset = np.array([record.offset for record in events.records], np.int64)
        source_time = _source_times(events.sources, events.records)
        if self.ordering is None or form is not NO_FORMAT:
            # Snapshot reads and tombstones have no position (``merge.md`` sections 2.2, 2.3).
            sources = events.sources
            if Operation.READ in events.operations:  # proven: reads-without-position
                pairs = zip(sources, events.operations, strict=True)
                sources = [NO_SOURCE if operation is Operation.READ else source for source, operation in pairs]
            fields = [list(map(attrgetter(part.field), sources)) for part in form.parts]
            position = positions(form, self.position_epoch, fields, len(events))
        else:
            by = self.ordering
            if by.of_source:
                attribute = ordering_attribute(by.field)
                values = field_values([getattr(source, attribute, None) for source in events.sources])
            else:  # a delete has only its key
                values = columns[by.field].values if by.field in columns else pa.nulls(len(events))
            # A snapshot read has no position.
            streamed = pa.array([operation is not Operation.READ for operation in events.operations])
            values = pc.if_else(streamed, values, pa.scalar(None, values.type))
            position = ordered_positions(self.ordering, self.position_epoch, values, source_time, offset)
        return Versions(
            topic=self.topic,
            position=position,
            partition=np.full(len(events), events.records[0].partition, np.int32),
            offset=offset,
            source_time=source_time,
        )

    def unordered(self, events: Events, columns: Mapping[str, Column]) -> Note | None:
        """Return a note if rows do not have the column that has to order them. A delete may have only its key."""
        by = self.ordering
        if by is None or by.of_source or by.field in columns or WITH_ROW.isdisjoint(events.operations):
            return None
        return Note(_UNORDERED.format(field=by.field)) if self._format(events) is NO_FORMAT else None

    def _format(self, events: Events) -> PositionFormat:
        """Return the format of the events' positions. Raises BadRecord with the index of the first event of a pack."""
        connector = connector_of(events)
        if connector in self.packs:
            # The topic began with events of another connector, or a transform has flattened these events.
            raise BadRecord(
                f"events of source.connector {connector!r} are not changes of rows; its topics must not contain events "
                "of other connectors, nor flattened ones",
                index=next(index for index, source in enumerate(events.sources) if source is not NO_SOURCE),
            )
        return NO_FORMAT if connector is None else position_format(connector)


def connector_of(events: Events) -> str | None:
    """Return the connector of the events; None if all are tombstones."""
    return next((source.connector for source in events.sources if source is not NO_SOURCE), None)


def _source_times(sources: Sequence[Source], records: Sequence[KafkaRecord]) -> npt.NDArray[np.int64]:
    """Return the time of the source's commit, or of the record without one, in microseconds since the epoch."""
    source_time = pa.array([source.ts_us for source in sources], pa.int64())
    if source_time.null_count:
        times = [
            source.ts_us
            if source.ts_us is not None
            else (source.ts_ms if source.ts_ms is not None else record.timestamp) * 1000
            for source, record in zip(sources, records, strict=True)
        ]
        try:
            source_time = pa.array(times, pa.int64())
        except OverflowError as error:
            late = next(place for place, time in enumerate(times) if abs(time) > _LARGEST)
            raise BadRecord("the time of the change (source.ts_ms) is out of range", index=late) from error
    return np.array(source_time)


def transactions_of(sources: Sequence[Source]) -> npt.NDArray[np.int64]:
    """Return the transactions whose visibility a read checks: PostgreSQL's id, Oracle's commit SCN.

    -1 for an event without it.
    """
    commit_scns = [source.commit_scn for source in sources]
    if any(commit_scns):
        texts = list(map(str, commit_scns))
        # Another text is rejected when the position is built, which a snapshot read does not have.
        are_numbers = [text.isascii() and text.isdigit() and len(text) < _DIGITS for text in texts]
        numbers = [int(text) if is_number else -1 for text, is_number in zip(texts, are_numbers, strict=True)]
        return np.array([number if number <= _LARGEST else -1 for number in numbers], np.int64)
    return np.array([source.txId if isinstance(source.txId, int) else -1 for source in sources], np.int64)
