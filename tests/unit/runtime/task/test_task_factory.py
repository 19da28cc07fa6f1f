"""Tests of the task options that a connector's configuration produces."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from headrace.config.connector import CONNECTOR_OPTIONS
from headrace.config.reselect import reselect_options
from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.core.connect.config_def import AnyCase
from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.status import TableStatus
from headrace.core.model.errors import Retriable
from headrace.core.model.positions import Ordering
from headrace.core.reselect.cache.rows import MemoryRowStore, RowStore
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.core.tables.field_selection import AddedField, FieldSelection
from headrace.core.tables.table_layout import Maintenance, PartitionField, SortField, TableLayout
from headrace.ports import RowSource, RowStoreOptions, TableOptions
from headrace.runtime.task.flow_control import unlimited
from headrace.runtime.task.task_factory import SinkTaskFactory
from headrace.runtime.task.task_options import sink_task_options
from headrace.runtime.task.task_parts import SinkTaskOptions
from headrace.runtime.threads import WorkerThreads
from headrace_dev.memory import MemoryLakehouse, MemoryRowSource
from headrace_dev.memory.dead_letter_queue import MemoryDeadLetterQueue
from headrace_dev.memory.feed import MemoryBroker, MemoryFeeds

CACHED = {
    "post.processors": "r",
    "post.processors.r.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
    "post.processors.r.reselect.cache.enabled": "true",
}
JSON = "org.apache.kafka.connect.json.JsonConverter"
RESELECTING = CACHED | {
    "name": "shop",
    "connector.class": "LakehouseSink",
    "topics": "a",
    "key.converter": JSON,
    "value.converter": JSON,
    "errors.deadletterqueue.topic.name": "dead",
    "reselect.database.hostname": "h",
    "reselect.database.user": "u",
    "reselect.database.dbname": "d",
}
DEFAULTS = WorkerDefaults({"key.converter": "x", "value.converter": "x"}, "1.0")


def options(**given: str) -> SinkTaskOptions:
    properties = {
        "name": "shop",
        "connector.class": "LakehouseSink",
        "topics": "a",
        **{name.replace("__", "."): value for name, value in given.items()},
    }
    return sink_task_options(sink_connector_config(properties, DEFAULTS))


WORDS = [
    (option.name, word)
    for option in CONNECTOR_OPTIONS.keys
    if isinstance(option.validator, AnyCase)
    for word in option.validator.choices
]


def shown(found: SinkTaskOptions) -> str:
    """Return the options as text without object addresses, because some parts define no equality."""
    return re.sub(r" at 0x\w+", "", repr(found))


@pytest.mark.parametrize(("option", "word"), WORDS)
def test_words_mean_the_same_in_any_case(option: str, word: str) -> None:
    """A task accepts the words of an option in upper case, title case and with spaces, as the validation does."""
    found = [options(**{option: given}) for given in (word.upper(), f" {word.title()} ", word)]
    assert shown(found[0]) == shown(found[1]) == shown(found[2])
    upper, as_listed = (reselect_options({option: given}) for given in (word.upper(), word))
    assert upper == as_listed


def test_tables_by_default() -> None:
    """By default tables use Iceberg version 3, merges, and the layout of the format."""
    assert options().tables == TableOptions(maintenance_bytes=20 * 2**30)
    assert options().fields == FieldSelection()
    assert not options().envelope.keyless


def test_table_options_of_a_connector() -> None:
    """The table options contain format, layout, properties, adoption and soft deletes of the configuration."""
    found = options(
        table__format="Delta",
        table__catalog="second",
        table__partition__by="region",
        table__adopt="true",
        delete__mode="soft",
        table__maintenance="Inline",
        table__maintenance__bytes__per__hour=str(7 * 2**30),
        **{"table.properties.delta.checkpointInterval": "7"},
    ).tables
    layout = TableLayout((PartitionField("region"),))
    own = {"maintenance": Maintenance.INLINE, "maintenance_bytes": 7 * 2**30}
    assert found == TableOptions(
        "delta", "second", 3, {"delta.checkpointInterval": "7"}, layout, adopt=True, soft_delete=True, **own
    )
    assert options(table__sort__by="a desc").tables.layout == TableLayout(sort=(SortField("a", True),))


def test_column_options_of_a_connector() -> None:
    """The field selection contains included fields, and metadata fields with their prefix."""
    assert options(field__include__list="a,t:b").fields == FieldSelection(include=frozenset({"a", "t:b"}))
    added = options(table__metadata__fields="op,table:from", table__metadata__prefix="m_").fields.added
    assert added == (AddedField("op", "m_op"), AddedField("source.table", "m_from"))


def test_a_history_accepts_records_without_a_key() -> None:
    """With ``insert.mode=insert`` the tables are histories, and the decoder accepts records without a key."""
    found = options(insert__mode="insert")
    assert found.tables.history
    assert found.envelope.keyless


def test_the_group_of_the_commits_is_the_one_that_the_tasks_join() -> None:
    """The group id is the connector's override, else the worker's option, else ``connect-<connector name>``."""
    worker = replace(DEFAULTS, consumer_group="worker")
    connector = {"consumer.override.group.id": "connector"}
    found = [
        sink_connector_config(
            {"name": "shop", "connector.class": "LakehouseSink", "topics": "a", **given}, defaults
        ).group_id
        for given, defaults in ((connector, worker), ({}, worker), ({}, DEFAULTS))
    ]
    assert found == ["connector", "worker", "connect-shop"]


def test_ordering_field_of_other_sources() -> None:
    """A source field of ``ordering.field`` is also read from flattened records. Another name is a column of the row."""
    found = options(ordering__field="number(source.seq)").envelope
    assert found.ordering == Ordering("seq", of_source=True, reading="number")
    assert found.added.fields["__seq"] == "source.seq"
    assert "__seq" not in options(ordering__field="seq").envelope.added.fields
    assert options().envelope.ordering is None


def test_transforms_and_their_metadata_prefixes() -> None:
    """The prefixes of an ExtractNewRecordState transform override the connector's own prefix options."""
    assert not options().transforms
    unwrap = {
        "transforms": "unwrap",
        "transforms.unwrap.type": "ExtractNewRecordState",
        "transforms.unwrap.add.fields.prefix": "f_",
        "add.fields.prefix": "other_",
    }
    found = options(**unwrap)
    assert [link.alias for link in found.transforms.links] == ["unwrap"]
    assert "f_op" in found.envelope.added.fields
    assert found.envelope.added.headers_prefix == "__"
    assert "other_op" in options(add__fields__prefix="other_").envelope.added.fields


def test_tasks_that_fill_in_the_defaults_of_new_columns() -> None:
    """Only the single task of a connector that merges and does not reroute topics fills in defaults."""
    assert options(tasks__max="1").fills_defaults
    assert not options(tasks__max="2").fills_defaults
    assert not options(insert__mode="insert").fills_defaults
    router = {"transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter"}
    assert not options(**router, **{"transforms.r.regex": "a", "transforms.r.replacement": "b"}).fills_defaults


class ClosableQueue(MemoryDeadLetterQueue):
    """A dead letter queue that records whether it was closed."""

    closed = False

    async def close(self) -> None:
        self.closed = True


def open_in_another_process(kind: str, options: RowStoreOptions) -> RowStore:
    """Fail like a cache on disk that its previous task still holds open."""
    raise Retriable("the reselect cache is open in another process or task")


@pytest.mark.anyio
async def test_a_task_that_cannot_be_created_leaves_no_queue_open() -> None:
    """The factory closes the dead letter queue if it cannot create the task, because each retry opens a new one."""
    feeds, queue = MemoryFeeds(MemoryBroker()), ClosableQueue("shop", 0)
    feeds.queues["dead"] = queue
    with WorkerThreads.start(2) as threads:
        factory = SinkTaskFactory(
            feeds,
            MemoryLakehouse(),
            lambda database, options: MemoryRowSource(),
            threads,
            unlimited(),
            open_in_another_process,
            sources={},
        )
        with pytest.raises(Retriable):
            await factory("shop", 0, sink_connector_config(RESELECTING, DEFAULTS), lambda error: None)
    assert queue.closed


@pytest.mark.anyio
async def test_a_database_that_cannot_be_opened_leaves_no_cache_open() -> None:
    """The factory opens the cache last: one that stays open would refuse the next attempt."""
    opened: list[RowStore] = []

    def open_cache(kind: str, options: RowStoreOptions) -> RowStore:
        opened.append(MemoryRowStore(options.limits))
        return opened[-1]

    def refuse(database: DatabaseOptions, options: ReselectOptions) -> RowSource:
        raise Retriable("the password cannot be read")

    with WorkerThreads.start(2) as threads:
        factory = SinkTaskFactory(
            MemoryFeeds(MemoryBroker()), MemoryLakehouse(), refuse, threads, unlimited(), open_cache, sources={}
        )
        with pytest.raises(Retriable, match="the password"):
            await factory("shop", 0, sink_connector_config(RESELECTING, DEFAULTS), lambda error: None)
    assert not opened


@pytest.mark.anyio
async def test_a_task_gets_the_tables_that_had_failed() -> None:
    """Their states are those of the status topic, which another worker may have written."""
    converters = {"key.converter": JSON, "value.converter": JSON}
    config = {"name": "shop", "connector.class": "LakehouseSink", "topics": "a", **converters}
    failed = TableStatus("items", TableState.FAILED, "the cause", 0.0, None, ("a",))
    feeds = MemoryFeeds(MemoryBroker())
    with WorkerThreads.start(2) as threads:
        for isolation, expected in (("table", [("items", TableState.RETRYING)]), ("task", [])):
            factory = SinkTaskFactory(
                feeds,
                MemoryLakehouse(),
                lambda database, options: MemoryRowSource(),
                threads,
                unlimited(),
                blocked=lambda connector, number: [failed] if (connector, number) == ("shop", 3) else [],
                sources={},
            )
            typed = sink_connector_config({**config, "errors.isolation": isolation}, DEFAULTS)
            task = await factory("shop", 3, typed, lambda error: None)
            assert [(each.table, each.state) for each in task.reports()] == expected
            assert not (await factory("shop", 0, typed, lambda error: None)).reports()
