"""The topics that a connector has read (KIP-558): its tasks record them, and a request resets them."""

from __future__ import annotations

from functools import partial

import pytest
from support.rest.worker_api import Api

from headrace.ports import TopicPartition
from headrace.runtime.metrics.metrics import TaskMetrics

pytestmark = pytest.mark.anyio
ORDERS = TopicPartition("shop.public.orders", 0)
TOPICS = "/connectors/shop/topics"


async def test_a_topic_is_listed_again_with_the_next_record_after_a_reset(api: Api) -> None:
    """The running task lists a topic again with the next record after a reset."""
    task = _task(api, 0)
    task.on_chunk_decoded(ORDERS, 5, 0)
    assert await _listed(api) == ["shop.public.orders"]
    assert (await api.call("PUT", f"{TOPICS}/reset")).status == 202
    assert await _listed(api) == []
    task.on_chunk_decoded(ORDERS, 1, 0)
    assert await _listed(api) == ["shop.public.orders"]


async def test_the_last_records_of_a_deleted_connector_list_nothing(api: Api) -> None:
    """Its tasks may end after its statuses are deleted."""
    task = _task(api, 0)
    await api.call("DELETE", "/connectors/shop")
    await api.until("none")
    task.on_chunk_decoded(ORDERS, 5, 0)
    assert await _listed(api) == []


@pytest.mark.parametrize(
    ("option", "method", "target", "message"),
    [
        ("topic.tracking.enable", "GET", TOPICS, "Topic tracking is disabled."),
        ("topic.tracking.enable", "PUT", f"{TOPICS}/reset", "Topic tracking is disabled."),
        ("topic.tracking.allow.reset", "PUT", f"{TOPICS}/reset", "Topic tracking reset is disabled."),
    ],
)
async def test_what_the_worker_does_not_track_is_forbidden(option: str, method: str, target: str, message: str) -> None:
    """The error has Connect's text, also for connectors that do not exist."""
    api = Api(**{option: "false"})
    await api.worker.start()
    answer = await api.call(method, target)
    assert (answer.status, answer.json()) == (403, {"error_code": 403, "message": message})
    await api.worker.stop()


async def test_where_topics_are_not_tracked_none_is_noted() -> None:
    """Like Connect, the worker then writes no such record to the status topic."""
    api = Api(**{"topic.tracking.enable": "false"})
    await api.worker.start()
    await api.create()
    _task(api, 0).on_chunk_decoded(ORDERS, 5, 0)
    assert api.worker.statuses.topics("shop") == []
    await api.worker.stop()


def _task(api: Api, number: int) -> TaskMetrics:
    """The task in the form of the service."""
    return api.metrics.task("shop", number, partial(api.worker.topic_read, "shop", number))


async def _listed(api: Api) -> list[str]:
    topics: list[str] = (await api.call("GET", TOPICS)).json()["shop"]["topics"]
    return topics
