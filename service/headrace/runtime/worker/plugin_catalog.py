"""What ``/connector-plugins`` lists, in Connect's order (``connect.md`` section 6.1).

Config providers are classes to Connect as well, which are never listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace import __version__
from headrace.config.converter import CONVERTERS, HEADER_CONVERTERS, converter_class
from headrace.config.plugin_versions import version_problem
from headrace.config.validation import WorkerDefaults
from headrace.core.connect.config_def import ConfigDef
from headrace.core.model.errors import RestError
from headrace.runtime.worker.plugins import Plugins
from headrace.transforms.registry import PREDICATES, TRANSFORMS, find

_NEVER_LISTED = "org.apache.kafka.common.config.provider."


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """A class, what kind of plug-in it is, and its version."""

    class_name: str
    type: str
    version: str


class PluginCatalog:
    """The plug-ins of a worker that gives its connectors ``defaults``."""

    def __init__(self, plugins: Plugins, defaults: WorkerDefaults) -> None:
        self._plugins = plugins
        self._defaults = defaults

    def listed(self, *, connectors_only: bool) -> list[PluginInfo]:
        """The connectors, or everything."""
        connectors = [PluginInfo(each.class_name, each.type, each.version) for each in self._plugins.connectors]
        return connectors if connectors_only else [*connectors, *_transforms(), *_converters()]

    def definitions(self, name: str, version: str | None = None) -> ConfigDef:
        """The options of a class, known by its name or alias. Raises RestError 404, and 400 for another ``version``."""
        connector = self._plugins.find(name)
        if connector is not None:
            _check_version(connector.class_name, version, connector.version)
            return connector.definitions(self._defaults)
        converters = {**HEADER_CONVERTERS, **CONVERTERS}
        converter = converter_class(name, converters)
        if converter is not None:
            _check_version(converter, version, __version__)
            return converters[converter]
        found = find(name, TRANSFORMS) or find(name, PREDICATES)
        if found is not None:
            _check_version(found.class_name, version, __version__)
            return found.options
        if name.startswith(_NEVER_LISTED):
            kinds = "sink, source, converter, header_converter, transformation, predicate"
            raise RestError(f"Invalid plugin class {name}. Valid types are {kinds}.", 400)
        raise RestError(f"Unknown plugin {name}.", 404)


def _transforms() -> Iterator[PluginInfo]:
    for kind, classes in (("transformation", TRANSFORMS), ("predicate", PREDICATES)):
        yield from (PluginInfo(name, kind, __version__) for name in classes)


def _converters() -> Iterator[PluginInfo]:
    kinds: Sequence[tuple[str, dict[str, ConfigDef]]] = (
        ("converter", CONVERTERS),
        ("header_converter", HEADER_CONVERTERS),
    )
    for kind, classes in kinds:
        yield from (PluginInfo(name, kind, __version__) for name in sorted(classes))


def _check_version(name: str, wanted: str | None, version: str) -> None:
    problem = None if wanted is None else version_problem(name, wanted, version)
    if problem is not None:
        raise RestError(problem, 400)
