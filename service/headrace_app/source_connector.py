"""Read Debezium's connector: from Kafka Connect's REST API, or from a file.

Tests: ``tests/unit/app/test_source_connector.py``, ``tests/integration/test_doctor_debezium.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headrace.core.doctor.source_connector import SourceConnector
from headrace.core.model.errors import ConfigError, Retriable
from headrace.runtime.http_client import HttpClient, TooLarge

_SECONDS = 30.0
_OPTION = "--debezium"
_FORM = "http://host:port/connectors/NAME, or a file with the connector's JSON"


def read_source_connector(address: str) -> SourceConnector:
    """Return the connector at ``address``, the URL of its REST resource or the path of a file.

    A file contains the answer of that resource or only the configuration; ``version`` beside the configuration is the
    version of the plug-in. Raises ConfigError, or Retriable if the worker does not answer.
    """
    if address.startswith(("http://", "https://")):
        return _from_rest(address.rstrip("/"))
    try:
        document = json.loads(Path(address).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{_OPTION}: {address}: cannot be read: {error}; give it {_FORM}") from error
    return _connector(address, document)


def _from_rest(url: str) -> SourceConnector:
    if urlsplit(url).username is not None:
        raise ConfigError(f"{_OPTION}: the URL contains credentials; get the JSON with another client, and give a file")
    base, found, name = url.rpartition("/connectors/")
    if not found or not name or "/" in name:
        raise ConfigError(f"{_OPTION}: {url} is not the address of a connector; give it {_FORM}")
    connector = _connector(url, _get(url))
    plugins = _get(f"{base}/connector-plugins")
    versions = {
        plugin.get("class"): plugin.get("version")
        for plugin in (plugins if isinstance(plugins, list) else ())
        if isinstance(plugin, dict)
    }
    version = versions.get(connector.config["connector.class"])
    return SourceConnector(connector.name, connector.config, version)


def _get(url: str) -> Any:
    try:
        answer = HttpClient(_SECONDS).send("GET", url, {"Accept": "application/json"})
    except (OSError, TooLarge) as error:
        raise Retriable(f"{url}: does not answer: {str(error) or type(error).__name__}") from error
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise ConfigError(
            f"{url}: refused ({answer.status}); get it with a client that has credentials, "
            f"for example: curl -u USER {url} | headrace doctor … {_OPTION} /dev/stdin"
        )
    if answer.status == HTTPStatus.NOT_FOUND:
        raise ConfigError(f"{url}: Kafka Connect has no such connector; correct {_OPTION}")
    if answer.status != HTTPStatus.OK:
        raise Retriable(f"{url}: answered with status {answer.status}")
    try:
        return json.loads(answer.body)
    except ValueError as error:
        raise ConfigError(f"{url}: the answer is not JSON; give {_OPTION} {_FORM}") from error


def _connector(address: str, document: object) -> SourceConnector:
    """Return the connector of a JSON document. Raises ConfigError if it is none of Debezium's."""
    fields: Mapping[str, Any] = document if isinstance(document, dict) else {}
    config = fields.get("config", fields)
    if not isinstance(config, dict) or not isinstance(config.get("connector.class"), str):
        raise ConfigError(f"{_OPTION}: {address}: has no connector.class; give it {_FORM}")
    texts = {str(key): str(value) for key, value in config.items() if value is not None}
    version = fields.get("version") if "config" in fields else None
    source = SourceConnector(
        str(fields.get("name") or texts.get("name") or Path(address).stem), texts, str(version) if version else None
    )
    if not source.system:
        raise ConfigError(f"{_OPTION}: {address}: {texts['connector.class']} is not a connector of Debezium")
    return source
