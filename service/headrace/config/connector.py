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
from headrace.core.model.catalog import MODES
from headrace.core.tables.naming import namespace

_HIGH, _LOW = Importance.HIGH, Importance.LOW

_TABLES = group(
    "Tables",
    key(
        "table.namespace",
        Type.STRING,
        "headrace",
        "Namespace of the tables: lake.<namespace>.<name>. A folder of the warehouse, so without / and \\.",
        _HIGH,
        namespace,
    ),
    key(
        "collection.name.format",
        Type.STRING,
        "${topic}",
        "Name of a topic's table, as in Debezium's JDBC sink: ${topic} (dots become underscores), ${source.name}, "
        "${source.db}, ${source.schema}, ${source.table}.",
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
        "Iceberg format version: 3 has deletion vectors, 2 is for engines that cannot read those yet.",
        validator=between(2, 3),
    ),
    key(
        "table.partition.by",
        Type.STRING,
        "",
        "How new tables are partitioned: column, years|months|days|hours(column), bucket(n, column), "
        "truncate(n, column), separated by commas. Delta takes columns only.",
    ),
    key(
        "table.sort.by",
        Type.STRING,
        "",
        "Columns by which the files of new tables are sorted, each with ASC or DESC behind it if you like. Delta "
        "clusters by them.",
    ),
    key(
        "table.adopt",
        Type.BOOLEAN,
        "false",
        "Take over tables that are there and were not made by Headrace: its columns are added to them, their rows "
        "stay, and every change applies to them. Otherwise such a table fails the task.",
    ),
    key(
        "table.missing",
        Type.STRING,
        "fail",
        "What happens if a table that the connector has written is gone or older than the group's offsets: fail stops "
        "the task before anything is written, since the records in between are not read again; recreate creates the "
        "table again, or accepts it as it is, and continues at the group's offsets, for an intended restart.",
        validator=any_case("fail", "recreate"),
    ),
    key(
        "insert.mode",
        Type.STRING,
        "upsert",
        "upsert keeps a table equal to its source; insert appends every event as a row of its own, and takes records "
        "without a key.",
        validator=any_case("upsert", "insert"),
    ),
    key(
        "delete.mode",
        Type.STRING,
        "hard",
        "hard removes a deleted row; soft keeps it as it was and sets __headrace_deleted, for readers to filter by.",
        validator=any_case("hard", "soft"),
    ),
    key(
        "primary.key.fields",
        Type.LIST,
        "",
        "Columns that make up the row key, instead of those of the database's catalog or the record key.",
    ),
    key(
        "field.include.list",
        Type.LIST,
        "",
        "Only these columns (column, or topic:column) and those of the key get into the tables, as in Debezium's JDBC "
        "sink.",
    ),
    key(
        "field.exclude.list",
        Type.LIST,
        "",
        "These columns (column, or topic:column) do not get into the tables; those of the key do all the same.",
    ),
    key(
        "table.metadata.fields",
        Type.LIST,
        "",
        "Metadata of the last change as columns, named as Debezium's ExtractNewRecordState does: op, source.name, "
        "source.db, source.schema, source.table, source.txId, source.ts_us, source.ts_ms, each with :name behind it if "
        "you like.",
    ),
    key("table.metadata.prefix", Type.STRING, "__", "What the names of those columns begin with."),
    key(
        "schema.evolution",
        Type.STRING,
        "basic",
        "basic adds and widens columns as events bring them; none fails the task instead.",
        validator=any_case("none", "basic"),
    ),
    key(
        "tombstone.retention.ms",
        Type.LONG,
        "604800000",
        "How long a delete is remembered so that a late event of the row cannot bring it back.",
        validator=at_least(0),
    ),
)
_BATCHING = group(
    "Batching",
    key(
        "batch.max.records",
        Type.INT,
        "500000",
        "A table's batch is closed at this many events at the latest.",
        validator=at_least(1),
    ),
    key(
        "batch.max.bytes",
        Type.LONG,
        "67108864",
        "A table's batch is closed at this many bytes of record values; bounds memory.",
        validator=at_least(1024),
    ),
    key(
        "batch.linger.ms",
        Type.LONG,
        "1000",
        "Longest time that an event waits for its batch to fill while the writer is free; ten times as long while more "
        "than 10,000 records wait in Kafka, because larger merges catch up sooner.",
        validator=at_least(0),
    ),
)
_SOURCE = group(
    "Source",
    key(
        "ordering.field",
        Type.STRING,
        "",
        "What orders the changes of sources whose positions Headrace does not know: a column (updated_at) or a field "
        "of the source block (source.ts_us). Whole numbers, dates, timestamps and short texts do; number(field), "
        "time(field) or text(field) says how texts are meant. Equal values go by source time, then by offset.",
    ),
    key(
        "source.position.epoch",
        Type.INT,
        "0",
        "Raise it by one after a failover or restore that makes the source's positions start again.",
        validator=between(0, 99999),
    ),
    key(
        "source.position.regression.ms",
        Type.LONG,
        "3600000",
        "An event whose position is lower than the stored one but whose source time is newer by more than this fails "
        "the task: it looks like a source whose positions have started again.",
        validator=at_least(0),
    ),
    key(
        "unavailable.value.placeholder",
        Type.STRING,
        "__debezium_unavailable_value",
        "What the source connector sends for a value that it does not know; must equal its setting (hex: is accepted).",
    ),
    key(
        "skipped.operations",
        Type.LIST,
        "t",
        "The source connector's setting. Where it skips c, u or d, events are missing that would change what the cache "
        "remembers, so the cache stays off; name them too where a transform at the source connector drops such events.",
        _LOW,
    ),
    *(
        key(
            name,
            Type.STRING,
            words[0],
            f"The source connector's setting ({', '.join(words)}); what event schemas do not show is read from it.",
            _LOW,
            any_case(*words),
        )
        for name, words in MODES.items()
    ),
    key(
        "money.fraction.digits",
        Type.INT,
        "2",
        "The source connector's setting: digits of PostgreSQL's money type.",
        _LOW,
        between(0, 38),
    ),
    key(
        "add.fields.prefix",
        Type.STRING,
        "__",
        "Of records that ExtractNewRecordState has flattened: its setting. The fields that it adds (op, deleted, lsn, "
        "source.lsn, ts_ms…) say what an event is; they are no columns of the table.",
        _LOW,
    ),
    key(
        "add.headers.prefix",
        Type.STRING,
        "__",
        "The same of the headers that it adds.",
        _LOW,
    ),
    key(
        "lob.enabled",
        Type.BOOLEAN,
        "false",
        "The Oracle connector's setting. Without it a null in a change may hide a LOB that did not change, so the "
        "stored value is kept, and nothing of a LOB is cached. Any text or bytes column counts as a LOB unless "
        "reselect.database.* or column.propagate.source.type at the source connector tells its type.",
        _LOW,
    ),
)

SINK_OPTIONS = _TABLES + _BATCHING + _SOURCE + POST_PROCESSORS + RESELECT_OPTIONS
"""The connector's own options."""

CONNECTOR_OPTIONS = FRAMEWORK_OPTIONS + SINK_OPTIONS

LATER = {
    "signal.data.collection": "signal tables come with a later release",
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
        return self.get_string("topics.regex")

    def schemas_enabled(self, side: str) -> bool:
        """Whether documents of ``side`` (``key`` or ``value``) carry their schema."""
        return self.converters[side].get("schemas.enable", "true").strip().lower() != "false"

    def client_overrides(self, client: str) -> dict[str, str]:
        """What the connector overrides of ``client`` (``consumer``, ``producer`` or ``admin``)."""
        return self.originals_with_prefix(f"{client}.override.")
