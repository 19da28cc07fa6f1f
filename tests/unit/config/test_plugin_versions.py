"""Validation of the versions and classes of plug-ins."""

from __future__ import annotations

import pytest

from headrace import __version__
from headrace.config import WorkerConfig
from headrace.config.validation import WorkerDefaults, validate
from headrace.core.model.errors import ConfigError

JSON = "org.apache.kafka.connect.json.JsonConverter"
DEFAULTS = WorkerDefaults({"key.converter": JSON, "value.converter": JSON}, "1.0")
VERSIONED = {
    "name": "shop",
    "connector.class": "LakehouseSink",
    "topics": "a",
    "key.converter": "JsonConverter",
    "header.converter": "SimpleHeader",
    "transforms": "a",
    "transforms.a.type": "Filter",
    "transforms.a.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "RecordIsTombstone",
}
HEADERS = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
TRANSFORMS = "org.apache.kafka.connect.transforms."


def _errors(option: str, wanted: str) -> dict[str, tuple[str, ...]]:
    infos = validate({**VERSIONED, option: wanted}, DEFAULTS).configs
    return {info.value.name: info.value.errors for info in infos if info.value.errors}


@pytest.mark.parametrize(
    ("option", "of", "plugin"),
    [
        ("connector.plugin.version", "connector.class", "LakehouseSink"),
        ("key.converter.plugin.version", "key.converter", JSON),
        (
            "header.converter.plugin.version",
            "header.converter",
            HEADERS,
        ),
        ("transforms.a.plugin.version", "transforms.a.type", f"{TRANSFORMS}Filter"),
        ("predicates.p.plugin.version", "predicates.p.type", f"{TRANSFORMS}predicates.RecordIsTombstone"),
    ],
)
def test_versions_of_plugins_are_checked_and_recommended(option: str, of: str, plugin: str) -> None:
    """Each plug-in has one version (KIP-891); validation refuses another at the class and at the version."""
    range_of_others = f"Plugin {plugin} not found that matches the version range [99,), available versions: [1.0]"
    assert _errors(option, "[99,)") == dict.fromkeys((of, option), (range_of_others,))
    assert _errors(option, "garbage]")[option] == ("Invalid version specification: garbage]",)
    assert not _errors(option, "[1.0,2)")
    shown = {info.value.name: info.value for info in validate(VERSIONED, DEFAULTS).configs}
    assert (shown[option].value, shown[option].recommended_values) == ("1.0", ("1.0",))


def test_the_version_of_a_converter_that_is_inherited() -> None:
    """A connector's version option also applies to the converter that it inherits from the worker."""
    of_others = f"Plugin {JSON} not found that matches the version range [99,), available versions: [1.0]"
    option = "value.converter.plugin.version"
    assert _errors(option, "[99,)") == dict.fromkeys(("value.converter", option), (of_others,))
    assert not _errors(option, "[1.0,2)")


def test_the_version_of_a_workers_converter() -> None:
    """The worker does not start with another version: every task that inherits the converter would fail."""
    given = {"bootstrap.servers": "a:1", "key.converter": "JsonConverter"}
    for option, plugin in ("key", JSON), ("header", HEADERS):
        with pytest.raises(ConfigError) as refused:
            WorkerConfig({**given, f"{option}.converter.plugin.version": "[99,)"}, distributed=False)
        assert str(refused.value).count(f"Plugin {plugin} not found that matches the version range [99,)") == 1
        assert WorkerConfig({**given, f"{option}.converter.plugin.version": __version__}, distributed=False)


def test_classes_to_choose_from_are_recommended() -> None:
    """Validation recommends the classes of each plug-in option, which consoles show as a list."""
    shown = {info.value.name: info.value.recommended_values for info in validate(VERSIONED, DEFAULTS).configs}
    for option, one in (
        ("value.converter", JSON),
        ("header.converter", HEADERS),
        ("transforms.a.type", f"{TRANSFORMS}RegexRouter"),
        ("predicates.p.type", f"{TRANSFORMS}predicates.TopicNameMatches"),
    ):
        assert one in shown[option]
    assert shown["topics"] == ()
