"""The text of ``/metrics``, in Prometheus' text format, made line by line so that other work has turns in between.

``prometheus_client.generate_latest`` makes the same text, but only from complete families and in one call.

Tests: ``tests/unit/runtime/metrics/test_exposition.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from headrace.runtime.metrics.declaration import Declaration, Kind

CONTENT_TYPE = CONTENT_TYPE_LATEST
_LINES_IN_A_PART = 100
"""About a millisecond of work, for which another task of the event loop waits at most."""


class LazyFamily(Metric):
    """A family whose samples are computed while its text is made, so it can be read once only."""

    def __init__(self, name: str, documentation: str, typ: str, samples: Iterable[Sample]) -> None:
        super().__init__(name, documentation, typ)
        self.samples = samples  # type: ignore[assignment]  # readers only iterate


def lazy_gauge(declaration: Declaration, samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
    """Return the family of a gauge, whose samples are pairs of label values and value."""
    name, labels = declaration.name, declaration.labels
    return LazyFamily(
        name,
        declaration.help,
        declaration.kind,
        (Sample(name, dict(zip(labels, values, strict=True)), value) for values, value in samples),
    )


def family(declaration: Declaration, samples: Iterable[tuple[Sequence[str], float]]) -> Metric:
    """Return the family of a counter or gauge, whose samples are pairs of label values and value."""
    family_class = CounterMetricFamily if declaration.kind is Kind.COUNTER else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = family_class(
        declaration.name, declaration.help, labels=declaration.labels
    )
    for values, value in samples:
        family.add_metric(values, value)
    return family


def text_lines(families: Iterable[Metric]) -> Iterator[str]:
    """Return the lines of the families, each with its end. A counter has the suffix ``_total``."""
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield f"# HELP {name} {_escaped(family.documentation)}\n"
        yield f"# TYPE {name} {family.type}\n"
        for sample in family.samples:
            yield f"{sample.name}{_labels(sample.labels)} {_number(sample.value)}\n"


def text_parts(families: Iterable[Metric]) -> Iterator[bytes]:
    """Return the text in parts."""
    lines = text_lines(families)
    while part := "".join(islice(lines, _LINES_IN_A_PART)):
        yield part.encode()


async def text_in_turns(families: Iterable[Metric]) -> list[bytes]:
    """Return the text in parts. Other tasks of the event loop have a turn after each part."""
    parts: list[bytes] = []
    for part in text_parts(families):
        parts.append(part)
        await asyncio.sleep(0)
    return parts


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped_value(labels[name])}"' for name in sorted(labels)) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _escaped_value(text: str) -> str:
    return _escaped(text).replace('"', r"\"") if "\\" in text or "\n" in text or '"' in text else text


def _number(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
