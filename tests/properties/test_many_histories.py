"""The fold property for many seeds, and on tables that Spark writes.

The memory writer takes small histories one by one. On Spark hundreds of them share a table, each with keys of its own
prefix, so that one MERGE writes a batch of all. The memory writer and the model write the same for comparison. A failed
test names the seed: ``check(of_seed(<seed>))`` and ``shared`` run it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random

import pytest
from properties.counterexamples import check, differing_cells
from properties.deliveries import Delivery, Trouble, delivery
from properties.histories import Size
from properties.workers import expected, written
from support.fix_spark import Warehouse

from headrace.ports import TableOptions

TROUBLES = (
    Trouble(),
    Trouble(repeats=2),
    Trouble(repeats=1, late=2),
    Trouble(repeats=1, moves=2),
    Trouble(repeats=1, late=2, deaths=4, moves=2),
)


def of_seed(seed: int) -> Delivery:
    """A small history with its delivery; the seed chooses the kind of faults."""
    choose = Random(seed)
    return delivery(choose, Size(tables=choose.randint(1, 3)), TROUBLES[seed % len(TROUBLES)])


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_twenty_thousand_histories(capsys: pytest.CaptureFixture[str]) -> None:
    """All tables equal the model; every other hundred of them marks deleted rows instead of removing them."""
    events, began = 0, time.monotonic()
    for seed in range(20_000):
        found = of_seed(seed)
        events += len(found.arrivals)
        check(found, options=TableOptions(soft_delete=seed // 100 % 2 == 1), what=f"seed {seed}")
        if (seed + 1) % 2000 == 0:
            with capsys.disabled():
                print(f"\n{seed + 1} histories, {events} events, {time.monotonic() - began:.0f} s", end="", flush=True)


def shared(seed: int, lanes: int) -> Delivery:
    """Many histories in two tables, in about ten batches each."""
    trouble = Trouble(repeats=3, late=2, deaths=2, moves=1)
    size = Size(tables=2, lanes=lanes, statements=12, of_tables=8)
    return delivery(Random(seed), size, trouble, closing=max(lanes // 2, 30))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("format_name", "seeds", "lanes"),
    [
        ("iceberg", [1], 36),
        pytest.param("iceberg", range(2, 22), 100, marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
        pytest.param("delta", [7], 50, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
def test_histories_that_share_tables(
    warehouse: Warehouse,
    unique: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
    format_name: str,
    seeds: Sequence[int],
    lanes: int,
) -> None:
    """Model, memory and Spark have equal rows; every other pair of tables marks deleted rows."""
    for number, seed in enumerate(seeds, 1):
        began, found = time.monotonic(), shared(seed, lanes)
        options = TableOptions(format_name, soft_delete=number % 2 == 0)
        check(found, options=options, what=f"seed {seed}")
        tables = written(found, warehouse.lakehouse, unique("histories"), options)
        assert tables == expected(found), f"seed {seed}\n{differing_cells(tables, expected(found))}"
        with capsys.disabled():
            print(
                f"\n{number * lanes} histories on {format_name}, {time.monotonic() - began:.0f} s", end="", flush=True
            )
