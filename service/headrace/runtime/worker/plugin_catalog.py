"""The plug-ins that ``/connector-plugins`` lists, in Kafka Connect's order (``connect.md`` section 6.1).

Kafka Connect never lists config providers, although it accepts their class names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace import __version__
from headrace.config.converter import CONVERTERS, HEADER_CONVERTERS, converter_class
from headrace.config.plugin_versions import version_problem
from headrace.core.connect.config_def import ConfigDef
from headrace.core.model.errors import RestError
from headrace.runtime.worker.sink_connector import LakehouseSinkConnector
from headrace.transforms.registry import find, predicates, transforms

_NEVER_LISTED = "org.apache.kafka.common.config.provider."


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """The class, type and version of a plug-in."""

    class_name: str
    type: str
    version: str


class PluginCatalog:
    """The plug-ins of a worker."""

    def __init__(self, connector: LakehouseSinkConnector) -> None:
        self._connector = connector

    def listed(self, *, connectors_only: bool) -> list[PluginInfo]:
        """Return the connector, or all plug-ins."""
        listed = [PluginInfo(self._connector.class_name, self._connector.type, self._connector.version)]
        if not connectors_only:
            groups: Sequence[tuple[str, Iterable[str]]] = (
                ("transformation", transforms()),
                ("predicate", predicates()),
                ("converter", sorted(CONVERTERS)),
                ("header_converter", sorted(HEADER_CONVERTERS)),
            )
            listed += [PluginInfo(name, plugin_type, __version__) for plugin_type, names in groups for name in names]
        return listed

    def definitions(self, name: str, version: str | None = None) -> ConfigDef:
        """Return the options of a class, given its name or alias.

        Raises RestError 404, and 400 if ``version`` excludes the class's version.
        """
        if name in self._connector.names:
            _check_version(self._connector.class_name, version, self._connector.version)
            return self._connector.definitions()
        converters = {**HEADER_CONVERTERS, **CONVERTERS}
        converter = converter_class(name, converters)
        if converter is not None:
            _check_version(converter, version, __version__)
            return converters[converter]
        found = find(name, transforms()) or find(name, predicates())
        if found is not None:
            _check_version(found.class_name, version, __version__)
            return found.options
        if name.startswith(_NEVER_LISTED):
            types = "sink, source, converter, header_converter, transformation, predicate"
            raise RestError(f"Invalid plugin class {name}. Valid types are {types}.", 400)
        raise RestError(f"Unknown plugin {name}.", 404)


def _check_version(name: str, wanted: str | None, version: str) -> None:
    problem = None if wanted is None else version_problem(name, wanted, version)
    if problem is not None:
        raise RestError(problem, 400)
