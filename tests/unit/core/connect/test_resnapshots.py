"""The stored forms of resnapshots, and the documents that requests get."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.core.connect.resnapshots import (
    ResnapshotProgress,
    ResnapshotRequest,
    ResnapshotState,
    progress_document,
    resnapshot_document,
    resnapshot_progress,
    resnapshot_requests,
    resnapshot_requests_document,
)

REQUESTS = {
    "orders": ResnapshotRequest("1", "public.orders", "shop.public.orders", 1_700_000_000.0),
    "items": ResnapshotRequest("2", "public.items", "shop.public.items", 1_700_000_001.0, is_cancelled=True),
}
PROGRESS = ResnapshotProgress(
    *("1", ResnapshotState.READING, 1_700_000_060.0, "source reads"),
    rows=2_049,
    total=10_000,
    chunk_size=1_024,
    left=3,
    estimated_end=1_700_000_300.0,
    waits_for="the broker",
    signal="headrace-1",
    is_read=True,
    compared=1,
    differing=2,
    repaired=3,
    not_compared=("mail",),
    error="the cause",
)


def test_requests_and_progress_are_read_as_they_were_written() -> None:
    """Members of later versions are ignored."""
    requests: Any = resnapshot_requests_document(REQUESTS)
    requests["later"] = requests["tables"]["orders"]["later"] = 1
    assert resnapshot_requests(requests) == REQUESTS
    assert resnapshot_progress({**progress_document(PROGRESS), "later": 1}) == PROGRESS
    least = ResnapshotProgress("1", ResnapshotState.WAITING, 1_700_000_000.0)
    assert progress_document(least).keys() == {"request", "state", "updated"}
    assert resnapshot_progress(progress_document(least)) == least


@pytest.mark.parametrize(
    "changed", [{"id": 1}, {"topic": "\ud800"}, {"requested": "yesterday"}, {"source_table": None}]
)
def test_a_request_that_is_not_usable_is_refused(changed: Any) -> None:
    """An answer could not contain it."""
    entry = {**resnapshot_requests_document(REQUESTS)["tables"]["orders"], **changed}
    with pytest.raises((TypeError, ValueError)):
        resnapshot_requests({"tables": {"orders": entry}})


@pytest.mark.parametrize(
    "changed", [{"state": "later"}, {"error": 1}, {"rows": "many"}, {"step": "\ud800"}, {"not_compared": [1]}]
)
def test_progress_that_is_not_usable_is_refused(changed: Any) -> None:
    """It is as if nothing had been stored."""
    with pytest.raises((TypeError, ValueError)):
        resnapshot_progress({**progress_document(PROGRESS), **changed})


def test_a_document_has_what_is_known() -> None:
    """Chunks follow from the rows. The id of the signal is nobody's business."""
    document = resnapshot_document("orders", REQUESTS["orders"], PROGRESS)
    assert document == {
        **{"table": "orders", "source_table": "public.orders", "topic": "shop.public.orders"},
        **{"requested": "2023-11-14T22:13:20Z", "state": "READING", "updated": "2023-11-14T22:14:20Z"},
        **{"step": "source reads", "waits_for": "the broker", "error": "the cause"},
        **{"rows": 2_049, "chunks": 3, "total_rows": 10_000, "total_chunks": 10},
        **{"records_left": 3, "estimated_end": "2023-11-14T22:18:20Z", "compared_rows": 1},
    }


def test_a_result_names_the_columns_that_were_not_compared() -> None:
    """Together with the rows that differ."""
    document = replace(PROGRESS, state=ResnapshotState.DIFFERS).document()
    assert (document["differing_rows"], document["not_compared"]) == (2, ["mail"])


def test_the_progress_of_an_earlier_request_is_not_that_of_this_one() -> None:
    """A request that was cancelled before it began has a result without a progress."""
    before = ResnapshotProgress("0", ResnapshotState.EQUAL, 1_600_000_000.0)
    assert resnapshot_document("orders", REQUESTS["orders"], before)["state"] == "WAITING"
    assert "waits_for" in resnapshot_document("orders", REQUESTS["orders"], None)
    assert resnapshot_document("items", REQUESTS["items"], before)["state"] == "CANCELLED"
    running = ResnapshotProgress("2", ResnapshotState.READING, 1_700_000_002.0, "source reads")
    assert resnapshot_document("items", REQUESTS["items"], running)["step"] == "is being cancelled"
