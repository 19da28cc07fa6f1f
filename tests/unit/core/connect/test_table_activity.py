"""What a report on one table says of its last batches and of its columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.core.connect.table_activity import (
    MOST_BATCHES,
    MOST_SCHEMA_CHANGES,
    LastBatch,
    ReselectUse,
    TableActivity,
)
from headrace.core.model.events import Operation, TopicPartition
from headrace.core.model.table_files import TableFiles

NOW = 1_700_000_000.0


def batch(number: int, **operations: int) -> LastBatch:
    """A batch up to an offset."""
    counts = {Operation[name]: count for name, count in operations.items()}
    offsets = {TopicPartition("shop.items", 0): number}
    return LastBatch(sum(counts.values()), 100, 0.25, NOW + number, NOW, "age", offsets, counts)


def document(activity: TableActivity) -> dict[str, Any]:
    return activity.details(None, None, None).document()


def test_the_last_batches_are_kept_the_newest_first() -> None:
    """Their number has a limit; the counts of operations contain all batches."""
    activity = TableActivity()
    for number in range(MOST_BATCHES + 5):
        activity.on_batch(batch(number, UPDATE=2, DELETE=1, TOMBSTONE=1), 1_000_000 * number)
    shown = document(activity)
    assert [entry["offsets"][0]["next_offset"] for entry in shown["batches"]] == list(range(14, 4, -1))
    assert shown["batches"][0] == {
        "events": 4,
        "bytes": 100,
        "seconds": 0.25,
        "committed": "2023-11-14T22:13:34Z",
        "source_time": "2023-11-14T22:13:20Z",
        "closed_by": "age",
        "operations": {"creates": 0, "updates": 2, "deletes": 2, "truncates": 0, "snapshot_reads": 0},
        "offsets": [{"topic": "shop.items", "partition": 0, "next_offset": 14}],
    }
    assert shown["operations"] == {"creates": 0, "updates": 30, "deletes": 30, "truncates": 0, "snapshot_reads": 0}
    assert shown["watermark"] == "1970-01-01T00:00:14Z"


def test_an_unknown_watermark_does_not_replace_a_known_one() -> None:
    """A repair or a batch in parts has none, and the table is still complete up to the one before."""
    activity = TableActivity()
    activity.on_batch(batch(1, CREATE=1), -1)
    assert "watermark" not in document(activity)
    activity.on_batch(batch(2, CREATE=1), 5_000_000)
    activity.on_batch(batch(3, CREATE=1), -1)
    assert document(activity)["watermark"] == "1970-01-01T00:00:05Z"


def test_without_a_batch_nothing_is_invented() -> None:
    shown = document(TableActivity())
    assert (shown["batches"], shown["schema_changes"]) == ([], [])
    assert shown.keys() == {"batches", "operations", "schema_changes"}


def test_changes_of_columns_have_their_types_and_time() -> None:
    """The newest first. The columns of a table that existed before are no change."""
    first = pa.schema([("id", pa.int32()), ("note", pa.string())])
    second = pa.schema([("id", pa.int64()), ("note", pa.string()), ("price", pa.decimal128(10, 2))])
    third = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2))])
    activity = TableActivity()
    for seconds, columns in enumerate((first, first, second, third)):
        activity.on_columns(columns, NOW + seconds)
    shown = document(activity)
    assert shown["columns"] == [{"name": "id", "type": "BIGINT"}, {"name": "price", "type": "DECIMAL(10, 2)"}]
    assert shown["schema_changes"] == [
        {"at": "2023-11-14T22:13:23Z", "change": "removed", "column": "note", "earlier_type": "STRING"},
        {"at": "2023-11-14T22:13:22Z", "change": "added", "column": "price", "type": "DECIMAL(10, 2)"},
        {
            "at": "2023-11-14T22:13:22Z",
            "change": "retyped",
            "column": "id",
            "type": "BIGINT",
            "earlier_type": "INT",
        },
    ]


def test_a_table_that_did_not_exist_was_created() -> None:
    """Also one that was dropped between two batches."""
    columns = pa.schema([("id", pa.int64())])
    activity = TableActivity()
    for seconds, found in enumerate((None, columns, None, columns)):
        activity.on_columns(found, NOW + seconds)
    assert document(activity)["schema_changes"] == [
        {"at": "2023-11-14T22:13:23Z", "change": "created"},
        {"at": "2023-11-14T22:13:21Z", "change": "created"},
    ]


def test_the_changes_of_columns_have_a_limit() -> None:
    activity = TableActivity()
    for number in range(100):
        activity.on_columns(pa.schema([(f"column_{number}", pa.int64())]), NOW)
    assert len(document(activity)["schema_changes"]) == MOST_SCHEMA_CHANGES


def test_a_type_of_another_writer_does_not_fail_the_report() -> None:
    """An adopted table may have columns of types that Headrace does not write."""
    activity = TableActivity()
    activity.on_columns(pa.schema([("small", pa.int8())]), NOW)
    assert document(activity)["columns"] == [{"name": "small", "type": "int8"}]


def test_files_and_reselect() -> None:
    """As those who know them say."""
    files, use = TableFiles(12, 3, 48_000, 1_000, 250), ReselectUse({"source": 4}, {"hit": 3, "expired": 1}, {"ok": 2})
    shown = TableActivity().details(files, NOW, use).document()
    assert (files.count, files.deleted_share) == (15, 0.25)
    assert shown["files"] == {"data_files": 12, "delete_files": 3, "bytes": 48_000, "rows": 1_000, "deleted_rows": 250}
    assert shown["last_compaction"] == "2023-11-14T22:13:20Z"
    assert shown["reselect"] == {
        "cells": {"source": 4},
        "cache_requests": {"expired": 1, "hit": 3},
        "queries": {"ok": 2},
        "rows_requested": 0,
        "rows_not_found": 0,
    }


def test_changes_are_returned_once_and_readable() -> None:
    activity = TableActivity()
    before = pa.schema([("a", pa.int32()), ("b", pa.string())])
    after = pa.schema([("a", pa.int64()), ("c", pa.date32())])
    assert list(activity.on_columns(before, NOW)) == []
    assert list(map(str, activity.on_columns(after, NOW))) == [
        "removed b STRING",
        "retyped a INT to BIGINT",
        "added c DATE",
    ]
    assert list(activity.on_columns(after, NOW)) == []
