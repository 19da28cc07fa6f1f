"""The source connector of a sink connector's topics, in the REST API of its Kafka Connect worker.

Tests: ``tests/rest/test_resnapshots.py``, ``tests/rest/test_doctor.py``, ``tests/integration/test_doctor_debezium.py``.
"""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from headrace.config.source_connector import URL, SourceConnectorSettings, source_connector_address
from headrace.core.doctor import source_connector as examined
from headrace.core.model.errors import ConfigError, RestError, Retriable
from headrace.rest.client import ConnectClient, Credentials
from headrace.runtime.resnapshot.source_connector import SourceConnector

_ANSWER_SECONDS = 15.0
"""Requests of the worker's own REST API wait for a few of these answers, within ``rest.request.timeout.ms``."""


def configured_source_connector(settings: SourceConnectorSettings, option: str = URL) -> SourceConnector:
    """Return the source connector of ``source.connector.*``. Raises ConfigError if that is not set or not usable.

    It raises Retriable if its worker does not answer, and ConfigError if that worker refuses. ``option`` is where the
    URL is from.
    """
    if not settings.url:
        raise ConfigError(
            f"{option}: is not set; set it to the Debezium connector that writes the topics "
            "(http://host:port/connectors/NAME)",
            option,
        )
    address = source_connector_address(settings.url, option)
    authorities = Path(settings.authorities) if settings.authorities else None
    credentials = Credentials(settings.user or None, settings.password, settings.token, authorities)
    login = "source.connector.user and source.connector.password, or source.connector.token"
    if option != URL:
        login = f"{URL} with {login}, in place of {option}"
    client = ConnectClient(address.base, credentials, option, login, _ANSWER_SECONDS)

    def get(path: str) -> Any:
        try:
            return client.get(path)
        except ConfigError as error:  # it does not answer
            raise Retriable(str(error)) from error
        except RestError as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or error.status == HTTPStatus.CONFLICT:
                raise Retriable(f"source connector {address.name}: {error}") from error
            raise ConfigError(f"source connector {address.name}: {error}; check {option}", option) from error

    return SourceConnector(address.name, get)


def examined_source_connector(settings: SourceConnectorSettings, option: str = URL) -> examined.SourceConnector | None:
    """Return the settings of the source connector and the release of its plug-in; None if no URL is set.

    Raises ConfigError and Retriable like ``configured_source_connector``, and ConfigError for another connector than
    Debezium's.
    """
    if not settings.url:
        return None
    source = configured_source_connector(settings, option)
    document = source.document()
    try:
        connector = examined.source_connector(document, source.name)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}", option) from error
    return replace(connector, version=source.plugin_version(connector.config["connector.class"]))
