"""What a metric is: declared once, for ``/metrics``, for its reference page, and for alerts and dashboard.

Tests: ``tests/unit/runtime/metrics/test_declarations.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """A type of metric in Prometheus' text format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)  # each is declared once, so it equals only itself
class Declaration:
    """A metric. ``name`` is that of its samples; those of a histogram have a suffix (``part``).

    ``help`` is the text in ``/metrics``. ``note`` is what only the reference page says beside it. ``unit`` is the unit
    of the value. ``buckets`` are the bounds of a histogram.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    note: str = ""
    buckets: tuple[float, ...] = ()

    @property
    def samples(self) -> Sequence[str]:
        """Return the names of the samples."""
        if self.kind is Kind.HISTOGRAM:
            return [f"{self.name}_{part}" for part in ("bucket", "sum", "count")]
        return [self.name]

    def query(self, scope: str, part: str = "", **labels: str) -> str:
        """Return the selector of the series in PromQL: those of ``scope`` whose labels match.

        ``scope`` is a list of matchers. A value that begins with ``~`` or ``!`` is a regular expression or a value that
        does not match. ``part`` is the suffix of a histogram's samples. Raises ValueError for a label or part that the
        metric does not have.
        """
        if unknown := labels.keys() - set(self.labels):
            raise ValueError(
                f"metric {self.name}: has no label {min(unknown)}; its labels are {', '.join(self.labels)}"
            )
        if (name := f"{self.name}_{part}" if part else self.name) not in self.samples:
            raise ValueError(f"metric {self.name}: has no samples {name}, but {', '.join(self.samples)}")
        matchers = [scope] if scope else []
        for label, value in labels.items():
            operator = {"~": "=~", "!": "!="}.get(value[:1], "=")
            matchers.append(f'{label}{operator}"{value.lstrip("~!")}"')
        return f"{name}{{{','.join(matchers)}}}" if matchers else name


@dataclass(slots=True)
class Group:
    """Metrics that the reference page lists together, in the order in which they are declared."""

    title: str
    text: str = ""
    metrics: list[Declaration] = field(default_factory=list)

    def counter(
        self, name: str, text: str, labels: tuple[str, ...] = (), unit: str = "", note: str = ""
    ) -> Declaration:
        """Declare a counter. Its name ends in ``_total``."""
        return self._add(Declaration(name, Kind.COUNTER, text, labels, unit, note))

    def gauge(self, name: str, text: str, labels: tuple[str, ...] = (), unit: str = "", note: str = "") -> Declaration:
        """Declare a gauge."""
        return self._add(Declaration(name, Kind.GAUGE, text, labels, unit, note))

    def histogram(
        self, name: str, text: str, labels: tuple[str, ...], unit: str, buckets: tuple[float, ...], note: str = ""
    ) -> Declaration:
        """Declare a histogram."""
        return self._add(Declaration(name, Kind.HISTOGRAM, text, labels, unit, note, buckets))

    def __iter__(self) -> Iterator[Declaration]:
        return iter(self.metrics)

    def _add(self, declaration: Declaration) -> Declaration:
        self.metrics.append(declaration)
        return declaration
