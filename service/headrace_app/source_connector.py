"""Read Debezium's connector: from Kafka Connect's REST API, or from a file.

Tests: ``tests/unit/app/test_source_connector.py``, ``tests/integration/test_doctor_debezium.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

from headrace.config.source_connector import SourceConnectorSettings
from headrace.core.doctor.source_connector import SourceConnector, source_connector
from headrace.core.model.errors import ConfigError
from headrace.rest.source_connector import examined_source_connector

_OPTION = "--debezium"
_FORM = "http://host:port/connectors/NAME, or a file with the connector's JSON"


def read_source_connector(address: str | None, settings: SourceConnectorSettings) -> SourceConnector | None:
    """Return the connector at ``address``, the URL of its REST resource or the path of a file.

    A file contains the answer of that resource or only the configuration; ``version`` beside the configuration is the
    version of the plug-in. Without an address it is the connector of ``settings``, None if there is none. Raises
    ConfigError, or Retriable if the worker does not answer.
    """
    if address is None:
        return examined_source_connector(settings)
    if address.startswith(("http://", "https://")):  # perhaps of another server, which must not get the credentials
        return examined_source_connector(SourceConnectorSettings(url=address), _OPTION)
    try:
        return source_connector(json.loads(Path(address).read_text(encoding="utf-8")), Path(address).stem)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{_OPTION}: {address}: cannot be read: {error}; give it {_FORM}") from error
    except ConfigError as error:
        raise ConfigError(f"{_OPTION}: {address}: {error}; give it {_FORM}") from error
