"""The options of the lakehouse sink about tables, batches and the source connector (``merge.md``).

Tests: ``tests/unit/config/test_validation.py``, ``tests/unit/config/test_hostile_options.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.config.table_values import read_table_values, table_numbers
from headrace.core.batch.batch import BatchPolicy, TableValues
from headrace.core.connect.config_def import Importance, InvalidValue, Type, any_case, at_least, between
from headrace.core.connect.typed_options import (
    equal_to,
    microseconds,
    option,
    option_group,
    options_below,
    seconds,
    suggestion,
)
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.flattened import DEFAULT_PREFIX
from headrace.core.doctor.readers import READERS, version_for
from headrace.core.model.catalog import MODES, HandlingModes
from headrace.core.model.positions import Ordering, ordering
from headrace.core.model.unavailable import DEFAULT_PLACEHOLDER
from headrace.core.reselect.options import ReselectOptions
from headrace.core.tables.field_selection import FieldSelection, field_selection
from headrace.core.tables.naming import TableNaming
from headrace.core.tables.naming import namespace as check_namespace
from headrace.core.tables.table_layout import Maintenance, TableLayout, table_layout

_HIGH, _LOW = Importance.HIGH, Importance.LOW
_POLICY, _ENVELOPE, _MODES, _RESELECT = BatchPolicy(), EnvelopeOptions(), HandlingModes(), ReselectOptions()

TABLE_PROPERTIES = "table.properties."
"""Prefix of the format's own properties, for new tables: ``auto-create-props`` of Iceberg's Kafka Connect sink."""


def check_readers(name: str, value: Any) -> None:
    """Validate a list of engines of which it is known which versions of Iceberg's format they read."""
    for reader in value or ():
        if reader not in READERS:
            listed = f"The readers are: {', '.join(READERS)}."
            raise InvalidValue(
                f"Invalid value {reader} for configuration {name}: {suggestion(reader, READERS, listed)}"
            )


@dataclass(frozen=True, slots=True)
class IsolationSettings:
    """What the failure of a table does to its task, and to the state that the task shows."""

    isolate: bool = option(
        "errors.isolation",
        Type.STRING,
        "table",
        "What a table that cannot be written, or a record of it that cannot be used, stops: table stops that table "
        "alone, whose topics are not read until its task is restarted; task fails the task, as in Kafka Connect.",
        validator=any_case("table", "task"),
        read=equal_to("table"),
    )
    shows_failed: bool = option(
        "errors.isolation.status",
        Type.STRING,
        "failed",
        "State that a running task with failed tables shows in the status and in the metrics of Kafka Connect. failed: "
        "FAILED with the causes, which consoles and alerts report, although the task writes its other tables. running: "
        "RUNNING; the failed tables are in the member tables of the status and in headrace_table_state.",
        validator=any_case("running", "failed"),
        read=equal_to("failed"),
    )


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The tables of a connector, and how changes apply to them."""

    namespace: str = option(
        "table.namespace",
        Type.STRING,
        "headrace",
        "Namespace of the tables: <table.catalog>.<namespace>.<name>. It is a folder of the warehouse and must not "
        "contain / or \\.",
        _HIGH,
        check_namespace,
    )
    name_format: str = option(
        "collection.name.format",
        Type.STRING,
        "${topic}",
        "Pattern for the name of a topic's table, as in Debezium's JDBC sink: ${topic} (dots become underscores), "
        "${source.name}, ${source.db}, ${source.schema}, ${source.table}.",
        _HIGH,
    )
    format: str = option(
        "table.format",
        Type.STRING,
        "iceberg",
        "Format of the tables: Iceberg in the worker's catalog, or Delta below the worker's warehouse.",
        _HIGH,
        any_case("iceberg", "delta"),
    )
    catalog: str = option(
        "table.catalog",
        Type.STRING,
        "lake",
        "Catalog of Iceberg tables: lake, or another one that the worker file has (spark.sql.catalog.<name>.*).",
    )
    chosen_version: int | None = option(
        "table.format.version",
        Type.INT,
        None,
        "Format version of new Iceberg tables: 2, or 3, which uses deletion vectors. If it is not set, it is 3, or 2 "
        "if lake.readers names an engine that needs 2. Existing tables keep their version.",
        validator=between(2, 3),
    )
    readers: tuple[str, ...] = option(
        "lake.readers",
        Type.LIST,
        (),
        "Engines that read the Iceberg tables. New tables have the newest format version that all of them read, unless "
        f"table.format.version is set, and headrace doctor checks that they can read it: {', '.join(READERS)}.",
        _LOW,
        check_readers,
    )
    partition_by: str = option(
        "table.partition.by",
        Type.STRING,
        "",
        "Partitioning of new tables: column, years|months|days|hours(column), bucket(n, column), truncate(n, "
        "column), separated by commas. Delta accepts columns only.",
    )
    sort_by: str = option(
        "table.sort.by",
        Type.STRING,
        "",
        "Columns by which the files of new tables are sorted, each optionally followed by ASC or DESC. Delta "
        "clusters by them.",
    )
    adopt: bool = option(
        "table.adopt",
        Type.BOOLEAN,
        False,
        "Whether to adopt existing tables that Headrace did not create: Headrace adds its columns, keeps the "
        "rows, and applies every change. If false, such a table fails.",
    )
    adopts_from: Sequence[str] = option(
        "table.adopt.from",
        Type.LIST,
        (),
        "Names of connectors, separated by commas, whose tables this connector adopts: the former name of a renamed "
        "connector, or its own name after its topics have moved. Stop the other connectors first, and remove the "
        "option when the tables are written. Without it, a table that another connector writes, or that contains rows "
        "of another source table, fails before anything is written to it.",
    )
    recreate: bool = option(
        "table.missing",
        Type.STRING,
        "fail",
        "What to do if a table that the connector has written does not exist any more, or is older than the "
        "group's offsets. fail lets the table fail before anything is written, because the records in between are not "
        "read again. recreate creates the table again, or accepts it as it is, and continues at the group's "
        "offsets, for an intended restart.",
        validator=any_case("fail", "recreate"),
        read=equal_to("recreate"),
    )
    isolation: IsolationSettings = option_group(IsolationSettings)
    history: bool = option(
        "insert.mode",
        Type.STRING,
        "upsert",
        "upsert keeps a table equal to its source. insert appends every event as a row, and accepts records "
        "without a key.",
        validator=any_case("upsert", "insert"),
        read=equal_to("insert"),
    )
    soft_delete: bool = option(
        "delete.mode",
        Type.STRING,
        "hard",
        "hard removes a deleted row. soft keeps its cells and sets __headrace_deleted, by which readers filter.",
        validator=any_case("hard", "soft"),
        read=equal_to("soft"),
    )
    key_fields: tuple[str, ...] = option(
        "primary.key.fields",
        Type.LIST,
        (),
        "Columns that form the row key, instead of the key columns of the database's catalog or the record key.",
    )
    include: tuple[str, ...] = option(
        "field.include.list",
        Type.LIST,
        (),
        "Columns to write (column, or topic:column), as in Debezium's JDBC sink. Columns of the key are always "
        "written.",
    )
    exclude: tuple[str, ...] = option(
        "field.exclude.list",
        Type.LIST,
        (),
        "Columns not to write (column, or topic:column). Columns of the key are always written.",
    )
    metadata: tuple[str, ...] = option(
        "table.metadata.fields",
        Type.LIST,
        (),
        "Metadata of the last change to write as columns, with the names of Debezium's ExtractNewRecordState: op, "
        "source.name, source.db, source.schema, source.table, source.txId, source.ts_us, source.ts_ms, each "
        "optionally followed by :name.",
    )
    metadata_prefix: str = option(
        "table.metadata.prefix", Type.STRING, "__", "Prefix of the column names of table.metadata.fields."
    )
    evolve: bool = option(
        "schema.evolution",
        Type.STRING,
        "basic",
        "basic adds and widens columns as events require it. With none the table fails instead.",
        validator=any_case("none", "basic"),
        read=equal_to("basic"),
    )
    tombstone_retention: int = option(
        "tombstone.retention.ms",
        Type.LONG,
        604_800_000,
        "Time for which a delete is kept in the ledger, so that a late event of the row cannot bring it back.",
        validator=at_least(0),
        read=microseconds,
    )
    maintenance: str = option(
        "table.maintenance",
        Type.STRING,
        Maintenance.BACKGROUND.value,
        "Who combines small files and expires snapshots: background does it beside the writes of the table, inline "
        "between two writes, off leaves it to another service. Old entries of the ledger of deletes are always "
        "removed by Headrace.",
        validator=any_case(*Maintenance),
        read=str.lower,
    )
    maintenance_bytes: int = option(
        "table.maintenance.bytes.per.hour",
        Type.LONG,
        21_474_836_480,
        "Bytes that the maintenance of each table may write in an hour. 0 is no limit. It writes at most three times "
        "as much as the table's merges, whatever this allows.",
        _LOW,
        at_least(0),
    )
    properties: Mapping[str, str] = options_below(TABLE_PROPERTIES)

    @property
    def format_version(self) -> int:
        """The version of Iceberg's format for new tables."""
        return self.chosen_version or version_for(self.readers)

    @property
    def layout(self) -> TableLayout:
        """The layout of new tables. Raises ConfigError for expressions that the format lacks."""
        return table_layout(self.format, self.partition_by, self.sort_by)

    @property
    def naming(self) -> TableNaming:
        """The names of the tables. Raises ConfigError for an unknown variable."""
        return TableNaming(self.name_format)

    @property
    def fields(self) -> FieldSelection:
        """The columns to write. Raises ConfigError for lists that do not go together."""
        return field_selection(self.include, self.exclude, self.metadata, self.metadata_prefix)


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """When the batch of a table closes."""

    max_records: int = option(
        "batch.max.records",
        Type.INT,
        _POLICY.max_records,
        "Number of events at which a table's batch is closed at the latest.",
        validator=at_least(1),
    )
    max_bytes: int = option(
        "batch.max.bytes",
        Type.LONG,
        _POLICY.max_bytes,
        "Bytes of record values at which a table's batch is closed. Bounds memory.",
        validator=at_least(1024),
    )
    freshness: TableValues = option(
        "freshness.target.ms",
        Type.LIST,
        (str(round(_POLICY.freshness.default * 1000)),),
        "Time from the commit of a change at its source until its row is visible that a table should not exceed. A "
        "number is for all tables, table:number for one; separated by commas (10000,shop_public_orders:2000). Rows are "
        "visible sooner while the worker has spare capacity. With more load, batches become larger until the target is "
        "used. It is at least twice batch.linger.ms. Raise it to save CPU and requests to the object store.",
        validator=table_numbers(1),
        read=read_table_values(_POLICY.freshness.default, seconds),
    )
    commits_per_hour: TableValues = option(
        "commits.per.hour",
        Type.LIST,
        (),
        "Most commits of a table in an hour, at equal intervals, for object stores that bill per request. A number is "
        "for all tables, table:number for one; separated by commas. 0 or nothing is no limit. It has precedence over "
        "freshness.target.ms and over the limits of a batch: while a full batch waits, the topics of its table are not "
        "read. Commits of table maintenance are not counted.",
        _LOW,
        table_numbers(0),
        read=read_table_values(_POLICY.commits_per_hour.default, float),
    )
    linger: float = option(
        "batch.linger.ms",
        Type.LONG,
        round(_POLICY.linger * 1000),
        "Shortest time that an event waits for its batch to fill, unless the batch is full. How much longer it waits "
        "depends on freshness.target.ms. It is ten times as long while more than 10,000 records wait in Kafka, because "
        "larger merges catch up sooner.",
        validator=at_least(0),
        read=seconds,
    )

    @property
    def policy(self) -> BatchPolicy:
        return BatchPolicy(self.max_records, self.max_bytes, self.linger, self.freshness, self.commits_per_hour)


def _mode(name: str, default: str) -> Any:
    words = MODES[name]
    doc = f"The source connector's setting ({', '.join(words)}), for what event schemas do not show."
    return option(name, Type.STRING, default, doc, _LOW, any_case(*words))


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What the source connector's settings say about its events."""

    ordering_field: str = option(
        "ordering.field",
        Type.STRING,
        "",
        "Field that orders the changes of sources whose positions Headrace does not know: a column (updated_at) "
        "or a field of the source block (source.ts_us). It may contain whole numbers, dates, timestamps or short "
        "texts; number(field), time(field) or text(field) declares how to read texts. Equal values are ordered by "
        "source time, then by offset.",
    )
    position_epoch: int = option(
        "source.position.epoch",
        Type.INT,
        _ENVELOPE.position_epoch,
        "Raise it by one after a failover or restore after which the source's positions start again.",
        validator=between(0, 99999),
    )
    position_regression: int = option(
        "source.position.regression.ms",
        Type.LONG,
        3_600_000,
        "An event whose position is lower than the stored one fails its table if its source time is newer by more "
        "than this, because the source's positions seem to have started again.",
        validator=at_least(0),
        read=microseconds,
    )
    placeholder: str = option(
        "unavailable.value.placeholder",
        Type.STRING,
        DEFAULT_PLACEHOLDER,
        "Value that the source connector sends in place of a value that it does not know. It must equal the "
        "source connector's setting (hex: is accepted).",
    )
    skipped_operations: tuple[str, ...] = option(
        "skipped.operations",
        Type.LIST,
        tuple(_RESELECT.skipped_operations),
        "The source connector's setting. If it contains c, u or d, events are missing that would change cached "
        "values, so the cache stays off. Also name operations whose events a transform at the source connector "
        "drops.",
        _LOW,
    )
    binary_mode: str = _mode("binary.handling.mode", _MODES.binary)
    decimal_mode: str = _mode("decimal.handling.mode", _MODES.decimal)
    hstore_mode: str = _mode("hstore.handling.mode", _MODES.hstore)
    interval_mode: str = _mode("interval.handling.mode", _MODES.interval)
    time_precision_mode: str = _mode("time.precision.mode", _MODES.time_precision)
    money_fraction_digits: int = option(
        "money.fraction.digits",
        Type.INT,
        _MODES.money_fraction_digits,
        "The source connector's setting: fraction digits of PostgreSQL's money type.",
        _LOW,
        between(0, 38),
    )
    fields_prefix: str = option(
        "add.fields.prefix",
        Type.STRING,
        DEFAULT_PREFIX,
        "The prefix that ExtractNewRecordState at the source connector adds to fields. The fields that it adds "
        "(op, deleted, lsn, source.lsn, ts_ms…) describe the event; they are no columns of the table.",
        _LOW,
    )
    headers_prefix: str = option(
        "add.headers.prefix",
        Type.STRING,
        DEFAULT_PREFIX,
        "The prefix that ExtractNewRecordState at the source connector adds to headers.",
        _LOW,
    )
    lob_enabled: bool = option(
        "lob.enabled",
        Type.BOOLEAN,
        _MODES.lob_enabled,
        "The Oracle connector's setting. If false, a null in a change may hide an unchanged LOB, so the stored "
        "value is kept, and LOBs are not cached. Any text or bytes column counts as a LOB unless "
        "reselect.database.* or column.propagate.source.type at the source connector provides its type.",
        _LOW,
    )

    @property
    def modes(self) -> HandlingModes:
        """The handling modes of the source connector."""
        return HandlingModes(
            binary=self.binary_mode,
            decimal=self.decimal_mode,
            hstore=self.hstore_mode,
            interval=self.interval_mode,
            time_precision=self.time_precision_mode,
            money_fraction_digits=self.money_fraction_digits,
            lob_enabled=self.lob_enabled,
        )

    @property
    def ordering(self) -> Ordering | None:
        """What orders the changes where positions do not; None without the option. Raises ConfigError."""
        return ordering(self.ordering_field)
