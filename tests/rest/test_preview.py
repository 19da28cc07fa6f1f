"""``PUT /connector-plugins/{plugin}/config/preview``: topics and tables of a configuration."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.rest.worker_api import Api

from headrace.ports import TopicPartition
from headrace.runtime import preview

pytestmark = pytest.mark.anyio
PATH = "/connector-plugins/LakehouseSink/config/preview"


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A worker whose cluster has two topics of a shop and one of others."""
    api = Api()
    for topic, partitions in {"shop.public.orders": 3, "shop.public.items": 1, "other": 1}.items():
        for partition in range(partitions):
            api.stores.topics.offsets[TopicPartition(topic, partition)] = 0
    await api.worker.start()
    yield api
    await api.worker.stop()


async def previewed(api: Api, **config: str) -> dict[str, Any]:
    """The answer for a valid configuration."""
    answer = await api.call("PUT", PATH, {"name": "shop", "connector.class": "LakehouseSink", **config})
    assert answer.status == 200, answer.body
    document: dict[str, Any] = answer.json()
    return document


async def test_topics_that_match_with_the_names_of_their_tables(api: Api) -> None:
    """Nothing is created."""
    answer = await previewed(api, **{"topics.regex": r"shop\..*", "table.namespace": "lakeshop"})
    assert answer == {
        "format": "iceberg",
        "catalog": "lake",
        "namespace": "lakeshop",
        "topics": [
            {"topic": "shop.public.items", "partitions": 1, "table": "shop_public_items", "problem": None},
            {"topic": "shop.public.orders", "partitions": 3, "table": "shop_public_orders", "problem": None},
        ],
        "more_topics": 0,
        "missing": [],
        "names_from_records": None,
    }
    assert (await api.call("GET", "/connectors")).json() == []


async def test_a_topic_that_does_not_exist_is_named(api: Api) -> None:
    answer = await previewed(api, topics="other,shop.public.odrers")
    assert [topic["topic"] for topic in answer["topics"]] == ["other"]
    assert answer["missing"] == ["shop.public.odrers"]


async def test_a_table_that_cannot_have_its_name_says_why(api: Api) -> None:
    """It would fail as soon as the connector reads of it."""
    api.stores.topics.offsets[TopicPartition("a__headrace_b", 0)] = 0
    [topic] = (await previewed(api, topics="a__headrace_b"))["topics"]
    assert topic["table"] is None
    assert "contains __headrace_" in topic["problem"]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"collection.name.format": "${source.table}"}, "collection.name.format=${source.table} names tables"),
        (
            {"transforms": "flat", "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState"},
            "a transform may change the topic",
        ),
    ],
)
async def test_names_that_records_decide_are_not_guessed(api: Api, config: dict[str, str], reason: str) -> None:
    answer = await previewed(api, topics="other", **config)
    assert answer["names_from_records"].startswith(reason)
    assert answer["topics"] == [{"topic": "other", "partitions": 1, "table": None, "problem": None}]


async def test_many_topics_are_counted(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "MOST_TOPICS", 1)
    answer = await previewed(api, **{"topics.regex": ".*"})
    assert [topic["topic"] for topic in answer["topics"]] == ["other"]
    assert answer["more_topics"] == 2


async def test_an_invalid_configuration_is_refused_with_its_errors(api: Api) -> None:
    answer = await api.call("PUT", PATH, {"name": "shop", "connector.class": "LakehouseSink", "topicz": "a"})
    assert answer.status == 400
    assert "Unknown configuration 'topicz'. Did you mean 'topics'?" in answer.json()["message"]


async def test_brokers_that_do_not_answer(api: Api) -> None:
    api.stores.topics.outage = "the brokers do not answer"
    answer = await api.call("PUT", PATH, {"name": "shop", "connector.class": "LakehouseSink", "topics": "other"})
    assert (answer.status, answer.json()["message"]) == (503, "The topics cannot be listed: the brokers do not answer")


async def test_the_audit_log_has_changes_only(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """A form requests a preview while somebody types."""
    with caplog.at_level(logging.INFO, "headrace.audit"):
        await previewed(api, topics="other")
    assert [record for record in caplog.records if record.name == "headrace.audit"] == []
