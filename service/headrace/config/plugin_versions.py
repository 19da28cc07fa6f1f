"""Versions of plug-ins (KIP-891): each has one, so a range either holds it or is an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.config.converter import KNOWN_CONVERTERS, converter_class
from headrace.core.connect.version_range import InvalidVersionSpecification, VersionRange
from headrace.transforms.registry import aliases, find, predicates, transforms

Properties = Mapping[str, str | None]
_VERSION = "plugin.version"


def version_problem(plugin: str, wanted: str, version: str) -> str | None:
    """Why a plug-in of ``version`` is not what the range ``wanted`` asks for, or None."""
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
    """An error on the class and on the version for every plug-in of which another version is wanted.

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
    found = {("connector.class", f"connector.{_VERSION}"): properties.get("connector.class") or ""}
    for side, known in KNOWN_CONVERTERS.items():
        converter = converter_class(properties.get(f"{side}.converter") or "", known)
        if converter is not None:
            found[f"{side}.converter", f"{side}.converter.{_VERSION}"] = converter
    for kind, classes in (("transforms", transforms()), ("predicates", predicates())):
        for alias in aliases(properties, kind):
            plugin = find(properties.get(f"{kind}.{alias}.type") or "", classes)
            if plugin is not None:
                found[f"{kind}.{alias}.type", f"{kind}.{alias}.{_VERSION}"] = plugin.class_name
    return found
