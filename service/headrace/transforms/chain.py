"""A chain of transforms, each for the records that its predicate names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.core.model.errors import BadRecord, Stage
from headrace.transforms.record import Predicate, SinkRecord, Transform


@dataclass(frozen=True, slots=True)
class Link:
    """A transform under its alias; ``predicate`` None is for all records, ``negate`` for all others."""

    alias: str
    class_name: str
    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False

    def wants(self, record: SinkRecord) -> bool:
        """Whether the transform is for this record, as it is by now."""
        return self.predicate is None or self.predicate(record) != self.negate


@dataclass(frozen=True, slots=True)
class Chain:
    """Transforms in the order of ``transforms``. Empty where none is configured.

    ``merges`` is set where one of them brings several source tables together on purpose, with keys that hold for all,
    ``keeps_cells`` where none of them touches the values of a row, so that a value which is missing there may be read
    again from the database. ``prefixes`` are what ExtractNewRecordState puts before names of fields and headers.
    """

    links: Sequence[Link] = ()
    merges: bool = False
    keeps_cells: bool = True
    prefixes: tuple[str, str] | None = None

    def __bool__(self) -> bool:
        return bool(self.links)

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        """What comes out, None for a record that is dropped. Raises BadRecord, which names the transform."""
        current: SinkRecord | None = record
        for link in self.links:
            if current is None:
                return None
            if not link.wants(current):
                continue
            try:
                current = link.transform(current)
            except BadRecord as error:
                if error.stage is Stage.HEADER_CONVERTER:
                    raise
                raise BadRecord(
                    f"transform {link.alias}: {error}", stage=Stage.TRANSFORMATION, class_name=link.class_name
                ) from error
        return current
