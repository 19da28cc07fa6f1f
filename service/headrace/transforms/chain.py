"""A chain of transforms, each for the records that match its predicate; Kafka's predicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.core.model.errors import BadRecord, Stage
from headrace.transforms.java_formats import compile_pattern
from headrace.transforms.record import Predicate, SinkRecord, Transform


@dataclass(frozen=True, slots=True)
class Link:
    """A transform with its alias, for records that match ``predicate`` (None: all), or do not if ``negate``."""

    alias: str
    class_name: str
    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False

    def wants(self, record: SinkRecord) -> bool:
        return self.predicate is None or self.predicate(record) != self.negate


@dataclass(frozen=True, slots=True)
class Chain:
    """Transforms in the order of ``transforms``. Empty if none is configured.

    ``merges`` is whether one of them merges several source tables, with keys that are unique across them.
    ``keeps_cells`` is whether none of them changes the values of a row, so that an unavailable value may be read again
    from the database. ``prefixes`` are the prefixes of ExtractNewRecordState for names of fields and headers.
    ``defaulting`` are the aliases of transforms that replace a null by its column's default: a table would differ.
    ``varying`` are the reasons why records of one topic and schema are not transformed alike (``PluginClass.varies``).
    ``properties`` is the configuration of the chain. Transforms cache schemas, so another thread makes its own chain.
    """

    links: Sequence[Link] = ()
    merges: bool = False
    keeps_cells: bool = True
    prefixes: tuple[str, str] | None = None
    defaulting: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        return bool(self.links)

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        """Return the transformed record, None if it is dropped. Raises BadRecord, which names the transform."""
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


class TopicNameMatches:
    """Records of topics whose complete name matches a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = compile_pattern(pattern)

    def __call__(self, record: SinkRecord) -> bool:
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey:
    """Records with a header with a certain name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, record: SinkRecord) -> bool:
        return any(name == self._name for name, _ in record.headers)


class RecordIsTombstone:
    """Records without a value."""

    def __call__(self, record: SinkRecord) -> bool:
        return record.value.value is None


def drop(_record: SinkRecord) -> None:
    """The transform ``Filter``: drop every record that matches its predicate."""
    return
