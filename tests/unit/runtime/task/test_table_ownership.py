"""A table has one writer: it stores whose it is, and a second writer is refused before it writes anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.model.absent_columns import ColumnDefaults
from headrace.core.model.errors import Fatal
from headrace.core.model.events import RowVersion, TableId, Truncate
from headrace.ports import TableOptions
from headrace.runtime.task.write_checks import TableOwnership
from headrace_dev.memory import MemoryLakehouse, MemoryTable

ROWS = TableId("p", "shop", "public", "s1")
OTHER_ROWS = TableId("p", "shop", "public", "s2")
UNNAMED = TableId("", "", "", "p.public.s1")
NO_IDS: dict[str, str] = {}


def content(table: TableId = ROWS, topic: str = "p.public.s1") -> Truncate:
    return Truncate(table, RowVersion(b"1", topic, 0, 7, 0))


@pytest.fixture
def lakehouse() -> MemoryLakehouse:
    return MemoryLakehouse()


@pytest.fixture
def table(lakehouse: MemoryLakehouse) -> MemoryTable:
    """A table that connector d1 writes from its topic."""
    table = lakehouse.table("dd", "same", TableOptions())
    owner("d1").register("dd.same", table, content(), NO_IDS)
    table.evolve(pa.schema([("id", pa.int64())]), ["id"])
    return table


def owner(connector: str, *, shared: bool = False, adopts_from: tuple[str, ...] = ()) -> TableOwnership:
    return TableOwnership(connector, f"connect-{connector}", shared=shared, adopts_from=adopts_from)


def test_another_connector_is_refused_with_the_ways_out(table: MemoryTable) -> None:
    """The message names both writers, topics and source tables, and what to set; nothing is registered."""
    with pytest.raises(Fatal) as refused:
        owner("d2").register("dd.same", table, content(OTHER_ROWS, "p.public.s2"), NO_IDS)
    words = (
        "dd.same: the table belongs to another writer (connector d1, topic p.public.s1",
        "(source table p.shop.public.s1)",
        "connector d2, topic p.public.s2 (source table p.shop.public.s2)",
        "collection.name.format",
        "primary.key.fields",
        "table.adopt.from=d1",
    )
    assert [word for word in words if word not in str(refused.value)] == []
    assert [source.connector for source in table.sources()] == ["d1"]


def test_the_same_topic_is_refused_whatever_the_key(table: MemoryTable) -> None:
    """Unique keys do not help against two readers of one topic, so the message does not offer them."""
    with pytest.raises(Fatal) as refused:
        owner("d2", shared=True).register("dd.same", table, content(), NO_IDS)
    assert "primary.key.fields" not in str(refused.value)
    owner("d2", shared=True).register("dd.same", table, content(OTHER_ROWS, "p.public.s2"), NO_IDS)
    assert [source.connector for source in table.sources()] == ["d1", "d2"]


def test_a_restart_remembers_the_source(table: MemoryTable) -> None:
    """A connector whose topic brings another source table after a restart is refused, as within one task."""
    owner("d1").register("dd.same", table, content(), NO_IDS)
    with pytest.raises(Fatal, match=r"table\.adopt\.from=d1"):
        owner("d1").register("dd.same", table, content(OTHER_ROWS), NO_IDS)
    owner("d1", adopts_from=("d1",)).register("dd.same", table, content(OTHER_ROWS), NO_IDS)
    assert [source.table for source in table.sources()] == [OTHER_ROWS]


def test_an_adopted_table_is_lost_to_its_former_writer(table: MemoryTable) -> None:
    """A renamed connector writes on; what still runs under the old name fails with its next batch."""
    owner("renamed", adopts_from=("d0", "d1")).register("dd.same", table, content(), NO_IDS)
    assert [source.connector for source in table.sources()] == ["renamed"]
    owner("renamed").register("dd.same", table, content(), NO_IDS)
    with pytest.raises(Fatal, match="connector renamed"):
        owner("d1").register("dd.same", table, content(), NO_IDS)


class Late:
    """A ``ports.LakeTable`` in which something happens between the read of its sources and the registration."""

    def __init__(self, table: MemoryTable, before: Callable[[], None]) -> None:
        self._table = table
        self._before = before

    def __getattr__(self, name: str) -> Any:
        if name == "register":
            self._before()
        return getattr(self._table, name)


def test_two_writers_that_begin_at_once(lakehouse: MemoryLakehouse) -> None:
    """Both find a table of another tool without a writer; the one that registers last sees the other, and fails."""
    table = lakehouse.table("dd", "bulk", TableOptions(adopt=True))
    table.create_otherwise(pa.schema([("id", pa.int64())]))
    late = Late(table, lambda: owner("d1").register("dd.bulk", table, content(), NO_IDS))
    with pytest.raises(Fatal, match="connector d1"):
        owner("d2").register("dd.bulk", late, content(OTHER_ROWS, "p.public.s2"), NO_IDS)


def test_what_names_no_source_table_registers_the_topic(lakehouse: MemoryLakehouse) -> None:
    """Tombstones at the beginning do not name their table; the first event that does replaces the entry."""
    table = lakehouse.table("dd", "same", TableOptions())
    for named, stored in ((UNNAMED, UNNAMED), (ROWS, ROWS), (UNNAMED, ROWS)):
        owner("d1").register("dd.same", table, content(named), NO_IDS)
        assert [source.table for source in table.sources()] == [stored]
    table.evolve(pa.schema([("id", pa.int64())]), ["id"])
    owner("d1").register("dd.same", table, content(UNNAMED), NO_IDS)
    assert [source.table for source in table.sources()] == [ROWS]


def test_a_connector_of_the_same_group_continues(table: MemoryTable) -> None:
    """In one group, a topic has one reader at a time, whatever the connector is called."""
    TableOwnership("renamed", "connect-d1", shared=False).register("dd.same", table, content(), NO_IDS)
    assert [source.connector for source in table.sources()] == ["renamed"]


def test_defaults_of_columns_are_of_no_topic_of_rows(table: MemoryTable) -> None:
    """They come from the schema-change topic, which several connectors may read."""
    owner("d2").register("dd.same", table, ColumnDefaults(ROWS, replace(content().version, topic="p"), ()), NO_IDS)
    assert [source.connector for source in table.sources()] == ["d1"]


def test_a_topic_that_was_created_again_is_refused(table: MemoryTable) -> None:
    """Its reads have lower offsets than the rows. The table learns the id with the first batch that knows it."""
    for topic_id, stored in (("", ""), ("old", "old"), ("", "old")):
        owner("d1").register("dd.same", table, content(), {"p.public.s1": topic_id})
        assert [source.topic_id for source in table.sources()] == [stored]
    with pytest.raises(Fatal, match=r"p\.public\.s1 was deleted and created again.*drop the table"):
        owner("d1").register("dd.same", table, content(), {"p.public.s1": "new"})
    owner("d1", adopts_from=("d1",)).register("dd.same", table, content(), {"p.public.s1": "new"})
    assert [source.topic_id for source in table.sources()] == ["new"]


def test_a_replay_of_dead_letters_changes_nothing(table: MemoryTable) -> None:
    """It has no group, and does not know the id of the topic."""
    owner("d1").register("dd.same", table, content(), {"p.public.s1": "id"})
    before = list(table.sources())
    TableOwnership("d1", "", shared=False).register("dd.same", table, content(), NO_IDS)
    assert list(table.sources()) == before
