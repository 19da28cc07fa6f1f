"""The options of the lakehouse sink (``merge.md``) and ``SinkConnectorConfig``, what a task works with."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.config.converter import JSON_CONVERTER
from headrace.config.framework import FRAMEWORK_OPTIONS
from headrace.config.layout import group, key
from headrace.config.reselect import POST_PROCESSORS, RESELECT_OPTIONS
from headrace.config.values import AbstractConfig
from headrace.core.connect.config_def import Importance, Type
from headrace.core.connect.config_validators import any_case, at_least, between
from headrace.core.connect.java_patterns import python_pattern
from headrace.core.model.catalog import MODES
from headrace.core.tables.naming import namespace

_HIGH, _LOW = Importance.HIGH, Importance.LOW

_TABLES = group(
    "Tables",
    key(
        "table.namespace",
        Type.STRING,
        "headrace",
        "Namespace of the tables: lake.<namespace>.<name>. It is a folder of the warehouse and must not contain / "
        "or \\.",
        _HIGH,
        namespace,
    ),
    key(
        "collection.name.format",
        Type.STRING,
        "${topic}",
        "Pattern for the name of a topic's table, as in Debezium's JDBC sink: ${topic} (dots become underscores), "
        "${source.name}, ${source.db}, ${source.schema}, ${source.table}.",
        _HIGH,
    ),
    key(
        "table.format",
        Type.STRING,
        "iceberg",
        "Format of the tables: Iceberg in the worker's catalog, or Delta below the worker's warehouse.",
        _HIGH,
        any_case("iceberg", "delta"),
    ),
    key(
        "table.format.version",
        Type.INT,
        "3",
        "Iceberg format version: 3 uses deletion vectors, 2 is for engines that cannot read them.",
        validator=between(2, 3),
    ),
    key(
        "table.partition.by",
        Type.STRING,
        "",
        "Partitioning of new tables: column, years|months|days|hours(column), bucket(n, column), truncate(n, "
        "column), separated by commas. Delta accepts columns only.",
    ),
    key(
        "table.sort.by",
        Type.STRING,
        "",
        "Columns by which the files of new tables are sorted, each optionally followed by ASC or DESC. Delta "
        "clusters by them.",
    ),
    key(
        "table.adopt",
        Type.BOOLEAN,
        "false",
        "Whether to adopt existing tables that Headrace did not create: Headrace adds its columns, keeps the "
        "rows, and applies every change. If false, such a table fails the task.",
    ),
    key(
        "table.missing",
        Type.STRING,
        "fail",
        "What to do if a table that the connector has written does not exist any more, or is older than the "
        "group's offsets. fail stops the task before anything is written, because the records in between are not "
        "read again. recreate creates the table again, or accepts it as it is, and continues at the group's "
        "offsets, for an intended restart.",
        validator=any_case("fail", "recreate"),
    ),
    key(
        "errors.isolation",
        Type.STRING,
        "table",
        "What a table that cannot be written, or a record of it that cannot be used, stops: table stops that table "
        "alone, whose topics are not read until its task is restarted; task fails the task, as in Kafka Connect.",
        validator=any_case("table", "task"),
    ),
    key(
        "insert.mode",
        Type.STRING,
        "upsert",
        "upsert keeps a table equal to its source. insert appends every event as a row, and accepts records "
        "without a key.",
        validator=any_case("upsert", "insert"),
    ),
    key(
        "delete.mode",
        Type.STRING,
        "hard",
        "hard removes a deleted row. soft keeps its cells and sets __headrace_deleted, by which readers filter.",
        validator=any_case("hard", "soft"),
    ),
    key(
        "primary.key.fields",
        Type.LIST,
        "",
        "Columns that form the row key, instead of the key columns of the database's catalog or the record key.",
    ),
    key(
        "field.include.list",
        Type.LIST,
        "",
        "Columns to write (column, or topic:column), as in Debezium's JDBC sink. Columns of the key are always "
        "written.",
    ),
    key(
        "field.exclude.list",
        Type.LIST,
        "",
        "Columns not to write (column, or topic:column). Columns of the key are always written.",
    ),
    key(
        "table.metadata.fields",
        Type.LIST,
        "",
        "Metadata of the last change to write as columns, with the names of Debezium's ExtractNewRecordState: op, "
        "source.name, source.db, source.schema, source.table, source.txId, source.ts_us, source.ts_ms, each "
        "optionally followed by :name.",
    ),
    key("table.metadata.prefix", Type.STRING, "__", "Prefix of the column names of table.metadata.fields."),
    key(
        "schema.evolution",
        Type.STRING,
        "basic",
        "basic adds and widens columns as events require it. none fails the task instead.",
        validator=any_case("none", "basic"),
    ),
    key(
        "tombstone.retention.ms",
        Type.LONG,
        "604800000",
        "Time for which a delete is kept in the ledger, so that a late event of the row cannot bring it back.",
        validator=at_least(0),
    ),
)
_BATCHING = group(
    "Batching",
    key(
        "batch.max.records",
        Type.INT,
        "500000",
        "Number of events at which a table's batch is closed at the latest.",
        validator=at_least(1),
    ),
    key(
        "batch.max.bytes",
        Type.LONG,
        "67108864",
        "Bytes of record values at which a table's batch is closed. Bounds memory.",
        validator=at_least(1024),
    ),
    key(
        "batch.linger.ms",
        Type.LONG,
        "1000",
        "Longest time that an event waits for its batch to fill while the writer is idle. It is ten times as long "
        "while more than 10,000 records wait in Kafka, because larger merges catch up sooner.",
        validator=at_least(0),
    ),
)
_SOURCE = group(
    "Source",
    key(
        "ordering.field",
        Type.STRING,
        "",
        "Field that orders the changes of sources whose positions Headrace does not know: a column (updated_at) "
        "or a field of the source block (source.ts_us). It may contain whole numbers, dates, timestamps or short "
        "texts; number(field), time(field) or text(field) declares how to read texts. Equal values are ordered by "
        "source time, then by offset.",
    ),
    key(
        "source.position.epoch",
        Type.INT,
        "0",
        "Raise it by one after a failover or restore after which the source's positions start again.",
        validator=between(0, 99999),
    ),
    key(
        "source.position.regression.ms",
        Type.LONG,
        "3600000",
        "An event whose position is lower than the stored one fails the task if its source time is newer by more "
        "than this, because the source's positions seem to have started again.",
        validator=at_least(0),
    ),
    key(
        "unavailable.value.placeholder",
        Type.STRING,
        "__debezium_unavailable_value",
        "Value that the source connector sends in place of a value that it does not know. It must equal the "
        "source connector's setting (hex: is accepted).",
    ),
    key(
        "skipped.operations",
        Type.LIST,
        "t",
        "The source connector's setting. If it contains c, u or d, events are missing that would change cached "
        "values, so the cache stays off. Also name operations whose events a transform at the source connector "
        "drops.",
        _LOW,
    ),
    *(
        key(
            name,
            Type.STRING,
            words[0],
            f"The source connector's setting ({', '.join(words)}), for what event schemas do not show.",
            _LOW,
            any_case(*words),
        )
        for name, words in MODES.items()
    ),
    key(
        "money.fraction.digits",
        Type.INT,
        "2",
        "The source connector's setting: fraction digits of PostgreSQL's money type.",
        _LOW,
        between(0, 38),
    ),
    key(
        "add.fields.prefix",
        Type.STRING,
        "__",
        "The prefix that ExtractNewRecordState at the source connector adds to fields. The fields that it adds "
        "(op, deleted, lsn, source.lsn, ts_ms…) describe the event; they are no columns of the table.",
        _LOW,
    ),
    key(
        "add.headers.prefix",
        Type.STRING,
        "__",
        "The prefix that ExtractNewRecordState at the source connector adds to headers.",
        _LOW,
    ),
    key(
        "lob.enabled",
        Type.BOOLEAN,
        "false",
        "The Oracle connector's setting. If false, a null in a change may hide an unchanged LOB, so the stored "
        "value is kept, and LOBs are not cached. Any text or bytes column counts as a LOB unless "
        "reselect.database.* or column.propagate.source.type at the source connector provides its type.",
        _LOW,
    ),
)

SINK_OPTIONS = _TABLES + _BATCHING + _SOURCE + POST_PROCESSORS + RESELECT_OPTIONS
"""The connector's own options."""

CONNECTOR_OPTIONS = FRAMEWORK_OPTIONS + SINK_OPTIONS

LATER = {
    "signal.data.collection": "a later release adds signal tables",
}
"""Keys that a later release brings: refused with that reason, never silently accepted."""

TABLE_PROPERTIES = "table.properties."
"""Prefix of the format's own properties, for new tables: ``auto-create-props`` of Iceberg's Kafka Connect sink."""

CLIENT_OVERRIDES = ("consumer.override.", "producer.override.", "admin.override.")


class SinkConnectorConfig(AbstractConfig):
    """A connector's parsed options with bare reselect keys. Made from a configuration that validation has accepted."""

    __slots__ = ("_workers_group", "converter_classes", "converters")

    def __init__(
        self,
        originals: Mapping[str, str],
        bare: Mapping[str, str],
        converters: Mapping[str, Mapping[str, str]],
        workers_group: str | None = None,
        converter_classes: Mapping[str, str] | None = None,
    ) -> None:
        """``bare`` has bare reselect keys; ``converters`` the options of the converters, by their place.

        ``workers_group`` is the group that the worker names for consumers of all connectors. Converters of which
        ``converter_classes`` says nothing are JsonConverters.
        """
        super().__init__(originals, CONNECTOR_OPTIONS.parse(bare))
        self.converters = {side: dict(options) for side, options in converters.items()}
        self.converter_classes = dict.fromkeys(self.converters, JSON_CONVERTER) | dict(converter_classes or {})
        self._workers_group = workers_group

    @property
    def name(self) -> str:
        """The connector's name."""
        return self.get_string("name")

    @property
    def group_id(self) -> str:
        """The connector's consumer group (``connect.md`` section 5)."""
        return self.originals.get("consumer.override.group.id") or self._workers_group or f"connect-{self.name}"

    @property
    def topics(self) -> list[str]:
        """The topics that are named; empty where ``topics_regex`` is set."""
        return self.get_list("topics")

    @property
    def topics_regex(self) -> str:
        """The regular expression for topics, matched against the whole name; empty where topics are named."""
        return python_pattern(self.get_string("topics.regex"))

    def schemas_enabled(self, side: str) -> bool:
        """Whether documents of ``side`` (``key`` or ``value``) carry their schema."""
        return self.converters[side].get("schemas.enable", "true").strip().lower() != "false"

    def client_overrides(self, client: str) -> dict[str, str]:
        """What the connector overrides of ``client`` (``consumer``, ``producer`` or ``admin``)."""
        return self.originals_with_prefix(f"{client}.override.")
