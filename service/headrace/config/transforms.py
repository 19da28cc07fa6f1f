"""The options of a connector's transforms and predicates, alias by alias, as Kafka Connect lists them.

A transform's options appear once its class is known (``connect.md`` section 4). What Connect finds out only when a task
starts (an undefined predicate, options that do not go together) is reported at once: ``transform_problems``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.config.plugin_classes import class_problem
from headrace.core.connect.config_def import REQUIRED, ConfigDef, ConfigKey, Importance, Type, Validator, Width
from headrace.core.connect.typed_options import definition
from headrace.transforms.options import Selection
from headrace.transforms.registry import aliases, find, predicates, refusal, transforms

Properties = Mapping[str, str | None]

_KINDS = {
    "transforms": ("Transform", "transformation", transforms),
    "predicates": ("Predicate", "predicate", predicates),
}
_IMPORTANCE = (Importance.HIGH, Importance.MEDIUM, Importance.LOW)
_PREDICATED = definition(Selection).keys


def transform_definitions(properties: Properties, version: str) -> ConfigDef:
    """The options of every alias of ``transforms``, then of ``predicates``."""
    keys = (
        key
        for option_name in _KINDS
        for alias in aliases(properties, option_name)
        for key in _alias_keys(option_name, alias, properties, version)
    )
    return ConfigDef(tuple(keys))


def recommended_classes(properties: Properties) -> dict[str, tuple[str, ...]]:
    """The classes to choose from, by the name of the option."""
    return {
        f"{option_name}.{alias}.type": tuple(classes())
        for option_name, (_, _, classes) in _KINDS.items()
        for alias in aliases(properties, option_name)
    }


def transform_problems(properties: Properties) -> Iterator[tuple[str, str]]:
    """What Connect says beside the checks of single options."""
    for option_name in _KINDS:
        for alias in aliases(properties, option_name):
            option, classes = f"{option_name}.{alias}.type", _KINDS[option_name][2]()
            name = properties.get(option)
            if name is None or find(name, classes) is not None:
                continue
            if reason := refusal(name):
                yield option, f"Invalid value {name} for configuration {option}: {reason}."
            else:
                interface = "Transformation" if option_name == "transforms" else "Predicate"
                yield option, class_problem(option, name, interface, classes)
    for alias in aliases(properties, "transforms"):
        prefix = f"transforms.{alias}."
        if f"{prefix}negate" in properties and f"{prefix}predicate" not in properties:
            yield (
                f"{prefix}negate",
                f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a predicate "
                "to be negated.",
            )


def of_unknown_class(name: str, properties: Properties) -> bool:
    """Whether an option belongs to an alias whose class is not here: it is the class that is wrong then."""
    for option_name, (_, _, classes) in _KINDS.items():
        for alias in aliases(properties, option_name):
            if (
                name.startswith(f"{option_name}.{alias}.")
                and find(properties.get(f"{option_name}.{alias}.type") or "", classes()) is None
            ):
                return True
    return False


def _alias_keys(option_name: str, alias: str, properties: Properties, version: str) -> Iterator[ConfigKey]:
    shown, word, classes = _KINDS[option_name]
    title = "Transformation" if option_name == "transforms" else "Predicate"
    prefix, group = f"{option_name}.{alias}.", f"{shown}s: {alias}"
    yield ConfigKey(
        f"{prefix}type",
        Type.CLASS,
        REQUIRED,
        Importance.HIGH,
        f"Class for the '{alias}' {word}.",
        group,
        0,
        Width.LONG,
        f"{title} type for {alias}",
    )
    plugin = find(properties.get(f"{prefix}type") or "", classes())
    if plugin is None:
        return
    yield ConfigKey(
        f"{prefix}plugin.version",
        Type.STRING,
        version,
        Importance.HIGH,
        f"Version of the '{alias}' {word}.",
        group,
        1,
        Width.LONG,
        f"{title} version for {alias}",
    )
    options = (*plugin.options.keys, *(_PREDICATED if option_name == "transforms" else ()))
    # Connect's order: what has no default, then by importance, then by name.
    ordered = sorted(options, key=lambda key: (not key.required, _IMPORTANCE.index(key.importance), key.name))
    for order, key in enumerate(ordered, 2):
        validator = key.validator
        if validator is not None:  # Connect's validators of embedded options name them without their prefix
            validator = partial(_validate_unprefixed, validator, key.name)
        shown_name = key.display_name or key.name
        yield replace(
            key, name=prefix + key.name, group=group, order=order, display_name=shown_name, validator=validator
        )


def _validate_unprefixed(validator: Validator, name: str, _: str, value: Any) -> None:
    validator(name, value)
