"""Validation of a connector's configuration, with Kafka Connect's messages (``connect.md`` section 4).

It needs no running worker, so REST requests and ``headrace validate`` give the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.config.other_sinks import migration
from headrace.config.validation import is_secret
from headrace.core.connect.config_def import ConfigInfos
from headrace.core.connect.suggestions import suggestion
from headrace.core.model.errors import RestError
from headrace.runtime.worker.sink_connector import ConnectorCheck, LakehouseSinkConnector

Config = dict[str, str]
Properties = Mapping[str, str | None]

_CLOSING_LINE = (
    "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)
_ELSEWHERE = "Set LakehouseSink, and run other connectors, such as Debezium's source connectors, in Kafka Connect."


class ConnectorValidator:
    """Validates configurations for workers with this connector class."""

    def __init__(self, connector: LakehouseSinkConnector, checks: Sequence[ConnectorCheck] = ()) -> None:
        self._connector = connector
        self._checks = checks

    def validate(self, plugin: str, config: Properties) -> ConfigInfos:
        """Validate a configuration. ``plugin`` is the class in the request's path.

        Raises RestError if the configuration names another class.
        """
        name = config.get("connector.class")
        if name is not None and not name.removesuffix("Connector").endswith(plugin.removesuffix("Connector")):
            raise RestError(f"Included connector type {name} does not match request type {plugin}", 400)
        try:
            self.check_class(config)
        except RestError as error:  # Connect returns these as internal errors on this endpoint only
            prefix = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException: "
            raise RestError(prefix + str(error), 500) from error
        return self._connector.validate(config, self._checks)

    def valid_config(self, config: Properties) -> Config:
        """Return the configuration without nulls. Raises RestError 400 with all errors."""
        self.check_class(config)
        errors = self._connector.validate(config, self._checks).errors()
        if errors:
            head = f"Connector configuration is invalid and contains the following {len(errors)} error(s):"
            raise RestError("\n".join([head, *errors, _CLOSING_LINE]), 400)
        return {key: value for key, value in config.items() if value is not None}

    def check_class(self, config: Properties) -> None:
        """Raise RestError 400 if ``connector.class`` is missing or names no class of this worker."""
        name = config.get("connector.class")
        if name is None:
            shown = ", ".join(f"{key}={value}" for key, value in config.items() if not is_secret(key))
            raise RestError(f"Connector config {{{shown}}} contains no connector type", 400)
        connector = self._connector
        if not connector.runs(config):
            raise RestError(
                f"Failed to find any class that implements Connector and which name matches {name}, "
                f"available connectors are: PluginDesc{{klass=class {connector.class_name}, "
                f"name='{connector.class_name}', version='{connector.version}', type={connector.type}}}. "
                f"{migration(name, config) or suggestion(name, connector.names, _ELSEWHERE)}",
                400,
            )
