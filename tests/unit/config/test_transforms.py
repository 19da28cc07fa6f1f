"""Validation of the transforms and predicates of a connector."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config.validation import WorkerDefaults, validate
from headrace.transforms.registry import REFUSED, chain, find, predicates, transforms

OF_OTHERS = (
    "org.apache.iceberg.connect.transforms.DebeziumTransform",
    "io.confluent.connect.transforms.Filter$Value",
    "io.aiven.kafka.connect.transforms.ExtractTopic$Value",
)
PAGE = (Path(__file__).parents[3] / "docs" / "transforms.md").read_text()
DEFAULTS = WorkerDefaults({"key.converter": "JsonConverter", "value.converter": "JsonConverter"}, "1.0")
ROUTE = {
    "transforms": "t",
    "transforms.t.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.t.regex": "(.*)",
    "transforms.t.replacement": "$1",
}
MATCH = {"predicates": "p", "predicates.p.type": "TopicNameMatches", "predicates.p.pattern": "a.*"}


def _errors(**given: str) -> dict[str, tuple[str, ...]]:
    base = {"name": "shop", "connector.class": "LakehouseSink", "topics": "a"}
    infos = validate(base | {name.replace("__", "."): value for name, value in given.items()}, DEFAULTS)
    return {info.definition.name: info.value.errors for info in infos.configs if info.value.errors}


def test_a_valid_chain_is_accepted() -> None:
    """Validation accepts full and simple class names, and a predicate."""
    assert not _errors(**ROUTE, **MATCH, **{"transforms.t.predicate": "p", "transforms.t.negate": "true"})
    assert not _errors(**{**ROUTE, "transforms.t.type": "RegexRouter"})


@pytest.mark.parametrize(
    ("given", "option", "text"),
    [
        ({"transforms.t.predicate": "q"}, "transforms.t.predicate", "predicate 'q' is unknown"),
        (
            {"transforms.t.negate": "true"},
            "transforms.t.negate",
            "Config 'transforms.t.negate' was provided but there is no config 'transforms.t.predicate' defining a "
            "predicate to be negated.",
        ),
        ({"transforms.t.replacement": "$2"}, "transforms.t.type", "No group 2"),
        ({"transforms.t.regex": "("}, "transforms.t.regex", "Unclosed group near index 1"),
        ({"transforms.t.regexp": "a"}, "transforms.t.regexp", "transforms.t.regex"),
        ({"transforms.t.type": "TopicNameMatches"}, "transforms.t.type", "does not implement the Transformation"),
        ({"transforms.t.type": "JsonConverter"}, "transforms.t.type", "json.JsonConverter does not implement the Tra"),
        (
            {"transforms.t.type": "no.Such"},
            "transforms.t.type",
            "Class no.Such could not be found. The classes are: Co",
        ),
        ({"transforms.t.type": "RegexRooter"}, "transforms.t.type", "Did you mean 'RegexRouter'? The classes are: "),
        (
            {"transforms.t.type": "io.debezium.transforms.ExtractNewRecordStat"},
            "transforms.t.type",
            "Did you mean 'io.debezium.transforms.ExtractNewRecordState' or 'io.debezium.transforms.ExtractChangedRec",
        ),
        (
            MATCH | {"predicates.p.type": "TopicNameMatch"},
            "predicates.p.type",
            "Did you mean 'TopicNameMatches'? The classes are: HasHeaderKey, RecordIsTombstone, TopicNameMatches.",
        ),
        (MATCH | {"transforms.t.predicate": "q"}, "transforms.t.predicate", "predicates names p: correct the name"),
    ],
)
def test_an_invalid_chain_is_refused_by_validation(given: dict[str, str], option: str, text: str) -> None:
    """Validation reports the error on the option that is wrong."""
    assert text in _errors(**ROUTE | given)[option][0]


@pytest.mark.parametrize("class_name", [*REFUSED, *OF_OTHERS])
def test_classes_that_are_refused_have_a_next_step(class_name: str) -> None:
    """The error of an unsupported class, such as one that runs scripts, names an alternative."""
    errors = _errors(**ROUTE | {"transforms.t.type": class_name, "transforms.t.condition": "true"})
    assert list(errors) == ["transforms.t.type"]  # it is not its options that are wrong
    [message] = errors["transforms.t.type"]
    assert class_name in message
    assert any(step in message for step in ("use ", "remove it", "at the source connector"))


def test_the_simple_name_filter_is_that_of_kafka() -> None:
    """Debezium's transform of the same name runs scripts."""
    found = find("Filter", transforms())
    assert found is not None
    assert found.class_name == "org.apache.kafka.connect.transforms.Filter"


def test_the_page_of_transforms_contains_every_class() -> None:
    """``docs/transforms.md`` names each supported transform and predicate."""
    names = {each.simple_name.partition("$")[0] for each in (*transforms().values(), *predicates().values())}
    assert [name for name in sorted(names) if f"`{name}`" not in PAGE and f".{name}`" not in PAGE] == []


def test_transforms_that_replace_nulls_are_listed() -> None:
    """The chain lists transforms with ``replace.null.with.default`` not set to false."""
    kind = "org.apache.kafka.connect.transforms.Cast$Value"
    cast = {"transforms": "t", "transforms.t.type": kind, "transforms.t.spec": "a:string"}
    assert chain(cast).defaulting == ("t",)
    assert chain(cast | {"transforms.t.replace.null.with.default": "false"}).defaulting == ()
    assert chain(ROUTE).defaulting == ()
