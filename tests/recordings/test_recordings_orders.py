"""Every recording gives the tables of its dump, in whatever order a consumer reads the partitions of its topics.

The records of a topic of one partition are distributed to three, by key, as a producer would. Without a database, a key
change gets omitted cells only from the row under its old key, whose events may be in another partition: if one half
were written without the other one, or a later event of its key before it, all omitted cells would end as null.
"""

from __future__ import annotations

import random
import re
import time

import pytest
from recordings.comparison import compared_tables, expectation, problems, records_of, rows_of
from recordings.differences import STOPS_OF_ANY_ORDER
from recordings.images import key_fields
from recordings.orders import by_partition, deliver, distributed, ends_of
from recordings.records import ALL, AVRO, PARTITIONED, variant
from recordings.replay import Replay

from headrace.core.model.errors import Fatal

RECORDINGS = (*ALL, AVRO, *PARTITIONED)
KILLS = 3


def check_order(name: str, seed: int) -> None:
    """Deliver a table of a recording in one order, with kills for every second seed, and compare it with the dump."""
    of, chance = variant(name), random.Random(seed)
    tables = compared_tables(of)
    table = chance.choices(tables, [len(records_of(each, of)) for each in tables])[0]
    records = records_of(table, of)
    fields = key_fields(records, of)
    partitions = by_partition(records if name in PARTITIONED else distributed(records, seed))
    kills, dies_at = (KILLS, chance.choice((0, 2, 5))) if seed % 2 else (0, 0)
    replay = Replay(of, table, dies_at=dies_at, ends=ends_of(partitions))
    try:
        deliver(replay, partitions, chance, kills=kills)
    except Fatal as error:
        stop = STOPS_OF_ANY_ORDER.get((name, table.name))
        if stop is None or not re.search(stop, str(error)):
            raise
        return
    expected = expectation(table, of, fields, typed=not of.bare)
    found = problems(expected, rows_of(replay.content(), fields), reselected=False, any_order=True)
    assert found == [], f"{table.name}, seed {seed}"


@pytest.mark.parametrize("name", RECORDINGS)
def test_any_order(name: str) -> None:
    """The table equals the dump: two orders of each recording, one of them with kills."""
    for seed in (8, 9):
        check_order(name, seed)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_thousand_orders(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for a thousand orders of each recording, half of them with kills."""
    began = time.monotonic()
    for seed in range(1_000):
        check_order(name, seed)
    with capsys.disabled():
        print(f"\n{name}: 1000 orders, {time.monotonic() - began:.0f} s", end="", flush=True)
