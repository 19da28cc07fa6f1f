"""Failovers of a simulated MySQL or MariaDB, and what the operator does about them."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

from properties.source_database.database import Failover
from properties.source_database.scenario import Scenario, Simulation


def with_failovers(scenario: Scenario) -> Scenario:
    """Let most of the simulated MySQLs fail over, some of them as MariaDB, and make MySQLs of some other databases."""
    choose = Random(f"failovers {scenario.seed}")
    is_mysql = scenario.setup.dialect == "mysql"
    if choose.randrange(100) >= (60 if is_mysql else 8) or scenario.seed % 8 in (1, 3, 7):
        return scenario
    setup = replace(
        scenario.setup,
        dialect=choose.choice(("mysql", "mariadb")),
        gtids=choose.randrange(100) < 70,
        identity="default",
        arrays=False,
    )
    # docs/guarantees.md, "Truncates around a failover"
    truncates = scenario.features.truncates and setup.partitions == 1
    features = replace(scenario.features, failovers=True, truncates=truncates)
    return replace(scenario, setup=setup, features=features, sink=replace(scenario.sink, database=False))


_ADVICE = re.compile(r"set source\.position\.epoch to ([0-9]+) and restart the connector")


def advised_epoch(error: BaseException, scenario: Scenario) -> int | None:
    """The epoch that an error asks the operator to set after a failover."""
    found = _ADVICE.search(str(error)) if scenario.features.failovers else None
    return None if found is None else int(found[1])


def most_answers(scenario: Scenario, truth: Simulation) -> int:
    """How often the operator may have to raise the epoch: for each failover once for each table.

    The connector's tables share the option, and one that is behind another may come to the failover afterwards. A table
    whose first batch of changes contains a failover does not know which of its partitions were read, so it may fail
    once more.
    """
    failovers = sum(isinstance(entry, Failover) for entry in truth.database.log)
    return (failovers + 1) * scenario.setup.tables if failovers else 0
