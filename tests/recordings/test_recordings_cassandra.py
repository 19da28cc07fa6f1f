"""Recordings of Debezium's Cassandra connector, in any order and with repeats, give the tables of the dump.

``tests/fixtures/cassandra``: connector 3.4.1, Cassandra 5.0.6. The connector itself does not send some values. LOST
names each such cell with the reason, and nothing else differs.
"""

from __future__ import annotations

import base64
import json
import lzma
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from headrace.cassandra.cell_writes import CassandraTable, Key, Write
from headrace.cassandra.decoder import write_of
from headrace.cassandra.losses import Loss, Losses
from headrace.core.model.schema import schema_from_json

FOLDER = Path(__file__).parent.parent / "fixtures" / "cassandra"
NOW = 1_795_247_440_000_000
"""After the short TTLs had ended and before the long ones: about when the dump was taken."""
FORMS = ("noschemas", "schemas")

COLLECTION = "an addition to a collection that is not frozen looks like its replacement"
EMPTIED = "a collection that became empty looks like one of no elements, which Cassandra does not have"
STATIC = "static columns are not in the commit log's events"
VARINT = "varint wraps around in the default mode"
DURATION = "months and days of a duration become a fixed number of nanoseconds"
LOST = {
    ("coll", (1,), "s"): COLLECTION,
    ("coll", (2,), "l"): EMPTIED,
    ("coll", (2,), "s"): EMPTIED,
    ("orders", ("acme", "2026-01-01", 1), "tenant_n"): STATIC,
    ("orders", ("acme", "2026-01-01", 1), "tenant_name"): STATIC,
    ("orders", ("acme", "2026-01-02", 1), "tenant_n"): STATIC,
    ("orders", ("static-only", "2026-01-02", None), ""): STATIC,
    ("types", (1,), "vi"): VARINT,
    ("types", (1,), "dur"): DURATION,
    ("types", (2,), "dur"): DURATION,
}
NOT_RECORDED = ("onlypk", (9, 9), "")
"""A row that was inserted to make the replay begin, which only the second recording has."""


@cache
def writes(form: str) -> tuple[Sequence[tuple[str, Write]], Mapping[str, Losses]]:
    """The writes of a recording with their tables, and the losses by table."""
    losses: dict[str, Losses] = defaultdict(Losses)
    return [(table, write) for table, write in _read(form, losses)], losses


def _read(form: str, losses: Mapping[str, Losses]) -> Iterator[tuple[str, Write]]:
    for record in map(json.loads, _text(form).splitlines()):
        key, value, after = json.loads(record["key"]), json.loads(record["value"]), None
        if "payload" in value:
            after = schema_from_json(value["schema"]).field("after")
            key, value = key["payload"], value["payload"]
        table = value["source"]["table"]
        yield table, write_of(value, list(key), losses[table], after)


def _text(form: str) -> str:
    path = FOLDER / f"cassandra-{form}.jsonl"
    return path.read_text() if path.exists() else lzma.decompress(path.with_suffix(".jsonl.xz").read_bytes()).decode()


@cache
def dump() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((FOLDER / "dump.json").read_text())
    return found


def differing(form: str, delivered: Sequence[tuple[str, Write]]) -> set[tuple[str, Key, str]]:
    """Every cell that differs from the dump; the name is empty for a row that only one of them has."""
    tables = {name: CassandraTable() for name in dump()}
    for table, write in delivered:
        tables[table].apply(write)
    return {place for name in dump() for place in _differing_rows(name, tables[name].visible(NOW))}


def _differing_rows(table: str, rows: Mapping[Key, Mapping[str, Any]]) -> Iterator[tuple[str, Key, str]]:
    found = {_key(table, key): cells for key, cells in rows.items()}
    wanted = {
        tuple(row["key"].values()): {n: c["value"] for n, c in row["cells"].items() if c["value"] is not None}
        for row in dump()[table]["rows"]
    }
    for key in found.keys() ^ wanted.keys():
        yield table, key, ""
    for key in found.keys() & wanted.keys():
        for name in found[key].keys() | wanted[key].keys():
            if _told(table, name, found[key].get(name)) != _dumped(wanted[key].get(name)):
                yield table, key, name


def _key(table: str, key: Key) -> Key:
    return (key[0], _day(key[1]), *key[2:]) if table == "orders" else key


def _day(count: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=count)).isoformat()


def _told(table: str, name: str, value: Any) -> Any:
    """An event's value in the form of the dump."""
    if value is None or table not in ("types", "udts"):
        return value
    return _FORMS.get(name, lambda same: same)(value)


def _instant(millis: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)).strftime("%Y-%m-%dT%H:%M:%S.%f")[
        :-3
    ] + "Z"


def _clock(nanos: int) -> str:
    seconds, rest = divmod(nanos, 10**9)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:09d}"


_FORMS = {
    "b": lambda text: base64.b64decode(text).hex(),
    "d": _day,
    "t": _clock,
    "ts": _instant,
    "ip": lambda text: text.removeprefix("/").replace("0:0:0:0:0:0:0:1", "::1"),
    "dbl": lambda number: "nan" if number == "NaN" else number,
    "flt": lambda number: "inf" if number == "Infinity" else number,
    "tup": lambda fields: list(fields.values()),
}


def _dumped(value: Any) -> Any:
    if isinstance(value, dict) and "$decimal" in value:
        return float(value["$decimal"])
    return value["$hex"] if isinstance(value, dict) and "$hex" in value else value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(20))
def test_any_delivery_gives_the_dump(form: str, seed: int) -> None:
    """In any order, with any part repeated: deleted cells, rows, partitions, ranges and TTL included."""
    chance = random.Random(seed)
    delivered = list(writes(form)[0])
    if seed:
        delivered += chance.sample(delivered, 40)
        chance.shuffle(delivered)
    lost = set(LOST) if form == "noschemas" else {*LOST, NOT_RECORDED}
    assert differing(form, delivered) - lost == set()


def test_every_loss_is_real() -> None:
    """Each named loss differs in the recording of the commit log alone."""
    assert differing("noschemas", writes("noschemas")[0]) == set(LOST)


@pytest.mark.parametrize("form", FORMS)
def test_what_the_connector_loses_is_named(form: str) -> None:
    """Every differing cell has a note on its column, or on its table for changes that are never sent."""
    noted = {(table, loss, column) for table, losses in writes(form)[1].items() for loss, column in losses.counts}
    kinds = {
        COLLECTION: Loss.COLLECTION,
        EMPTIED: Loss.COLLECTION,
        STATIC: Loss.STATIC,
        VARINT: Loss.VARINT,
        DURATION: Loss.DURATION,
    }
    due = {(table, kinds[why], None if why is STATIC else column) for (table, _key_of_it, column), why in LOST.items()}
    forms = {("types", Loss.DECIMAL, "dec"), ("types", Loss.INET, "ip"), ("udts", Loss.TUPLE, "tup")}
    assert due | forms <= noted
    assert not noted & {("simple", loss, column) for loss in Loss for column in (None, "v", "n")}
