"""Tests of the progress of a load: rows, rate, estimated end, and when it ends."""

from __future__ import annotations

from headrace.core.connect.table_load import RATE_SECONDS, RESUME_SECONDS, LoadProgress, TableLoad

BEGAN = 1_000_000.0


def _load(*batches: tuple[float, int, int]) -> TableLoad:
    """A load with batches: seconds after its begin, rows of the snapshot, events."""
    load = TableLoad()
    for seconds, reads, events in batches:
        load.on_batch(reads, events, BEGAN, BEGAN + seconds)
    return load


def test_a_table_without_rows_of_a_snapshot_has_no_load() -> None:
    """Changes alone are no load."""
    load = _load((1.0, 0, 50))
    load.end(BEGAN + 2)
    assert (load.is_running, load.progress(7, BEGAN + 3)) == (False, None)


def test_the_end_is_estimated_from_the_rate_and_from_what_remains() -> None:
    """Other events than rows of the snapshot count for the rate, because they are records that remain."""
    load = _load((10.0, 900, 1_000), (20.0, 1_000, 1_000))
    assert load.progress(5_000, BEGAN + 20) == LoadProgress(1_900, 5_000, 100.0, BEGAN, BEGAN + 70, None)


def test_the_rate_is_that_of_the_last_minutes() -> None:
    """A slow begin, as the start of Spark, does not count forever."""
    slow = [(second * 30.0, 10, 10) for second in range(1, 11)]
    fast = [(RATE_SECONDS + second * 30.0, 3_000, 3_000) for second in range(1, 11)]
    load = _load(*slow, *fast)
    progress = load.progress(1_000, BEGAN + 2 * RATE_SECONDS)
    assert progress is not None
    assert (progress.rows, round(progress.rate)) == (30_100, 100)


def test_the_end_moves_away_while_nothing_is_written() -> None:
    """A writer that hangs has a later and later end, and none after a year."""
    load = _load((10.0, 1_000, 1_000))
    ends = []
    for seconds in (10.0, 100.0, 1e9):
        progress = load.progress(1_000, BEGAN + seconds)
        assert progress is not None
        ends.append(progress.estimated_end)
    assert ends == [BEGAN + 20, BEGAN + 200, None]


def test_a_load_ends_when_the_table_has_what_kafka_has() -> None:
    """The rate of a finished load is that of all its rows; a second end changes nothing."""
    load = _load((10.0, 1_000, 1_000), (20.0, 1_000, 1_000))
    load.end(BEGAN + 25)
    load.end(BEGAN + 99)
    assert not load.is_running
    assert load.progress(3, BEGAN + 99) == LoadProgress(2_000, 0, 80.0, BEGAN, None, BEGAN + 25)


def test_a_batch_of_changes_alone_ends_a_load() -> None:
    """It ended with its last row: a busy table always has records that wait."""
    load = _load((10.0, 1_000, 1_000), (20.0, 0, 300))
    progress = load.progress(3, BEGAN + 30)
    assert progress is not None
    assert (progress.ended, progress.rows) == (BEGAN + 10, 1_000)


def test_an_incremental_snapshot_is_one_load() -> None:
    """Its chunks have changes between them; rows that come much later are another load."""
    load = _load((10.0, 100, 100), (20.0, 0, 5), (30.0, 100, 100))
    progress = load.progress(0, BEGAN + 30)
    assert progress is not None
    assert (progress.rows, progress.ended) == (200, None)
    load.end(BEGAN + 31)
    later = BEGAN + 30 + RESUME_SECONDS + 1
    load.on_batch(7, 7, later - 1, later)
    assert load.progress(0, later) == LoadProgress(7, 0, 7.0, later - 1, later, None)
