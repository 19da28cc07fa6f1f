"""Classes and versions of plug-ins: is a class of the kind that an option requires (``connect.md`` section 4.2)?

Each plug-in has one version, so that a range of versions (KIP-891) either contains it or is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from headrace.config.converter import CONVERTERS, HEADER_CONVERTERS, KNOWN_CONVERTERS, converter_class
from headrace.core.connect.typed_options import class_suggestion
from headrace.core.connect.version_range import InvalidVersionSpecification, VersionRange
from headrace.transforms.registry import aliases, find, predicates, transforms


def converter_problems(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What is wrong with the converters that a worker or a connector names: (option, message)."""
    for side, converters in KNOWN_CONVERTERS.items():
        option = f"{side}.converter"
        name = properties.get(option)
        if name is not None and converter_class(name.strip(), converters) is None:
            interface = "HeaderConverter" if side == "header" else "Converter"
            yield option, class_problem(option, name.strip(), interface, converters)


def class_problem(option: str, name: str, interface: str, classes: Iterable[str]) -> str:
    """What is wrong with a class that does not implement ``interface``: it is of another kind, or not here at all.

    ``classes`` are those that do.
    """
    implemented = next(_classes_called(name), None)
    if implemented is not None:
        return f"Class class {implemented} does not implement the {interface} interface"
    refused = f"Invalid value {name} for configuration {option}: Class {name} could not be found."
    return f"{refused} {class_suggestion(name, classes)}"


def _classes_called(name: str) -> Iterator[str]:
    """The classes of any kind that have this name, simple name or alias."""
    for converters in (CONVERTERS, HEADER_CONVERTERS):
        if (converter := converter_class(name, converters)) is not None:
            yield converter
    for classes in (transforms(), predicates()):
        if (plugin := find(name, classes)) is not None:
            yield plugin.class_name


Properties = Mapping[str, str | None]
_VERSION = "plugin.version"


def version_problem(plugin: str, wanted: str, version: str) -> str | None:
    """Return why the range ``wanted`` does not contain ``version`` of a plug-in, or None."""
    if wanted.strip() == "latest":
        return None
    try:
        versions = VersionRange.parse(wanted)
    except InvalidVersionSpecification:
        return f"Invalid version specification: {wanted}"
    if versions.contains(version):
        return None
    return f"Plugin {plugin} not found that matches the version range {versions}, available versions: [{version}]"


def version_problems(given: Mapping[str, str], inherited: Mapping[str, str], version: str) -> Iterator[tuple[str, str]]:
    """Yield an error at the class and at the version of every plug-in whose version is not the wanted one.

    ``inherited`` has the converters that count where ``given`` names none.
    """
    for (class_option, version_option), name in _plugins({**inherited, **given}).items():
        wanted = given.get(version_option)
        problem = version_problem(name, wanted, version) if wanted else None
        if problem is not None:
            yield class_option, problem
            yield version_option, problem


def version_options(properties: Properties) -> list[str]:
    """The options that say which version of a plug-in is wanted, of the connector's own and of what it inherits."""
    always = ["connector", *(f"{side}.converter" for side in KNOWN_CONVERTERS)]
    chosen = [version_option for _, version_option in _plugins(properties)]
    return list(dict.fromkeys([*(f"{part}.{_VERSION}" for part in always), *chosen]))


def _plugins(properties: Properties) -> dict[tuple[str, str], str]:
    """The classes that a configuration names, by the options that name class and version."""
    class_names = {("connector.class", f"connector.{_VERSION}"): properties.get("connector.class") or ""}
    for side, converters in KNOWN_CONVERTERS.items():
        converter = converter_class(properties.get(f"{side}.converter") or "", converters)
        if converter is not None:
            class_names[f"{side}.converter", f"{side}.converter.{_VERSION}"] = converter
    for kind, classes in (("transforms", transforms()), ("predicates", predicates())):
        for alias in aliases(properties, kind):
            plugin = find(properties.get(f"{kind}.{alias}.type") or "", classes)
            if plugin is not None:
                class_names[f"{kind}.{alias}.type", f"{kind}.{alias}.{_VERSION}"] = plugin.class_name
    return class_names
