"""Configurations that are made to do harm: validation answers each quickly, and refuses what would do it."""

from __future__ import annotations

import time

import pytest

from headrace.config.validation import WorkerDefaults, validate

BASE = {"name": "shop", "connector.class": "LakehouseSink", "topics": "a"}
DEFAULTS = WorkerDefaults({}, "1", warehouse="/warehouse")
APACHE = "org.apache.kafka.connect.transforms."
COSTLY = ("(a+)+$", "(a|a)*b", "(.*a){20}", r"(?i)(\w+\s?)+!", "a" * 30_000)
AVRO = "io.confluent.connect.avro.AvroConverter"


def with_pattern(option: str, pattern: str) -> dict[str, str]:
    """Return a configuration with a pattern in one of the options that take one."""
    transform = {"transforms": "t", "transforms.t.replacement": "x"}
    around: dict[str, dict[str, str]] = {
        "topics.regex": {"topics": ""},
        "reselect.columns.include.list": {},
        "reselect.columns.exclude.list": {},
        "transforms.t.regex": {**transform, "transforms.t.type": f"{APACHE}RegexRouter"},
        "transforms.t.topic.regex": {
            "transforms": "t",
            "transforms.t.type": "io.debezium.transforms.ByLogicalTableRouter",
            "transforms.t.topic.replacement": "x",
        },
        "predicates.p.pattern": {
            "predicates": "p",
            "predicates.p.type": f"{APACHE}predicates.TopicNameMatches",
            "transforms": "t",
            "transforms.t.type": f"{APACHE}Filter",
            "transforms.t.predicate": "p",
        },
    }
    return {**BASE, **around[option], option: pattern}


PATTERNS = (
    "topics.regex",
    "reselect.columns.include.list",
    "reselect.columns.exclude.list",
    "transforms.t.regex",
    "transforms.t.topic.regex",
    "predicates.p.pattern",
)


def errors(config: dict[str, str]) -> dict[str, tuple[str, ...]]:
    begin = time.thread_time()
    infos = validate(config, DEFAULTS).configs
    assert time.thread_time() - begin < 5
    return {info.definition.name: info.value.errors for info in infos if info.value.errors}


@pytest.mark.parametrize("pattern", COSTLY, ids=lambda pattern: pattern[:20])
@pytest.mark.parametrize("option", PATTERNS)
def test_patterns_that_may_take_very_long_are_refused(option: str, pattern: str) -> None:
    """Each option with a regular expression refuses one whose time grows without bound, and names the option."""
    [message] = errors(with_pattern(option, pattern))[option]
    assert "very long" in message
    assert len(message) < 1000


@pytest.mark.parametrize("name", ["../escape", "a/b", "a\\b", "/..", "a\0b", "a\nb", "__headrace_x"])
@pytest.mark.parametrize("option", ["table.namespace", "collection.name.format"])
def test_names_outside_of_the_warehouse_are_refused(option: str, name: str) -> None:
    """A namespace or table is one folder of the warehouse."""
    assert option in errors({**BASE, option: name})


@pytest.mark.parametrize(
    "option", ["tasks.max", "batch.max.records", "batch.linger.ms", "reselect.database.port", "schemas.cache.config"]
)
@pytest.mark.parametrize("value", ["9" * 100_000, "1e999999999", "-1e-9", "0x7fffffff", "١٢", "NaN", "1" + "_0" * 50])
def test_numbers_out_of_range_are_refused(option: str, value: str) -> None:
    """A number that its type does not hold is an error of its option, in bounded time."""
    name = f"value.converter.{option}" if option.startswith("schemas") else option
    around = {"value.converter": AVRO, "value.converter.schema.registry.url": "http://r"} if name != option else {}
    assert name in errors({**BASE, **around, name: value})


@pytest.mark.parametrize(
    "config",
    [
        {"transforms": ",".join(f"t{n}" for n in range(5000))},
        {"transforms": "t", "transforms.t.type": "x" * 500_000},
        {"transforms": "a.b,\0,${x},'", "transforms.a.b.type": f"{APACHE}Filter"},
        {"topics": ",".join(f"t{n}" for n in range(50_000))},
        {"reselect.databases": ",".join(f"d{n}" for n in range(2000))},
        {"post.processors": ",".join(f"p{n}" for n in range(2000))},
        {f"unknown.{n}": "x" for n in range(5000)},
        {"x" * 500_000: "y"},
        {"table.properties." + "x" * 100_000: "y" * 100_000},
        {"reselect.key.columns": ";".join(f"s.t{n}:c" for n in range(5000))},
        {"reselect.database.hostname": ",".join(["h:1"] * 50_000)},
    ],
    ids=lambda config: next(iter(config))[:30],
)
def test_large_configurations_are_answered_in_time(config: dict[str, str]) -> None:
    """Validation runs on the worker's event loop, so its time is bounded for the largest body."""
    errors({**BASE, **config})
