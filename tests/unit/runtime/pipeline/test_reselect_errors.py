"""Tests of reselected cells if the database is unavailable, refuses the query, or has no valid value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.task.reselect_harness import (
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
    """A query is retried after transient errors within ``errors.retry.timeout``."""
    lake = Lake(database(row(1, "A")), replace(CACHE, errors_retry_timeout_ms=60_000, errors_retry_delay_max_ms=1))
    assert lake.source is not None
    lake.source.failures += [Retriable("gone"), Retriable("gone")]
    lake.batch(u(1, big=P))
    assert lake.big() == "A"


@pytest.mark.parametrize("within", [60_000, 0], ids=["at once", "with the next attempt at the batch"])
def test_a_select_that_times_out_is_halved(within: int) -> None:
    """A SELECT that times out is repeated with half of the rows, at once or with the next attempt at the batch."""
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


def test_database_down_keeps_unchanged_cells() -> None:
    """If the database is down, a cell with the unavailable placeholder keeps the stored value."""
    lake = Lake(database(), CACHE)
    assert lake.source is not None
    lake.rows[1] = {"big": "kept", "doc": None}
    lake.source.failures.append(Retriable("gone"))
    lake.batch(u(1, big=P))
    assert lake.big() == "kept"


@pytest.mark.parametrize("event", [u(1, big=DOUBT), c(1, big=P)])
def test_database_down_loses_nothing(event: Any) -> None:
    """The batch is retried if the database is down and the stored value may be old or does not exist."""
    lake = Lake(database(), CACHE)
    assert lake.source is not None
    lake.source.failures.append(Retriable("gone"))
    with pytest.raises(Retriable):
        lake.resolve(event)


def test_refused_query_in_mode_warn_keeps() -> None:
    """With ``reselect.error.handling.mode=warn`` a permanent error keeps the stored values."""
    lake = Lake(database(), CACHE)
    assert lake.source is not None
    lake.rows[1] = {"big": "kept", "doc": None}
    lake.source.failures.append(Fatal("no such column"))
    lake.batch(u(1, big=P))
    assert lake.big() == "kept"


def test_mode_fail_stops_on_errors_and_missing_rows() -> None:
    """With ``reselect.error.handling.mode=fail`` a refused query and a missing row fail the batch."""
    lake = Lake(database(), replace(CACHE, error_handling_mode="fail"))
    assert lake.source is not None
    with pytest.raises(Fatal, match="not in the source any more"):
        lake.resolve(u(1, big=P))
    lake.source.failures.append(Fatal("no such column"))
    with pytest.raises(Fatal, match="no such column"):
        lake.resolve(u(1, big=P))


DEAD_LETTERS = replace(CACHE, error_handling_mode="dlq", null_values=True)


@pytest.mark.parametrize("failure", [None, Fatal("no such column")])
def test_mode_dlq_names_the_unresolved_cells(failure: Fatal | None) -> None:
    """With mode ``dlq`` the error names the cells of missing rows or of a refused query, but keeps a real null."""
    lake = Lake(database(row(1, "A")), DEAD_LETTERS)
    assert lake.source is not None
    lake.source.failures += [failure] if failure is not None else []
    with pytest.raises(UnresolvedRows) as refused:
        lake.resolve(u(1, big=P, doc="x"), u(2, big=P, doc=DOUBT), u(3, big=None, doc="x"), u(4, big="x", doc="x"))
    lacking = {1: ("big", "doc")}
    assert refused.value.columns == (lacking if failure is None else {0: ("big",), **lacking})
    assert (str(failure) if failure is not None else "does not have them") in str(refused.value)


def test_mode_dlq_names_a_value_that_does_not_fit() -> None:
    """With mode ``dlq`` the error names a cell whose value from the database does not fit the column."""
    lake = Lake(database({"id": 1, "big": 5, "doc": "D"}), DEAD_LETTERS)
    with pytest.raises(UnresolvedRows) as refused:
        lake.resolve(u(1, big=P, doc=P))
    assert refused.value.columns == {0: ("big",)}


def test_mode_dlq_waits_for_a_database_that_is_down() -> None:
    """With mode ``dlq`` an unavailable database delays the batch, and no record is a dead letter."""
    lake = Lake(database(row(1, "A")), DEAD_LETTERS)
    assert lake.source is not None
    lake.source.failures.append(Retriable("gone"))
    with pytest.raises(Retriable):
        lake.resolve(u(1, big=P))


def test_mode_dlq_keeps_the_last_known_value() -> None:
    """With mode ``dlq`` a doubtful null keeps the earlier value of the batch, or that of the row with the old key."""
    lake = Lake(database(), DEAD_LETTERS)
    lake.rows[1] = {"big": "old", "doc": "old"}
    lake.batch(u(2, big="A", doc="x"), u(2, big=DOUBT, doc="y"))
    assert lake.rows[2] == {"big": "A", "doc": "y"}
    lake.batch(d(1), c(3, old=1, big=P, doc="z"))
    assert lake.rows[3] == {"big": "old", "doc": "z"}


def test_values_that_do_not_fit_are_not_used() -> None:
    """A value that does not fit the column's type is neither written nor cached. The cell keeps the stored value."""
    lake = Lake(database({"id": 1, "big": 5, "doc": "D"}), CACHE)
    lake.rows[1] = {"big": "kept", "doc": "kept"}
    lake.batch(u(1, big=P, doc=P))
    assert lake.rows[1] == {"big": "kept", "doc": "D"}
