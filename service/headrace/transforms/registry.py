"""The registry of transforms and predicates, and the construction of a chain from a configuration.

Other packages add classes by the entry points ``headrace.transforms`` and ``headrace.predicates``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from headrace.core.connect.config_def import parse_list
from headrace.core.connect.typed_options import below, parse_options
from headrace.core.model.errors import ConfigError
from headrace.extensions import ExtensionPoint
from headrace.transforms import apache, debezium
from headrace.transforms.chain import Chain, Link
from headrace.transforms.options import REPLACE_NULL, PluginClass, PluginClasses, Selection, Values
from headrace.transforms.record import Predicate

_TRANSFORMS: ExtensionPoint[PluginClasses] = ExtensionPoint("transforms", parameters=0)
_PREDICATES: ExtensionPoint[PluginClasses] = ExtensionPoint("predicates", parameters=0)
REFUSED = debezium.SCRIPTS | debezium.NOT_FOR_SINKS | debezium.OF_THE_JDBC_SINK
"""Known classes that are rejected, with the remedy."""

_ENVELOPES = "Debezium's envelopes are read without it; remove it"
_THIRD_PARTY = "this class is not supported; apply it at the source connector, or use one of docs/transforms.md"
_OF_OTHERS = {
    "org.apache.iceberg.connect.transforms.DebeziumTransform": _ENVELOPES,
    "io.tabular.iceberg.connect.transforms.DebeziumTransform": _ENVELOPES,
    "org.apache.iceberg.connect.transforms.": _THIRD_PARTY,
    "io.tabular.iceberg.connect.transforms.": _THIRD_PARTY,
    "io.confluent.connect.transforms.": _THIRD_PARTY,
    "io.aiven.kafka.connect.transforms.": _THIRD_PARTY,
    "com.github.jcustenborder.kafka.connect.transform.": _THIRD_PARTY,
}
"""The remedy for classes of known third parties, by the prefix of their names."""


@cache
def transforms() -> Mapping[str, PluginClass]:
    """Return the transforms by class name, in the order of the names. Raises ConfigError for an unusable extension."""
    return _by_name((*apache.TRANSFORMS, *debezium.TRANSFORMS), _TRANSFORMS)


@cache
def predicates() -> Mapping[str, PluginClass]:
    """Return the predicates by class name, in the order of the names. Raises ConfigError for an unusable extension."""
    return _by_name(apache.PREDICATES, _PREDICATES)


def check_extensions() -> None:
    transforms()
    predicates()


def _by_name(own: Iterable[PluginClass], extensions: ExtensionPoint[PluginClasses]) -> dict[str, PluginClass]:
    classes = {plugin.class_name: plugin for plugin in own}
    for name, classes_of in extensions.load_all().items():
        for added in classes_of():
            if not isinstance(added, PluginClass):
                raise extensions.unusable(name, f"it returned an object of type {type(added).__name__}, no PluginClass")
            classes.setdefault(added.class_name, added)
    return dict(sorted(classes.items()))


def refusal(name: str) -> str | None:
    """Return why a class is rejected, and the remedy; None for an unknown class."""
    return REFUSED.get(name) or next((step for begin, step in _OF_OTHERS.items() if name.startswith(begin)), None)


def find(name: str, classes: Mapping[str, PluginClass]) -> PluginClass | None:
    """Return the class with a full or simple name; of two with one simple name Kafka's own."""
    simple = [plugin for plugin in classes.values() if plugin.simple_name == name]
    return classes.get(name) or (simple[-1] if simple else None)


def chain(properties: Mapping[str, str]) -> Chain:
    """Create the chain of a connector's configuration. Raises ConfigError, which names the option."""
    chosen: dict[str, Predicate] = {}
    varying: dict[str, str] = {}  # by prefix
    for alias in aliases(properties, "predicates"):
        prefix = f"predicates.{alias}."
        plugin_class = _plugin_class(properties, prefix, predicates())
        values = plugin_class.options.parse(below(properties, prefix))
        chosen[alias] = _create(plugin_class, values, prefix)
        if (reason := plugin_class.varies(values)) is not None:
            varying[prefix] = f"predicates.{alias} ({plugin_class.simple_name}): {reason}"
    links, classes, prefixes, defaulting, reasons = [], [], None, [], []
    for alias in aliases(properties, "transforms"):
        prefix = f"transforms.{alias}."
        plugin_class = _plugin_class(properties, prefix, transforms())
        given = below(properties, prefix)
        values, selection = plugin_class.options.parse(given), parse_options(Selection, given)
        if selection.predicate is not None and selection.predicate not in chosen:
            listed = ", ".join(chosen) or "none"
            raise ConfigError(
                f"{prefix}predicate: predicate {selection.predicate!r} is unknown; predicates names {listed}: correct "
                "the name, or add it to predicates",
                f"{prefix}predicate",
            )
        predicate = None if selection.predicate is None else chosen[selection.predicate]
        links.append(
            Link(alias, plugin_class.class_name, _create(plugin_class, values, prefix), predicate, selection.negate)
        )
        classes.append(plugin_class)
        if "add.fields.prefix" in values:  # of several the last counts
            prefixes = values["add.fields.prefix"], values["add.headers.prefix"]
        if values.get(REPLACE_NULL):
            defaulting.append(alias)
        if (reason := plugin_class.varies(values)) is not None:
            reasons.append(f"transforms.{alias} ({plugin_class.simple_name}): {reason}")
        if (reason := varying.get(f"predicates.{selection.predicate}.")) is not None:
            reasons.append(reason)
    merges, keeps_cells = any(plugin.merges for plugin in classes), all(plugin.keeps_cells for plugin in classes)
    own = {name: text for name, text in properties.items() if name.startswith(("transforms", "predicates"))}
    unequal = tuple(dict.fromkeys(reasons))
    return Chain(tuple(links), merges, keeps_cells, prefixes, tuple(defaulting), unequal, own)


def aliases(properties: Mapping[str, str | None], option_name: str) -> list[str]:
    """Return the aliases of ``transforms`` or ``predicates``, without duplicates."""
    return list(dict.fromkeys(alias for alias in parse_list(properties.get(option_name) or "") if alias))


def _plugin_class(properties: Mapping[str, str], prefix: str, classes: Mapping[str, PluginClass]) -> PluginClass:
    name = properties.get(f"{prefix}type", "")
    plugin_class = find(name, classes)
    if plugin_class is None:
        reason = refusal(name) or "the class is unknown; use one of docs/transforms.md"
        raise ConfigError(f"{prefix}type: {name}: {reason}", f"{prefix}type")
    return plugin_class


def _create(plugin: PluginClass, values: Values, prefix: str) -> Any:
    try:
        return plugin.make(values)
    except ValueError as error:
        raise ConfigError(f"{prefix}type: {plugin.simple_name}: {error}", f"{prefix}type") from error
