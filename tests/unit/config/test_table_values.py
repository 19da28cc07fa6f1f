"""Options with a number for all tables and others for single tables."""

from __future__ import annotations

import pytest

from headrace.config.sink_options import BatchSettings
from headrace.core.connect.typed_options import parse_options
from headrace.core.model.errors import ConfigError

TARGET, COMMITS = "freshness.target.ms", "commits.per.hour"


def policy(**options: str) -> BatchSettings:
    """Return parsed options, whose names have underscores instead of dots."""
    return parse_options(BatchSettings, {name.replace("_", "."): value for name, value in options.items()})


def test_without_the_options() -> None:
    """A table has a target of 10 s, and no limit of commits."""
    defaults = BatchSettings().policy
    assert (defaults.target("orders"), defaults.interval("orders")) == (10.0, 0.0)


def test_a_table_has_its_own_value() -> None:
    """An entry with a table counts for that table only."""
    parsed = policy(freshness_target_ms="30000, orders:5000", commits_per_hour="items:120").policy
    assert [parsed.target(table) for table in ("orders", "items")] == [5.0, 30.0]
    assert [parsed.interval(table) for table in ("orders", "items")] == [0.0, 30.0]


def test_the_default_counts_where_no_entry_is_for_all_tables() -> None:
    """Naming one table does not change the others."""
    assert policy(freshness_target_ms="orders:5000").policy.target("items") == 10.0


def test_a_target_is_at_least_twice_the_linger() -> None:
    """A linger that an operator has set before does not make each change miss the target."""
    assert policy(batch_linger_ms="60000").policy.target("orders") == 120.0


@pytest.mark.parametrize("option", [TARGET, COMMITS])
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("soon", "a number of at least"),
        ("-1", "a number of at least"),
        ("orders:", "a number of at least"),
        (":5", "a number of at least"),
        ("1.5", "a number of at least"),
        ("١٢", "a number of at least"),
        ("9" * 100_000, "a number of at least"),
        ("5,,6", "a number of at least"),
        ("5,6", "Second value of all tables"),
        ("orders:5,orders:6", "Second value of table orders"),
    ],
    ids=lambda value: value[:20],
)
def test_wrong_values_are_refused(option: str, value: str, problem: str) -> None:
    """The message names the option and what is wrong, and is short."""
    with pytest.raises(ConfigError, match=problem) as refused:
        parse_options(BatchSettings, {option: value})
    assert option in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_target_of_nothing_is_refused() -> None:
    """No row is visible at once; 0 commits are no limit."""
    with pytest.raises(ConfigError, match="at least 1"):
        policy(freshness_target_ms="0")
    assert policy(commits_per_hour="0").policy.interval("orders") == 0.0
