"""The software that a pipeline runs on, and the releases that this project's tests run with.

``docs/support.md`` has the same table with reasons; a test compares them.

Tests: ``tests/unit/core/doctor/test_versions.py``, ``tests/unit/test_docs.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.core.doctor.findings import Finding, Severity

PYTHON, JAVA, SPARK, ICEBERG, DELTA = "Python", "Java", "Spark (PySpark)", "Iceberg", "Delta Lake"
KAFKA, POSTGRESQL = "Kafka brokers", "PostgreSQL"
TESTED: Mapping[str, Sequence[str]] = {
    PYTHON: ("3.11",),
    JAVA: ("17",),
    SPARK: ("4.1.4",),
    ICEBERG: ("1.12.0",),
    DELTA: ("4.4.0",),
    KAFKA: ("4.3",),
    POSTGRESQL: ("15", "16"),
}
"""The releases by software: all of 4.3.x for 4.3."""

_KAFKA_RELEASES = (
    *((8, "3.4"), (9, "3.5"), (12, "3.6"), (15, "3.7"), (20, "3.8"), (21, "3.9")),
    *((22, "4.0"), (26, "4.1"), (28, "4.2"), (30, "4.3"), (31, "4.4")),
)
"""The first level of ``metadata.version`` of each release (Kafka's class ``MetadataVersion``)."""


class Rule(StrEnum):
    """The kinds of findings; ``docs/operations.md`` lists them."""

    VERSION_UNTESTED = "version-untested"


@dataclass(frozen=True, slots=True)
class Software:
    """A part of the pipeline, a key of ``TESTED``, and its release; None if it does not report one."""

    name: str
    version: str | None


def kafka_release(metadata_version: int | None) -> str | None:
    """Return the release of a broker that supports ``metadata.version`` up to this level, as 4.3.

    None if it reports no level, or the level of a release before 3.4 or after those that are known.
    """
    if metadata_version is None or metadata_version > _KAFKA_RELEASES[-1][0]:
        return None
    return next((release for least, release in reversed(_KAFKA_RELEASES) if metadata_version >= least), None)


def findings(software: Iterable[Software]) -> Iterator[Finding]:
    """Yield the findings of releases that no test runs with."""
    for part in software:
        tested = TESTED[part.name]
        if part.version is None or not any(f"{part.version}.".startswith(f"{release}.") for release in tested):
            releases = " or ".join(tested)
            yield Finding(
                Rule.VERSION_UNTESTED,
                Severity.INFORMATION,
                part.name,
                "it may behave otherwise than in the tests of this release of Headrace, which do not run with it",
                f"version {part.version or 'unknown'}; tested with {releases}",
                f"{part.name} {releases}, or try the pipeline with this version first",
            )
