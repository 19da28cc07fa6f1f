"""Laws of the plan of connectors as code, for any files, any connectors and any policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.connect.connector_plan import (
    CHANGES,
    Action,
    DesiredConnector,
    DesiredConnectors,
    Ownership,
    PlanPolicy,
    Step,
    StoredConnector,
    digest,
    plan,
)

OWNER = "team"
Stored = Mapping[str, StoredConnector]

names = st.sampled_from("abc")
configs = st.fixed_dictionaries({"topics": st.sampled_from("tu")}, optional={"tasks.max": st.sampled_from("12")})
files = st.sampled_from(["a.json", "b.json", "c.json", "d.json"])
digests = st.one_of(st.just(""), configs.map(digest))
owners = st.one_of(st.none(), st.builds(Ownership, st.sampled_from([OWNER, "other"]), files, digests))
clusters = st.dictionaries(names, st.builds(StoredConnector, configs, owners))
readable = st.lists(st.builds(DesiredConnector, names, configs, files), max_size=4)
unreadable = st.dictionaries(files, st.one_of(st.none(), names), max_size=2)
contents = st.builds(DesiredConnectors, readable, unreadable)
policies = st.builds(
    PlanPolicy, st.one_of(st.none(), st.just("no --prune")), st.booleans(), st.booleans(), st.just(True)
)


def applied(steps: Sequence[Step], stored: Stored) -> Stored:
    """The cluster after the steps."""
    after = dict(stored)
    for step in steps:
        if step.action is Action.DELETE:
            del after[step.name]
        elif step.action in CHANGES and step.desired is not None:
            written = Ownership(OWNER, step.source, digest(step.desired.config))
            before = after[step.name].config if step.action is Action.ADOPT else step.desired.config
            after[step.name] = StoredConnector(before, written)
    return after


def is_owned(stored: Stored, name: str) -> bool:
    found = stored.get(name)
    return found is not None and found.owner is not None and found.owner.owner == OWNER


@given(contents, clusters, policies)
def test_a_second_plan_changes_nothing(desired: DesiredConnectors, stored: Stored, policy: PlanPolicy) -> None:
    """Applying the plan reaches a state that the same files do not change again."""
    after = applied(plan(OWNER, desired, stored, policy), stored)
    again = plan(OWNER, desired, after, policy)
    assert [step for step in again if step.action in CHANGES] == []


@given(contents, clusters, policies)
def test_nothing_that_is_not_owned_is_changed(desired: DesiredConnectors, stored: Stored, policy: PlanPolicy) -> None:
    """Without adopt, a connector of another owner or of none is as it was; nothing but owned connectors is deleted."""
    after = applied(plan(OWNER, desired, stored, policy), stored)
    for name, found in stored.items():
        if not is_owned(stored, name):
            assert name in after
            assert policy.adopt or after[name] == found


@given(readable, clusters)
def test_the_cluster_has_what_the_files_define(connectors: list[DesiredConnector], stored: Stored) -> None:
    """If names are unique and nothing conflicts, the owned connectors are exactly those of the files."""
    desired = DesiredConnectors(list({each.name: each for each in connectors}.values()))
    wanted = {each.name: each.config for each in desired.connectors}
    after = applied(plan(OWNER, desired, stored, PlanPolicy(adopt=True)), stored)
    assert {name: each.config for name, each in after.items() if is_owned(after, name)} == wanted
    assert after.keys() == wanted.keys() | {name for name in stored if not is_owned(stored, name)}


@given(contents, clusters, policies)
def test_a_file_with_an_error_deletes_nothing(desired: DesiredConnectors, stored: Stored, policy: PlanPolicy) -> None:
    """The connector of a file that cannot be read stays as it is; a file of an unknown connector keeps all of them."""
    steps = plan(OWNER, desired, stored, policy)
    deleted = {step.name for step in steps if step.action is Action.DELETE}
    sources = {each.owner.source for each in stored.values() if each.owner and each.owner.owner == OWNER}
    for file, name in desired.unreadable.items():
        assert name not in {step.name for step in steps if step.action in CHANGES}
        assert not {each for each in deleted if (owner := stored[each].owner) and owner.source == file}
        assert not (deleted and name is None and file not in sources)


@given(contents, clusters, policies)
def test_every_connector_has_one_step(desired: DesiredConnectors, stored: Stored, policy: PlanPolicy) -> None:
    """A report has one line for each connector of the files and of the owner, and deletions come first."""
    steps = plan(OWNER, desired, stored, policy)
    listed = [step.name for step in steps]
    owned = {name for name in stored if is_owned(stored, name)}
    assert sorted(listed) == sorted({each.name for each in desired.connectors} | owned)
    deletions = [step.action is Action.DELETE for step in steps]
    assert deletions == sorted(deletions, reverse=True)
