"""Recordings of topics with several partitions give the tables of their dump, for any interleaving of partitions."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterator

import pytest
from recordings.comparison import expectation, problems, records_of, rows_of
from recordings.orders import by_partition, deliver, ends_of
from recordings.records import DEFAULT_PLACEHOLDER, PARTITIONED, DumpedTable, RecordedRecord, Variant, dump, variant
from recordings.replay import Replay

from headrace.core.decode.envelope_events import OLD_KEY_HEADER
from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn, SqlType
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace_dev.memory import MemoryRowSource

TABLES = ("parts.kv", "parts.whole", "parts.cleared")
SEEDS = range(6)
KEY = ["id"]
INT, TEXT = SqlType(23, "pg_catalog", "int4"), SqlType(25, "pg_catalog", "text")
ROW = Schema(
    "struct",
    fields=(
        Field("id", Schema("int32")),
        Field("n", Schema("int32", optional=True)),
        Field("note", Schema("string", optional=True)),
        Field("doc", Schema("string", optional=True)),
    ),
)


def database(of: Variant, table: DumpedTable) -> MemoryRowSource:
    """The source in its end state, as for a sink that lags behind."""
    full = table.table == "whole"
    columns = (
        CatalogColumn("id", 1, INT, attlen=4, not_null=True),
        CatalogColumn("n", 2, INT, attlen=4),
        CatalogColumn("note", 3, TEXT, attstorage="x", recoverable=full),
        CatalogColumn("doc", 4, TEXT, attstorage="e", recoverable=full),
    )
    of_source = TableId(of.prefix, "inventory", table.schema, table.table)
    catalog = CatalogTable(of_source, "r", "f" if full else "d", columns, (KeyColumn("id", INT),))
    rows = [{name: int(row[name] or 0) if name in ("id", "n") else row[name] for name in row} for row in table.rows]
    source = MemoryRowSource()
    source.add(catalog, ROW, rows)
    return source


def documents(of: Variant, table: DumpedTable) -> set[tuple[int, str | None]]:
    """By key, the documents that its rows had at some time, from all changes in the order of the source's log."""
    rows: dict[int, str | None] = {}
    given_away: tuple[int, str | None] = (-1, None)
    found: set[tuple[int, str | None]] = set()
    for position, _, operation, key, document in sorted(changes(of, table)):
        if operation == "t":
            rows.clear()
        elif operation == "d":
            given_away = position, rows.pop(key)
        else:
            if document == DEFAULT_PLACEHOLDER:
                document = rows[key] if operation == "u" else given_away[1]
                assert operation == "u" or given_away[0] == position
            rows[key] = document
            found.add((key, document))
    return found


def changes(of: Variant, table: DumpedTable) -> Iterator[tuple[int, bool, str, int, str | None]]:
    """Log position, whether it is an upsert, operation, key and document of each change, unordered.

    The initial snapshot's reads come before all changes; a key change's halves have one position.
    """
    for record in records_of(table, of):
        if record.value is None:
            continue
        document = json.loads(record.value)
        change = document.get("payload", document)
        operation, source = change["op"], change["source"]
        if source["snapshot"] != "incremental":
            key = -1 if record.key is None else _identity(record.key)
            position = 0 if operation == "r" else source["lsn"]
            yield position, operation != "d", operation, key, (change["after"] or {}).get("doc")


def strange_documents(replay: Replay, known: Collection[tuple[int, str | None]]) -> list[tuple[int, str]]:
    """The documents in the table that are neither in ``known`` nor in the end state.

    Reselect reads the end state, and a key change carries what was read before it.
    """
    end = {row["doc"] for row in replay.table.rows} if replay.source is not None else set()
    rows = replay.content().to_pylist() if replay.written else []
    found = [(row["id"], row["doc"]) for row in rows if row.get("doc") is not None]
    return [place for place in found if place not in known and place[1] not in end]


def delivered_in_any_order(replay: Replay, chance: random.Random) -> list[str]:
    """Deliver the records in any order, and return what differs from the dump.

    After each chunk, every document is one that its row had at some time.
    """
    known, records = documents(replay.of, replay.table), records_of(replay.table, replay.of)

    def check() -> None:
        assert strange_documents(replay, known) == []

    deliver(replay, by_partition(records), chance, kills=chance.randint(0, 3), check=check)
    expected = expectation(replay.table, replay.of, KEY, typed=True)
    return problems(expected, rows_of(replay.content(), KEY), reselected=replay.source is not None)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("table_name", TABLES)
@pytest.mark.parametrize("name", PARTITIONED)
def test_any_interleaving_with_a_database(name: str, table_name: str, seed: int) -> None:
    """The table equals the dump: every omitted cell is reselected."""
    of, chance = variant(name), random.Random(seed)
    table = dump(of.dump_file)[table_name]
    dies_at, ends = chance.choice((0, 0, 2, 5)), ends_of(by_partition(records_of(table, of)))
    replay = Replay(of, table, database(of, table), cached=seed % 2 == 1, dies_at=dies_at, ends=ends)
    assert delivered_in_any_order(replay, chance) == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("table_name", TABLES)
@pytest.mark.parametrize("name", PARTITIONED)
def test_any_interleaving_without_a_database(name: str, table_name: str, seed: int) -> None:
    """The table equals the dump: each omitted cell is carried from the row under the old key."""
    of, chance = variant(name), random.Random(seed)
    table = dump(of.dump_file)[table_name]
    ends = ends_of(by_partition(records_of(table, of)))
    replay = Replay(of, table, dies_at=chance.choice((0, 0, 2, 5)), ends=ends)
    assert delivered_in_any_order(replay, chance) == []


@pytest.mark.parametrize("name", PARTITIONED)
def test_the_recordings_have_what_they_are_for(name: str) -> None:
    """Halves of key changes in different partitions, keys that are used again, truncates in a topic with partitions."""
    of = variant(name)
    for table in dump(of.dump_file).values():
        records = records_of(table, of)
        assert all(by_partition(records).values())
        places = {_identity(each.key): each.partition for each in records if each.key is not None}
        moved = [
            (each.partition, places.get(_identity(old)))
            for each in records
            for header, old in each.headers
            if header == OLD_KEY_HEADER
        ]
        assert any(new != old for new, old in moved)
        made = [each.key for each in records if _operation(each, of) == "c"]
        assert len(made) > 2 * len(set(made))
    cleared = records_of(dump(of.dump_file)["parts.cleared"], of)
    assert sum(_operation(each, of) == "t" for each in cleared) > 1


def _identity(document: bytes) -> int:
    """The id in a key, or in a header with a key, which have no schema."""
    key = json.loads(document)
    identity: int = key.get("payload", key)["id"]
    return identity


def _operation(record: RecordedRecord, of: Variant) -> str | None:
    if record.value is None:
        return None
    document = json.loads(record.value)
    operation: str = (document if of.bare else document["payload"])["op"]
    return operation
