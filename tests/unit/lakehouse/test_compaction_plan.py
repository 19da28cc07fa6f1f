"""Which files a compaction chooses, and what it writes in the long run."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_connectors.lakehouse.compaction_plan import FAN_OUT, RATIO, TARGET_SIZE, WORN, DataFile, plan

KB, MB = 2**10, 2**20
UNLIMITED = float("inf")


@st.composite
def data_files(draw: st.DrawFn) -> list[DataFile]:
    """Files of two partitions, of sizes from one kilobyte to one gigabyte."""
    found = []
    for number in range(draw(st.integers(0, 60))):
        rows = draw(st.integers(0, 1000))
        size = draw(st.integers(KB, 1024 * MB))
        found.append(DataFile(f"{number}", draw(st.sampled_from("ab")), size, rows, draw(st.integers(0, rows))))
    return found


@given(data_files(), st.integers(0, 4 * 1024 * MB))
def test_a_plan_is_affordable_and_touches_each_file_once(files: list[DataFile], budget: int) -> None:
    """No rewrite mixes partitions or exceeds the target size with several files."""
    rewrites = plan(files, budget)
    chosen = [file.path for rewrite in rewrites for file in rewrite.files]
    assert len(chosen) == len(set(chosen))
    assert sum(rewrite.cost for rewrite in rewrites) <= budget
    for rewrite in rewrites:
        assert len({file.partition for file in rewrite.files}) == 1
        assert rewrite.cost <= TARGET_SIZE or len(rewrite.files) == 1
        assert len(rewrite.files) > 1 or rewrite.files[0].is_worn


@given(data_files())
def test_no_worn_file_is_left(files: list[DataFile]) -> None:
    """Without a limit, each file with many deleted rows is rewritten, and no tier of a partition stays full."""
    chosen = {file.path for rewrite in plan(files, UNLIMITED) for file in rewrite.files}
    left = [file for file in files if file.path not in chosen]
    assert not any(file.is_worn for file in left)


def test_a_large_file_is_rewritten_only_if_it_is_worn() -> None:
    """A few deletes in a large file do not rewrite it, however many files there are."""
    large = DataFile("large", "", 300 * MB, 1_000_000, 10_000)
    small = [DataFile(f"{number}", "", 300 * KB, 5000, 10) for number in range(FAN_OUT)]
    [rewrite] = plan([large, *small], UNLIMITED)
    assert set(rewrite.files) == set(small)
    worn = replace(large, deleted=int(WORN * large.rows))
    [rewrite] = plan([worn], UNLIMITED)
    assert rewrite.files == (worn,)
    assert plan([large, *small[1:]], UNLIMITED) == []


def test_a_file_whose_rows_are_all_deleted_costs_nothing() -> None:
    """It disappears without a new file, whatever the budget is."""
    [rewrite] = plan([DataFile("gone", "", 300 * MB, 1000, 1000)], 0)
    assert rewrite.cost == 0


@pytest.mark.parametrize(("commit", "updates"), [(340 * KB, True), (340 * KB, False), (5 * KB, True), (30 * MB, False)])
def test_files_stay_few_and_written_bytes_in_proportion(commit: int, updates: bool) -> None:
    """A thousand commits, each of which deletes as many rows as it adds if it ``updates``, leave few files.

    All compactions together write less than their budget.
    """
    chance, numbers = random.Random(1), count()
    files = [DataFile(f"base {number}", "", 29 * MB, 500_000, 0) for number in range(2)]
    merged = written = most = 0
    for number in range(1000):
        size = int(commit * chance.uniform(0.5, 1.5))
        rows = size // 60
        if updates:
            stored = sum(file.rows for file in files)
            files = [
                replace(file, deleted=min(file.rows, file.deleted + round(rows * file.rows / stored))) for file in files
            ]
        files.append(DataFile(f"{next(numbers)}", "", size, rows, 0))
        merged += size
        if number % FAN_OUT == FAN_OUT - 1:
            for rewrite in plan(files, RATIO * merged - written):
                written += rewrite.cost
                files = [file for file in files if file not in rewrite.files]
                if rewrite.cost:
                    live = sum(file.rows - file.deleted for file in rewrite.files)
                    files.append(DataFile(f"{next(numbers)}", "", rewrite.cost, live, 0))
        most = max(most, len(files))
    assert written <= RATIO * merged
    assert most <= 12 * FAN_OUT
