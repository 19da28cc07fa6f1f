"""Recordings of topics with several partitions give the tables of their dump, for any interleaving of partitions.

A consumer reads each partition in order, and the partitions in any order. So the halves of a key change arrive in
either order, and the next row of a key may arrive before the key change of its old row.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Collection, Iterator, Mapping, Sequence

import pytest
from recordings.comparison import Expectation, expectation, problems, records_of, rows_of
from recordings.records import DEFAULT_PLACEHOLDER, PARTITIONED, DumpedTable, RecordedRecord, Variant, dump, variant
from recordings.replay import Chunk, Killed, Replay

from headrace.core.decode.envelope_events import OLD_KEY_HEADER
from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn, SqlType
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace_connectors.memory import MemoryRowSource

TABLES = ("parts.kv", "parts.whole", "parts.cleared")
PARTITIONS = 3
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


def by_partition(records: Sequence[RecordedRecord]) -> Mapping[int, Sequence[RecordedRecord]]:
    """The records of a topic by partition."""
    return {number: [each for each in records if each.partition == number] for number in range(PARTITIONS)}


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


def replay_interleaved(replay: Replay, records: Sequence[RecordedRecord], chance: random.Random) -> None:
    """Deliver all records: partitions in any order, chunks of any size, with kills and earlier offsets.

    After each chunk, every document is one that its row had at some time.
    """
    partitions, known = by_partition(records), documents(replay.of, replay.table)
    at = dict.fromkeys(partitions, 0)
    kills = chance.randint(0, 3)
    while unread := [number for number in partitions if at[number] < len(partitions[number])]:
        number = chance.choice(unread)
        end = at[number] + chance.choice((1, 3, 20, 100))
        chunk, at[number] = partitions[number][at[number] : end], end
        killed = kills > 0 and chance.random() < 0.1
        with contextlib.suppress(Killed):
            replay.deliver([Chunk(chunk, flush=chance.random() < 0.6)])
            assert strange_documents(replay, known) == []
            if not killed:
                continue
        kills -= 1
        replay.restart()
        at = {number: chance.randint(0, offset) for number, offset in _committed(replay).items()}
        replay.committed = dict(at)
    with contextlib.suppress(Killed):
        replay.finish()
        return
    replay.restart()
    replay.deliver(
        [Chunk(rest) for number, offset in _committed(replay).items() if (rest := partitions[number][offset:])]
    )
    replay.finish()


def strange_documents(replay: Replay, known: Collection[tuple[int, str | None]]) -> list[tuple[int, str]]:
    """The documents in the table that are neither in ``known`` nor in the end state.

    Reselect reads the end state, and a key change carries what was read before it.
    """
    end = {row["doc"] for row in replay.table.rows} if replay.source is not None else set()
    rows = replay.content().to_pylist() if replay.written else []
    found = [(row["id"], row["doc"]) for row in rows if row.get("doc") is not None]
    return [place for place in found if place not in known and place[1] not in end]


def _committed(replay: Replay) -> dict[int, int]:
    return {number: replay.committed.get(number, 0) for number in range(PARTITIONS)}


def want(of: Variant, table: DumpedTable) -> Expectation:
    return expectation(table, of, KEY, typed=True)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("table_name", TABLES)
@pytest.mark.parametrize("name", PARTITIONED)
def test_any_interleaving_with_a_database(name: str, table_name: str, seed: int) -> None:
    """The table equals the dump: every omitted cell is reselected."""
    of, chance = variant(name), random.Random(seed)
    table = dump(of.dump_file)[table_name]
    dies_at = chance.choice((0, 0, 2, 5))
    replay = Replay(of, table, database(of, table), cached=seed % 2 == 1, dies_at=dies_at, partitions=PARTITIONS)
    replay_interleaved(replay, records_of(table, of), chance)
    assert problems(want(of, table), rows_of(replay.content(), KEY), reselected=True) == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("table_name", TABLES)
@pytest.mark.parametrize("name", PARTITIONED)
def test_any_interleaving_without_a_database(name: str, table_name: str, seed: int) -> None:
    """The table equals the dump, except that documents without a source are null, never another row's."""
    of, chance = variant(name), random.Random(seed)
    table = dump(of.dump_file)[table_name]
    replay = Replay(of, table, dies_at=chance.choice((0, 0, 2, 5)), partitions=PARTITIONS)
    replay_interleaved(replay, records_of(table, of), chance)
    found = problems(
        want(of, table),
        rows_of(replay.content(), KEY),
        reselected=False,
        untold=lambda column, value: column == "doc" and value is None,
    )
    assert found == []


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
