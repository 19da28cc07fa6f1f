"""The signals of a snapshot, and which request is open."""

from __future__ import annotations

import json

import pytest

from headrace.core.resnapshot.signals import (
    Signal,
    end_of,
    new_id,
    open_request,
    progress_mark,
    snapshot_request,
    stop_request,
)

ORDERS = "public.orders"


def request(number: int, table: str = ORDERS, connector: str = "shop") -> Signal:
    return snapshot_request(new_id(1_700_000_000 + number, "abcdefgh"), table, connector)


def test_a_request_is_what_debezium_expects() -> None:
    """The id fits the signal table's column of 42 characters, and contains the time of the request."""
    signal = request(0)
    assert signal.type == "execute-snapshot"
    assert signal.data["data-collections"] == ["public.orders"]
    assert signal.data["type"] == "INCREMENTAL"
    assert len(signal.id) <= 42
    assert signal.sent_at == 1_700_000_000
    assert Signal("headrace-", "log", {}).sent_at == 0


@pytest.mark.parametrize(
    ("table", "expression"),
    [("public.orders", "public.orders"), ("public.Größen & Maße", "public.Größen & Maße"), ("a.b$c", r"a\.b\$c")],
)
def test_names_with_special_characters_are_quoted(table: str, expression: str) -> None:
    """Debezium takes a name as a regular expression; the dot alone is not quoted, so that an unknown table is found."""
    assert request(0, table).data["data-collections"] == [expression]


def test_a_request_is_open_until_a_signal_ends_it() -> None:
    """Signals of other tables and connectors, and marks, end nothing. The newest open request counts."""
    first, second = request(1), request(2)
    others = [
        request(3, "public.items"),
        request(4, connector="other"),
        progress_mark("headrace-5-x", ORDERS),
        Signal("headrace-6-x", "execute-snapshot", {"data-collections": [ORDERS]}),
    ]
    assert open_request(others, ORDERS, "shop") is None
    assert open_request([second, *others, first], ORDERS, "shop") == second
    ended = [first, second, end_of("headrace-7-x", ORDERS, second.id), *others]
    assert open_request(ended, ORDERS, "shop") == first
    assert open_request([*ended, stop_request("headrace-8-x", ORDERS, first.id)], ORDERS, "shop") is None


def test_the_data_fits_a_signal_table() -> None:
    """The column ``data`` has 2048 characters; the longest names of PostgreSQL have 63 bytes each."""
    signal = request(0, f"{'ß' * 31}.{'$' * 63}", "c" * 200)
    assert len(json.dumps(signal.data, ensure_ascii=False)) < 2048
