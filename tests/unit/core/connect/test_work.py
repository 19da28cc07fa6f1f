"""The properties of assigning tasks to workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.connect.work import (
    Task,
    WorkerState,
    assign_work,
    decode_assignment,
    decode_worker_state,
    encode_assignment,
    encode_worker_state,
)

names = st.sampled_from(["a", "a-1", "b", "ü"])
tasks = st.frozensets(st.tuples(names, st.integers(0, 3)))
states = st.builds(
    WorkerState,
    st.just("host"),
    st.integers(0, 9),
    st.integers(0, 9),
    st.booleans(),
    st.frozensets(st.tuples(names, st.integers(0, 3))),
)
groups = st.dictionaries(st.sampled_from(["m1", "m2", "m3"]), states, min_size=1).map(
    lambda group: {member: replace(state, worker=f"{member}:8083") for member, state in group.items()}
)


@given(groups, tasks)
def test_every_task_has_one_worker_and_the_group_one_leader(
    group: dict[str, WorkerState], wanted: frozenset[Task]
) -> None:
    """Every worker gets the leader and the owners of all tasks, and the numbers of tasks differ by one at most."""
    given_out = assign_work(group, wanted, 5)
    assert given_out.keys() == group.keys()
    assert sorted(task for each in given_out.values() for task in each.tasks) == sorted(wanted)
    [leader] = [member for member, each in given_out.items() if each.leads]
    counts = [len(each.tasks) for each in given_out.values()]
    assert max(counts) - min(counts) <= 1
    for member, each in given_out.items():
        assert each.leader == group[leader].worker
        assert {task for task, worker in each.owners.items() if worker == group[member].worker} == each.tasks
        assert each.generation > max(state.generation for state in group.values())


@given(groups, tasks)
def test_a_rebalance_moves_only_the_tasks_of_a_leaving_worker(
    group: dict[str, WorkerState], wanted: frozenset[Task]
) -> None:
    """A second round moves nothing; a leaving worker moves only its tasks; the leader stays while it is a member."""
    first = assign_work(group, wanted, 5)
    after = {
        member: replace(group[member], tasks=each.tasks, leads=each.leads, generation=each.generation)
        for member, each in first.items()
    }
    again = assign_work(after, wanted, 6)
    assert [each.tasks for each in again.values()] == [each.tasks for each in first.values()]
    assert {each.leader for each in again.values()} == {each.leader for each in first.values()}
    if len(after) > 1:
        after.pop(next(member for member, each in first.items() if each.leads))
        assert all(first[member].tasks <= each.tasks for member, each in assign_work(after, wanted, 6).items())


def test_the_worker_that_has_read_most_becomes_the_leader() -> None:
    """The worker with the highest offset of the config topic need not read more before it writes."""
    group = {"m1": WorkerState("one", offset=3), "m2": WorkerState("two", offset=4)}
    assert {each.leader for each in assign_work(group, [], 4).values()} == {"two"}


def test_the_tasks_of_a_worker_of_an_older_generation_are_ignored() -> None:
    """A worker that missed a generation reports tasks that other workers have by now, and does not keep them."""
    one, two = ("shop", 0), ("shop", 1)
    back = WorkerState("back", offset=9, generation=3, leads=True, tasks=frozenset([one, two]))
    there = WorkerState("there", offset=9, generation=4, leads=True, tasks=frozenset([one, two]))
    given_out = assign_work({"m1": back, "m2": there}, [one, two], 9)
    assert given_out["m2"].leads
    assert len(given_out["m2"].tasks & there.tasks) == 1
    there = replace(there, tasks=frozenset([one]))
    other = WorkerState("other", generation=4, tasks=frozenset([two]))
    given_out = assign_work({"m1": back, "m2": there, "m3": other}, [one, two], 9)
    assert [given_out[member].tasks for member in ("m1", "m2", "m3")] == [frozenset(), {one}, {two}]


@given(groups, tasks)
def test_states_and_assignments_are_decoded_as_they_were_encoded(
    group: dict[str, WorkerState], wanted: frozenset[Task]
) -> None:
    """Worker states and assignments pass through Kafka's user data unchanged."""
    assert all(decode_worker_state(encode_worker_state(each)) == each for each in group.values())
    assert all(decode_assignment(encode_assignment(each)) == each for each in assign_work(group, wanted, 5).values())


@pytest.mark.parametrize("data", [None, b"", b"\x00\x01", b"[]"])
@pytest.mark.parametrize("decode", [decode_worker_state, decode_assignment])
def test_user_data_of_other_clients_is_an_error(decode: Callable[[bytes | None], object], data: bytes | None) -> None:
    """A client of another kind in the group is an error, not a member without tasks."""
    with pytest.raises(ValueError):
        decode(data)
