"""The stored form of a connector's paused tables, and the topics that they keep from other tables."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.connect.paused_tables import PausedTable, covering, paused_tables, paused_tables_document, topics_of

PAUSED = {
    "orders": PausedTable(("shop.orders", "shop.archive"), 1_700_000_000.0),
    "items": PausedTable((), 1_700_000_001.0),
}


def test_paused_tables_are_read_as_they_were_written() -> None:
    """Members of later versions are ignored."""
    document: Any = paused_tables_document(PAUSED)
    document["later"] = document["tables"]["orders"]["later"] = 1
    assert paused_tables(document) == PAUSED


@pytest.mark.parametrize(
    "entry", [{}, {"topics": [1], "since": "2026-01-01T00:00:00Z"}, {"topics": ["\ud800"], "since": "2026-01-01"}]
)
def test_a_record_that_is_not_usable_is_refused(entry: Any) -> None:
    """An answer could not contain such a topic."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        paused_tables({"tables": {"orders": entry}})


def test_a_table_without_other_topics_is_covered() -> None:
    """A table that has one more topic is written from that one."""
    assert topics_of(PAUSED) == {"shop.orders", "shop.archive"}
    assert covering(PAUSED, ["shop.orders"]) == ["orders"]
    assert covering(PAUSED, ["shop.orders", "shop.items"]) == []
    assert covering(PAUSED, []) == []
