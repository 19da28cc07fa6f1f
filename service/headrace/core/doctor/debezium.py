"""What goes wrong with the settings and the release of Debezium's connector.

Rules and defaults are those of Debezium's documentation for 3.7 (``skipped.operations``, ``tombstones.on.delete``,
``snapshot.mode``…). An option that a config provider inserts is unknown, and nothing is reported of it.

Tests: ``tests/unit/core/doctor/test_debezium.py``, ``tests/integration/test_doctor_debezium.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.core.doctor.findings import Finding, Severity
from headrace.core.doctor.known_defects import known_defects
from headrace.core.doctor.source_connector import SourceConnector, setting
from headrace.core.model.catalog import MODES, HandlingModes
from headrace.core.model.errors import ConfigError
from headrace.core.model.positions import position_format
from headrace.core.model.unavailable import DEFAULT_PLACEHOLDER, KEY, Placeholder

_UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
_TRUNCATES = frozenset({"postgresql", "mysql", "mariadb", "oracle"})
"""Systems whose connectors send truncates."""
_SCHEMA_CHANGES = frozenset({"mysql", "mariadb", "oracle", "sqlserver"})
"""Systems whose connectors have a topic of schema changes."""
_RESELECTED = frozenset({"postgresql", "oracle"})
"""Systems whose rows Headrace reads: the handling modes say which form their values have."""
_SKIPPING = (
    ("event.processing.failure.handling.mode", ("warn", "skip", "ignore"), "fail"),
    ("inconsistent.schema.handling.mode", ("warn", "skip"), "fail"),
    ("schema.history.internal.skip.unparseable.ddl", ("true",), "false"),
    ("errors.tolerance", ("all",), "none"),
)
"""Options whose values let the connector continue after an error without the event, and the value that does not."""


_CHANNELS = {"source": "signal.data.collection", "kafka": "signal.kafka.bootstrap.servers"}
"""The option without which a channel for signals receives none."""


class Rule(StrEnum):
    """The kinds of findings; ``docs/operations.md`` lists them."""

    DELETES_DROPPED = "debezium-deletes-dropped"
    OPERATIONS_SKIPPED = "debezium-operations-skipped"
    PLACEHOLDER = "debezium-placeholder"
    SNAPSHOT_MODE = "debezium-snapshot-mode"
    SLOT_DROPPED = "debezium-slot-dropped"
    DEFECT = "debezium-defect"
    EVENTS_SKIPPED = "debezium-events-skipped"
    NO_POSITIONS = "debezium-no-positions"
    VALUES_ROUNDED = "debezium-values-rounded"
    MODE_DIFFERS = "debezium-mode-differs"
    SCHEMA_CHANGES = "debezium-schema-changes"
    NO_HEARTBEAT = "debezium-no-heartbeat"
    NO_SIGNALS = "debezium-no-signals"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What Headrace's connector assumes of the source connector.

    ``topics`` are the names that it reads, ``pattern`` is ``topics.regex`` if it is set instead.
    """

    placeholder: str = DEFAULT_PLACEHOLDER
    skipped_operations: Collection[str] = ("t",)
    modes: HandlingModes = field(default_factory=HandlingModes)
    topics: Collection[str] = ()
    pattern: str | None = None

    def reads(self, topic: str) -> bool:
        return topic in self.topics or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)


def findings(source: SourceConnector, sink: SinkOptions) -> Iterator[Finding]:
    """Yield the findings of a connector of Debezium."""
    yield from _lost_changes(source, sink)
    yield from _lost_values(source, sink)
    yield from _missing_channels(source, sink)
    for defect, evidence in known_defects(source):
        yield Finding(
            Rule.DEFECT,
            Severity.WARNING,
            f"{_subject(source)}, {defect.name}",
            f"{defect.consequence} ({defect.source})",
            evidence,
            defect.remedy,
        )


def _subject(source: SourceConnector) -> str:
    return f"Debezium connector {source.name}"


def _lost_changes(source: SourceConnector, sink: SinkOptions) -> Iterator[Finding]:
    skipped = set(source.words("skipped.operations", "t"))
    if lost := sorted(skipped & {"c", "u", "d"}):
        undeclared = sorted(set(lost) - set(sink.skipped_operations))
        yield Finding(
            Rule.OPERATIONS_SKIPPED,
            Severity.ERROR,
            _subject(source),
            "the lake lacks these changes"
            + (": deleted rows stay" if "d" in lost else "")
            + ("; and the column cache returns old values" if undeclared else ""),
            f"skipped.operations={source.config['skipped.operations']}",
            "skipped.operations=none  # at the source connector"
            + (f"; until then skipped.operations={','.join(lost)} in this connector" if undeclared else ""),
        )
    elif "t" in skipped and source.system in _TRUNCATES:
        yield Finding(
            Rule.OPERATIONS_SKIPPED,
            Severity.WARNING,
            _subject(source),
            "rows that TRUNCATE removes stay in the lake",
            source.shown("skipped.operations", "t"),
            "skipped.operations=none  # at the source connector, unless several source tables share a lake table",
        )
    for name, options in source.transforms(_UNWRAP):
        yield from _of_unwrap(source, name, options)
    yield from _lost_by_snapshots(source)
    if source.value("slot.drop.on.stop") == "true":
        yield Finding(
            Rule.SLOT_DROPPED,
            Severity.ERROR,
            _subject(source),
            "changes are lost that are made while the connector is stopped: it drops its slot with the log",
            "slot.drop.on.stop=true",
            "slot.drop.on.stop=false  # at the source connector",
        )
    for option, values, remedy in _SKIPPING:
        if source.value(option) in values:
            yield Finding(
                Rule.EVENTS_SKIPPED,
                Severity.WARNING,
                f"{_subject(source)}, {option}",
                "changes that the connector cannot process are lost, and it does not stop",
                f"{option}={source.config[option]}",
                f"{option}={remedy}  # at the source connector",
            )


def _lost_by_snapshots(source: SourceConnector) -> Iterator[Finding]:
    mode = source.value("snapshot.mode", "initial")
    remedy = "snapshot.mode=initial  # at the source connector; "
    if mode == "initial_only":
        yield Finding(
            Rule.SNAPSHOT_MODE,
            Severity.ERROR,
            _subject(source),
            "no change arrives after the snapshot",
            "snapshot.mode=initial_only",
            f"{remedy}remove its offsets, so that it reads the log from a new snapshot on",
        )
    elif mode in ("no_data", "never", "schema_only"):
        yield Finding(
            Rule.SNAPSHOT_MODE,
            Severity.WARNING,
            _subject(source),
            "rows are missing in the lake that are older than the connector and have not changed since",
            f"snapshot.mode={mode}",
            f"{remedy}then an incremental snapshot, or headrace verify --repair",
        )
    elif tables := source.config.get("snapshot.include.collection.list"):
        yield Finding(
            Rule.SNAPSHOT_MODE,
            Severity.WARNING,
            _subject(source),
            "rows of other tables are missing in the lake that are older than the connector and have not changed since",
            f"snapshot.include.collection.list={tables}",
            "remove snapshot.include.collection.list at the source connector; then an incremental snapshot",
        )


def _of_unwrap(source: SourceConnector, name: str, options: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what a transform removes that flattens the events: deletes, and what orders them."""
    subject, prefix = f"{_subject(source)}, transform {name}", f"transforms.{name}."
    if how := _how_deletes_are_dropped(options, source.value("tombstones.on.delete", "true") != "false"):
        yield Finding(
            Rule.DELETES_DROPPED,
            Severity.ERROR,
            subject,
            "deleted rows stay in the lake: the transform drops deletes",
            how,
            f"{prefix}delete.tombstone.handling.mode=rewrite  # or remove the transform: Headrace does not need it",
        )
    words = [word.strip() for option in ("add.fields", "add.headers") for word in options.get(option, "").split(",")]
    added = {word.removeprefix("source.") for word in words if ":" not in word}  # a new name makes it a column
    parts = [part.field for part in position_format(source.system).parts]
    names = ["db", "table"] if source.system in _RESELECTED else []
    if missing := [name for name in ("op", *parts, *names) if name not in added]:
        yield Finding(
            Rule.NO_POSITIONS,
            Severity.WARNING,
            subject,
            "late changes count as new ones, and omitted values cannot be read from the database",
            f"the transform does not add {', '.join(missing)}",
            f"{prefix}add.fields={','.join(['op', *(f'source.{name}' for name in (*parts, 'db', 'schema', 'table'))])}"
            "  # or remove the transform: Headrace does not need it",
        )


def _how_deletes_are_dropped(options: Mapping[str, str], tombstones: bool) -> str | None:
    """Return the settings by which neither a delete nor its tombstone remains, None if one does."""
    mode = setting(options, "delete.tombstone.handling.mode")
    if mode in ("", None) and ("delete.handling.mode" in options or "drop.tombstones" in options):
        kept = setting(options, "delete.handling.mode", "drop") != "drop"
        dropped = not kept and (setting(options, "drop.tombstones", "true") != "false" or not tombstones)
        return "delete.handling.mode is drop, and tombstones are dropped" if dropped else None
    if mode == "drop":
        return "delete.tombstone.handling.mode=drop"
    if mode in ("", "tombstone") and not tombstones:
        return "the transform keeps tombstones only, and tombstones.on.delete=false"
    return None


def _lost_values(source: SourceConnector, sink: SinkOptions) -> Iterator[Finding]:
    text = source.config.get(KEY, DEFAULT_PLACEHOLDER)
    if "${" not in text and _bytes_of(text) != _bytes_of(sink.placeholder):
        yield Finding(
            Rule.PLACEHOLDER,
            Severity.ERROR,
            _subject(source),
            "the placeholder of omitted values is written to the lake as if it were the value",
            f"{KEY} is {text} there, and {sink.placeholder} in this connector",
            f"{KEY}={text}  # in this connector; then headrace verify --repair",
        )
    for option, lossy, loss, remedy in (
        ("decimal.handling.mode", "double", "decimals have 15 to 17 digits", "precise"),
        ("time.precision.mode", "connect", "times have milliseconds only", "adaptive"),
    ):
        if source.value(option) == lossy:
            yield Finding(
                Rule.VALUES_ROUNDED,
                Severity.WARNING,
                f"{_subject(source)}, {option}",
                f"{loss}: the lake has rounded values",
                f"{option}={lossy}",
                f"{option}={remedy}  # at the source connector, and for new tables: the type of the columns changes",
            )
    if source.system in _RESELECTED:
        for option, assumed in _repeated_options(source.system, sink.modes).items():
            actual = source.value(option, _repeated_options(source.system, HandlingModes())[option])
            if actual is not None and actual != assumed:
                yield Finding(
                    Rule.MODE_DIFFERS,
                    Severity.WARNING,
                    f"{_subject(source)}, {option}",
                    "omitted values are written in another form than those of events, or are not found at all",
                    f"{option} is {actual} there, and {assumed} in this connector",
                    f"{option}={actual}  # in this connector",
                )


def _bytes_of(placeholder: str) -> bytes:
    """Return what is sent; the text itself for one that is invalid."""
    try:
        return Placeholder(placeholder).encoded
    except ConfigError:
        return placeholder.encode()


def _repeated_options(system: str, modes: HandlingModes) -> Mapping[str, str]:
    """Return the options of a system's connector that Headrace's connector repeats."""
    values = (modes.binary, modes.decimal, modes.hstore, modes.interval, modes.time_precision)
    assumed = dict(zip(MODES, values, strict=True))
    if system == "oracle":
        del assumed["hstore.handling.mode"]
        return assumed | {"lob.enabled": str(modes.lob_enabled).lower()}
    return assumed | {"money.fraction.digits": str(modes.money_fraction_digits)}


def _missing_channels(source: SourceConnector, sink: SinkOptions) -> Iterator[Finding]:
    prefix = source.config.get("topic.prefix", "")
    if source.system in _SCHEMA_CHANGES and "${" not in prefix:
        sent = source.value("include.schema.changes", "true") != "false"
        if not sent or not sink.reads(prefix):
            yield Finding(
                Rule.SCHEMA_CHANGES,
                Severity.WARNING,
                _subject(source),
                "Headrace gets no altered tables: rows that do not change lack the defaults of new columns",
                f"this connector does not read topic {prefix}" if sent else "include.schema.changes=false",
                f"add {prefix} to the topics of this connector"
                if sent
                else "include.schema.changes=true  # at the source connector, and its topic.prefix to topics here",
            )
    if source.value("heartbeat.interval.ms", "0") in ("", "0") and (
        source.value("lsn.flush.mode") != "connector_and_driver"
    ):
        yield Finding(
            Rule.NO_HEARTBEAT,
            Severity.WARNING,
            _subject(source),
            "while its tables are idle it confirms nothing: the log of the database grows, or is removed before a "
            "restart has read it, and headrace verify proves nothing",
            source.shown("heartbeat.interval.ms", "0"),
            "heartbeat.interval.ms=10000  # at the source connector",
        )
    channels = source.words("signal.enabled.channels", "source")
    lacking = [option for name in channels if (option := _CHANNELS.get(name)) and not source.config.get(option)]
    if channels and len(lacking) == len(channels):
        yield Finding(
            Rule.NO_SIGNALS,
            Severity.WARNING,
            _subject(source),
            "no table can be loaded again without the others: the connector takes no incremental snapshot",
            f"signal.enabled.channels is {','.join(channels)}, without {' and '.join(lacking)}",
            "signal.data.collection=<schema>.debezium_signal  # at the source connector, and create this table",
        )
