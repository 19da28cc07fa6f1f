"""Tests of the simulated databases and connectors: their records, applied one by one, give the rows of the database."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from properties.source_database.connector import Connector, SentRecord, Setup
from properties.source_database.database import AddedPartitions, Database, Failover, Snapshot, Transaction
from properties.source_database.dialects import DIALECTS
from properties.source_database.scenario import Scenario, simulate
from properties.source_database.seeds import of_seed
from properties.source_database.statements import Features, Statement, statements
from properties.source_database.tables import key_columns
from properties.source_database.wire import PLACEHOLDER

LEFT_OUT = (PLACEHOLDER, [PLACEHOLDER])
IN_ORDER = Features(truncates=True, alters=True, incremental=True)
"""What can be applied one by one: no keys that one statement exchanges, no reads ahead, nothing sent again."""


def applied(setup: Setup, records: list[SentRecord]) -> list[dict[str, Any]]:
    """The rows of each table after all events, applied in order without positions or batches.

    An unavailable cell gets the value of the old row, which a key change has under its old key.
    """
    tables: list[dict[str, Any]] = [{} for _ in range(setup.tables)]
    moved: Mapping[str, Any] = {}
    for record in records:
        if record.value is None:
            continue
        payload = json.loads(record.value)
        payload = payload.get("payload", payload)
        rows, op = tables[int(payload["source"]["table"][1:])], payload["op"]
        key = json.dumps(json.loads(record.key or b"null"))
        if op == "t":
            rows.clear()
        elif op == "d":
            moved = rows.pop(key)
        else:
            before = rows.get(key, moved)
            rows[key] = {
                name: before.get(name) if value in LEFT_OUT else value for name, value in payload["after"].items()
            }
    return tables


def final_rows(database: Database) -> list[list[dict[str, Any]]]:
    """The rows of each table, sorted; columns that a row's events did not contain are null."""
    return [sorted(map(_text, table.values())) for table in database.final]


def _text(row: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in row.items() if value is not None}, sort_keys=True, default=str)


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@pytest.mark.parametrize("key_kind", ["int", "text", "composite"])
def test_events_in_order_make_the_rows_of_the_database(dialect: str, key_kind: str) -> None:
    """The records of the connector give the rows that the database has at the end."""
    for seed in range(60):
        setup = Setup(dialect=dialect, key_kind=key_kind, tables=1 + seed % 2, schemas=seed % 3 > 0, salt=seed)
        database = Database(setup.tables, key_kind, False, DIALECTS[dialect].together)
        database.run(statements(Random(seed), IN_ORDER, setup.tables, 20))
        rows = applied(setup, list(Connector(setup, database).records()))
        assert [sorted(map(_text, table.values())) for table in rows] == final_rows(database), f"seed {seed}"


def test_keys_that_one_statement_exchanges() -> None:
    """UPDATE t SET id = id + 1: PostgreSQL logs one key change after the other, each with its two keys."""
    database = Database(1, "int", False)
    given = [Statement(1, 0, "insert", key=1), Statement(2, 0, "insert", key=2), Statement(3, 0, "start connector")]
    database.run([*given, Statement(4, 0, "shift", key=1, pick=1)])
    sent = [record.text.split(" lsn")[0] for record in Connector(Setup(), database).records() if record.value]
    first, second = sorted(database.versions[-2][0])
    shown = ["d", first], ["c", first + 1], ["d", second], ["c", second + 1]
    assert sent[2:6] == [f"{op} t0 {{'id': {key}}} txId 502" for op, key in shown]
    assert sorted(database.final[0]) == [first + 1, second + 1]


def test_a_state_is_recorded_for_every_row_that_ever_was() -> None:
    """All committed rows of all versions are among the states."""
    for seed in range(100):
        database = simulate(of_seed(seed, avoided=())).database
        for version in database.versions:
            for number, rows in enumerate(version):
                for key, row in rows.items():
                    assert row in database.states[number, key], f"seed {seed}"
                    assert {**row, **key_columns(database.tables[number].key_kind, key)} == row


def test_a_scenario_is_the_same_again() -> None:
    """A scenario can be repeated, also without some of its statements: the other records keep their names."""
    scenario = of_seed(11, avoided=())
    once, again = simulate(scenario), simulate(scenario)
    assert [record.text for record in once.arrivals] == [record.text for record in again.arrivals]
    shorter = simulate(replace(scenario, statements=scenario.statements[:-3]))
    assert {record.uid[0] for record in shorter.records} <= {record.uid[0] for record in once.records}


def test_everything_occurs() -> None:
    """Each kind of change, snapshot, dialect and option occurs often in a thousand scenarios."""
    seen: Counter[str] = Counter()
    for seed in range(1_000):
        scenario = of_seed(seed, avoided=())
        seen.update(_properties(scenario))
    rare = {name: seen[name] for name in _WANTED if seen[name] < 20}
    assert not rare


_WANTED = (
    *("insert", "update", "delete", "move", "truncate"),
    *("initial", "blocking", "incremental", "ahead", "sent again", "across partitions", "several moves at once"),
    *DIALECTS,
    *("shared topic", "schemaless", "simple", "composite", "decimal", "database", "full", "arrays"),
    *("deaths", "moves", "overtaking", "pauses", "unread"),
    *("null arrays", "added partitions", "keys in two partitions"),
    *("flattened", "failover", "without gtids"),
)


def _properties(scenario: Scenario) -> set[str]:
    truth, setup = simulate(scenario), scenario.setup
    found = {setup.dialect, setup.headers, setup.key_kind, setup.identity}
    for entry in truth.database.log:
        if isinstance(entry, Transaction):
            found |= {change.what for change in entry.changes}
            found |= {"several moves at once"} if sum(each.what == "move" for each in entry.changes) > 1 else set()
        elif isinstance(entry, Snapshot) and any(entry.rows.values()):
            found |= {entry.kind, "ahead"} if entry.ahead else {entry.kind}
    found |= {"sent again"} if any(record.uid[2] for record in truth.records) else set()
    flags = {
        "shared topic": setup.shared_topic,
        "schemaless": not setup.schemas,
        "arrays": setup.arrays,
        "null arrays": setup.null_arrays,
        "added partitions": AddedPartitions() in truth.database.log,
        "keys in two partitions": len({(each.topic, each.key) for each in truth.records if each.key})
        < len({(each.topic, each.key, each.partition) for each in truth.records if each.key}),
        "database": scenario.sink.database,
        "deaths": bool(scenario.deaths),
        "moves": bool(scenario.moves),
        "overtaking": scenario.overtaking is not None,
        "pauses": scenario.pace.pauses > 0,
        "unread": scenario.pace.unread > 0,
        "flattened": setup.flattened is not None,
        "failover": any(isinstance(entry, Failover) for entry in truth.database.log),
        "without gtids": not setup.gtids,
        "across partitions": len({record.partition for record in truth.records}) > 1,
    }
    return found | {name for name, flag in flags.items() if flag}
