"""What becomes of cells that are read again when the database is down, refuses, or has nothing that fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.runtime.reselect_harness import (
    CACHE,
    DOUBT,
    Lake,
    P,
    c,
    d,
    database,
    row,
    u,
)

from headrace.core.model.errors import Fatal, Retriable, TimedOut
from headrace.core.reselect.unresolved import UnresolvedRows


def test_transient_errors_are_retried() -> None:
    """Within ``errors.retry.timeout`` the question is asked again."""
    lake = Lake(database(row(1, "A")), replace(CACHE, errors_retry_timeout_ms=60_000, errors_retry_delay_max_ms=1))
    assert lake.source is not None
    lake.source.failures += [Retriable("gone"), Retriable("gone")]
    lake.batch(u(1, big=P))
    assert lake.big() == "A"


@pytest.mark.parametrize("within", [60_000, 0], ids=["at once", "with the next attempt at the batch"])
def test_select_that_takes_too_long_is_asked_in_halves(within: int) -> None:
    """The same SELECT would take too long again."""
    options = replace(CACHE, errors_retry_timeout_ms=within, errors_retry_delay_max_ms=1)
    lake = Lake(database(*(row(key, "A") for key in range(4))), options)
    assert lake.source is not None
    lake.source.failures += [TimedOut("statement timeout"), TimedOut("statement timeout")]
    for _ in range(2 if within == 0 else 0):
        with pytest.raises(Retriable):
            lake.resolve(*(u(key, big=DOUBT) for key in range(4)))
    lake.batch(*(u(key, big=DOUBT) for key in range(4)))
    assert [len(request) for request in lake.source.requests] == [1, 1, 1, 1]
    assert {lake.big(key) for key in range(4)} == {"A"}


def test_database_down_keeps_what_is_known_unchanged() -> None:
    """Where the source said "unchanged" the stored value is right without asking."""
    lake = Lake(database(), CACHE)
    assert lake.source is not None
    lake.rows[1] = {"big": "kept", "doc": None}
    lake.source.failures.append(Retriable("gone"))
    lake.batch(u(1, big=P))
    assert lake.big() == "kept"


@pytest.mark.parametrize("event", [u(1, big=DOUBT), c(1, big=P)])
def test_database_down_loses_nothing(event: Any) -> None:
    """Where keeping may be wrong, or there is nothing to keep, the batch is tried again as a whole."""
    lake = Lake(database(), CACHE)
    assert lake.source is not None
    lake.source.failures.append(Retriable("gone"))
    with pytest.raises(Retriable):
        lake.resolve(event)


def test_refused_query_in_mode_warn_keeps() -> None:
    """A permanent error leaves the cells to keep-target."""
    lake = Lake(database(), CACHE)
    assert lake.source is not None
    lake.rows[1] = {"big": "kept", "doc": None}
    lake.source.failures.append(Fatal("no such column"))
    lake.batch(u(1, big=P))
    assert lake.big() == "kept"


def test_mode_fail_stops_on_errors_and_missing_rows() -> None:
    """``reselect.error.handling.mode=fail``."""
    lake = Lake(database(), replace(CACHE, error_handling_mode="fail"))
    assert lake.source is not None
    with pytest.raises(Fatal, match="not in the source any more"):
        lake.resolve(u(1, big=P))
    lake.source.failures.append(Fatal("no such column"))
    with pytest.raises(Fatal, match="no such column"):
        lake.resolve(u(1, big=P))


DEAD_LETTERS = replace(CACHE, error_handling_mode="dlq", null_values=True)


@pytest.mark.parametrize("failure", [None, Fatal("no such column")])
def test_mode_dlq_names_what_the_database_did_not_give(failure: Fatal | None) -> None:
    """Rows that are gone, or a query that is refused for good; a null that is only looked up again stands."""
    lake = Lake(database(row(1, "A")), DEAD_LETTERS)
    assert lake.source is not None
    lake.source.failures += [failure] if failure is not None else []
    with pytest.raises(UnresolvedRows) as refused:
        lake.resolve(u(1, big=P, doc="x"), u(2, big=P, doc=DOUBT), u(3, big=None, doc="x"), u(4, big="x", doc="x"))
    lacking = {1: ("big", "doc")}
    assert refused.value.columns == (lacking if failure is None else {0: ("big",), **lacking})
    assert (str(failure) if failure is not None else "does not have them") in str(refused.value)


def test_mode_dlq_names_a_value_that_does_not_fit() -> None:
    """It cannot be written, and nothing else is known."""
    lake = Lake(database({"id": 1, "big": 5, "doc": "D"}), DEAD_LETTERS)
    with pytest.raises(UnresolvedRows) as refused:
        lake.resolve(u(1, big=P, doc=P))
    assert refused.value.columns == {0: ("big",)}


def test_mode_dlq_waits_for_a_database_that_is_down() -> None:
    """That is no fault of a record."""
    lake = Lake(database(row(1, "A")), DEAD_LETTERS)
    assert lake.source is not None
    lake.source.failures.append(Retriable("gone"))
    with pytest.raises(Retriable):
        lake.resolve(u(1, big=P))


def test_mode_dlq_lets_the_last_resort_stand() -> None:
    """A value that came with the batch before a doubtful null, and one that the row under the old key has."""
    lake = Lake(database(), DEAD_LETTERS)
    lake.rows[1] = {"big": "old", "doc": "old"}
    lake.batch(u(2, big="A", doc="x"), u(2, big=DOUBT, doc="y"))
    assert lake.rows[2] == {"big": "A", "doc": "y"}
    lake.batch(d(1), c(3, old=1, big=P, doc="z"))
    assert lake.rows[3] == {"big": "old", "doc": "z"}


def test_values_that_do_not_fit_stay_open() -> None:
    """A value that the column's type cannot hold is not used and not cached; the cell is kept."""
    lake = Lake(database({"id": 1, "big": 5, "doc": "D"}), CACHE)
    lake.rows[1] = {"big": "kept", "doc": "kept"}
    lake.batch(u(1, big=P, doc=P))
    assert lake.rows[1] == {"big": "kept", "doc": "D"}
