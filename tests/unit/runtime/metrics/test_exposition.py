"""Tests of the text of ``/metrics``: Prometheus' format, and turns for other work."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.samples import Sample

from headrace.core.connect.lifecycle import State
from headrace.ports import TopicPartition
from headrace.runtime.metrics.exposition import LazyFamily, text_in_turns, text_parts
from headrace.runtime.metrics.metrics import Metrics

STRANGE = 'a"b\\c\nd é'


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("events", STRANGE, ["table", "connector"], registry=registry).labels(STRANGE, "shop").inc(3)
    gauge = Gauge("lag", "Text", ["table"], registry=registry)
    for number, value in enumerate((float("nan"), float("inf"), -float("inf"), 1e21, 0.1, 12345678, 1_700_000_000.25)):
        gauge.labels(str(number)).set(value)
    Histogram("seconds", "Text", ["table"], registry=registry, buckets=(0.5, 1)).labels("orders").observe(0.7)
    Gauge("up", "Text", registry=registry).set(1)
    Gauge("without_samples", "Text", ["table"], registry=registry)
    return registry


def test_the_text_is_that_of_the_client_library() -> None:
    """Names, help texts, labels and values are written and escaped as by ``generate_latest``."""
    Metrics()  # without ``_created``, as in a worker
    registry = _registry()
    assert b"".join(text_parts(registry.collect())) == generate_latest(registry)


def test_families_of_collectors_have_the_same_text() -> None:
    """Counter and gauge families, as collectors make them."""
    counter = CounterMetricFamily("a_b", "Text", labels=("connector",))
    counter.add_metric(("shop",), 5)
    gauge = GaugeMetricFamily("c_d", "Text", value=0.5)
    registry = CollectorRegistry()
    registry.collect = lambda: [counter, gauge]  # type: ignore[method-assign]
    assert b"".join(text_parts([counter, gauge])) == generate_latest(registry)


@pytest.mark.anyio
async def test_other_tasks_have_turns_while_samples_are_computed() -> None:
    """No more than a part of the samples is computed in a row, also within a family."""
    in_a_row = most = 0

    def computed(number: int) -> Sample:
        nonlocal in_a_row, most
        in_a_row += 1
        most = max(most, in_a_row)
        return Sample("gauge", {"table": str(number)}, 1.0)

    async def turn() -> None:
        nonlocal in_a_row
        while True:
            in_a_row = 0
            await asyncio.sleep(0)

    turns = asyncio.create_task(turn())
    family = LazyFamily("gauge", "Text", "gauge", (computed(number) for number in range(5_000)))
    parts = await text_in_turns([family])
    turns.cancel()
    assert b"".join(parts).count(b"\n") == 5_002
    assert most <= 200


@pytest.mark.anyio
async def test_a_scrape_of_many_tasks_leaves_turns_to_others() -> None:
    """What only the event loop may read, the gauges of all tasks, is read in turns, and is equal to the exposition."""
    metrics = Metrics(clock=lambda: 1000.0, now=lambda: 1000.0)
    in_a_row = most = 0

    def lag() -> dict[TopicPartition, int]:
        nonlocal in_a_row, most
        in_a_row += 1
        most = max(most, in_a_row)
        return {TopicPartition("shop.orders", 0): 3}

    for number in range(1_000):
        metrics.on_task_state("shop", number, State.RUNNING)
        metrics.task("shop", number, lambda topic: None).watch_lag(lag)

    async def turn() -> None:
        nonlocal in_a_row
        while True:
            in_a_row = 0
            await asyncio.sleep(0)

    turns = asyncio.create_task(turn())
    parts, content_type = await metrics.scrape()
    turns.cancel()
    assert most <= 200
    assert (b"".join(parts), content_type) == metrics.exposition()
