"""The plan of connectors as code: one case for each action."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.core.connect.connector_plan import (
    Action,
    DesiredConnector,
    DesiredConnectors,
    Ownership,
    PlanPolicy,
    Step,
    StoredConnector,
    diff_lines,
    digest,
    plan,
)

ME = "me"
ONE, TWO, THREE = ({"topics": topic} for topic in ("one", "two", "three"))
WANTED = DesiredConnector("shop", TWO, "shop.json")


def only(
    stored: StoredConnector | None,
    desired: DesiredConnectors | None = None,
    policy: PlanPolicy = PlanPolicy(),  # noqa: B008 - frozen
) -> Step:
    """The step of the plan for one connector."""
    existing: Mapping[str, StoredConnector] = {} if stored is None else {"shop": stored}
    [step] = plan(ME, desired or DesiredConnectors([WANTED]), existing, policy)
    return step


def mine(config: dict[str, str], written: dict[str, str] | None, source: str = "shop.json") -> StoredConnector:
    """A connector of this owner, with the configuration that the owner wrote last."""
    return StoredConnector(config, Ownership(ME, source, "" if written is None else digest(written)))


@pytest.mark.parametrize(
    ("stored", "action", "drifted"),
    [
        (None, Action.CREATE, False),
        (mine(TWO, TWO), Action.UNCHANGED, False),
        (mine(ONE, ONE), Action.UPDATE, False),
        (mine(ONE, TWO), Action.UPDATE, True),
        (mine(ONE, THREE), Action.UPDATE, True),
        (mine(ONE, None), Action.UPDATE, False),
        (mine(TWO, ONE), Action.ADOPT, False),
        (mine(TWO, TWO, "old.json"), Action.ADOPT, False),
        (StoredConnector(ONE), Action.CONFLICT, False),
        (StoredConnector(TWO), Action.UNCHANGED, False),
        (StoredConnector(ONE, Ownership("other")), Action.CONFLICT, False),
    ],
)
def test_a_connector_with_a_file(stored: StoredConnector | None, action: Action, drifted: bool) -> None:
    """The stored configuration, the one that was written last and the file decide together."""
    step = only(stored)
    assert (step.action, step.drifted) == (action, drifted)


def test_drift_is_reported_only() -> None:
    """Without correct_drift a change over REST stays, until the file changes."""
    policy = PlanPolicy(correct_drift=False)
    step = only(mine(ONE, TWO), policy=policy)
    assert (step.action, step.keys) == (Action.DRIFT, ("topics",))
    assert only(mine(ONE, THREE), policy=policy).action is Action.UPDATE


@pytest.mark.parametrize("stored", [StoredConnector(ONE), StoredConnector(ONE, Ownership("other"))])
def test_adopt_changes_connectors_of_others(stored: StoredConnector) -> None:
    """The policy is explicit, and the change is not called drift."""
    step = only(stored, policy=PlanPolicy(adopt=True))
    assert (step.action, step.drifted) == (Action.UPDATE, False)


def test_a_conflict_names_the_owner() -> None:
    """The reason says to whom the connector belongs."""
    assert "other" in only(StoredConnector(ONE, Ownership("other"))).reason
    assert "over REST" in only(StoredConnector(ONE)).reason


def test_a_cluster_without_owners() -> None:
    """On Kafka Connect equal configurations are equal, and others are changed only with adopt."""
    connect = PlanPolicy(stores_owners=False)
    assert only(StoredConnector(TWO), policy=connect).action is Action.UNCHANGED
    assert only(StoredConnector(ONE), policy=connect).action is Action.CONFLICT
    adopting = PlanPolicy(stores_owners=False, adopt=True)
    assert only(StoredConnector(ONE), policy=adopting).action is Action.UPDATE
    assert only(StoredConnector(TWO), policy=adopting).action is Action.UNCHANGED


@pytest.mark.parametrize(
    ("unreadable", "policy", "action", "reason"),
    [
        ({}, PlanPolicy(), Action.DELETE, ""),
        ({}, PlanPolicy("the folder is empty"), Action.KEEP, "the folder is empty"),
        ({"shop.json": None}, PlanPolicy(), Action.KEEP, "its file has an error"),
        ({"new.json": "shop"}, PlanPolicy(), Action.KEEP, "its file has an error"),
        ({"new.json": None}, PlanPolicy(), Action.KEEP, "new.json has an error and may define it"),
        ({"new.json": "other"}, PlanPolicy(), Action.DELETE, ""),
    ],
)
def test_a_connector_without_a_file(
    unreadable: dict[str, str | None], policy: PlanPolicy, action: Action, reason: str
) -> None:
    """It is deleted only if no file with an error may define it."""
    step = only(mine(ONE, ONE), DesiredConnectors([], unreadable), policy)
    assert (step.action, step.reason) == (action, reason)


def test_a_name_in_two_files_is_a_conflict() -> None:
    """Neither file wins, and the reason names both."""
    twice = DesiredConnectors([WANTED, DesiredConnector("shop", ONE, "copy.json")])
    step = only(mine(ONE, ONE), twice)
    assert step.action is Action.CONFLICT
    assert "copy.json, shop.json" in step.reason


def test_changed_added_and_removed_keys() -> None:
    """Equal keys are omitted, the others are sorted."""
    lines = diff_lines({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"}, lambda _: False)
    assert lines == ["- b = 2", "+ b = 4", "- c = 3", "+ d = 5"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("secret", "[hidden]"),
        ("${file:/etc/db:password}", "${file:/etc/db:password}"),
        ("x${file:/etc/db:password}", "[hidden]"),
        ("${novalue}", "[hidden]"),
    ],
)
def test_a_hidden_value(value: str, shown: str) -> None:
    """Only a reference to a config provider is shown."""
    assert diff_lines({}, {"k": value}, lambda _: True) == [f"+ k = {shown}"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://user:pass@host/x,http://a:b@c", "http://[hidden]@host/x,http://[hidden]@c"),
        ("a\nb\\", "a\\nb\\\\"),
        ("x" * 600, f"{'x' * 500}… (600 characters)"),
    ],
)
def test_a_value_that_is_shown(value: str, shown: str) -> None:
    """Credentials in URLs are hidden, a value is one line, and a long one is cut."""
    assert diff_lines({}, {"k": value}, lambda _: False) == [f"+ k = {shown}"]
