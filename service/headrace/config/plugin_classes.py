"""Whether a class is one of the kind that an option asks for, in Kafka Connect's words (``connect.md`` section 4.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from headrace.config.converter import CONVERTERS, HEADER_CONVERTERS, KNOWN_CONVERTERS, converter_class
from headrace.core.connect.suggestions import class_suggestion
from headrace.transforms.registry import find, predicates, transforms


def converter_problems(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What is wrong with the converters that a worker or a connector names: (option, message)."""
    for side, known in KNOWN_CONVERTERS.items():
        option = f"{side}.converter"
        name = properties.get(option)
        if name is not None and converter_class(name.strip(), known) is None:
            interface = "HeaderConverter" if side == "header" else "Converter"
            yield option, class_problem(option, name.strip(), interface, known)


def class_problem(option: str, name: str, interface: str, known: Iterable[str]) -> str:
    """What is wrong with a class that does not implement ``interface``: it is of another kind, or not here at all.

    ``known`` are those that do.
    """
    found = next(_classes_called(name), None)
    if found is not None:
        return f"Class class {found} does not implement the {interface} interface"
    refused = f"Invalid value {name} for configuration {option}: Class {name} could not be found."
    return f"{refused} {class_suggestion(name, known)}"


def _classes_called(name: str) -> Iterator[str]:
    """The classes of any kind that have this name, simple name or alias."""
    for known in (CONVERTERS, HEADER_CONVERTERS):
        if (converter := converter_class(name, known)) is not None:
            yield converter
    for classes in (transforms(), predicates()):
        if (found := find(name, classes)) is not None:
            yield found.class_name
