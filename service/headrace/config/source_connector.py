"""The source connector of a sink connector's topics: where its REST API is. Only a configuration names it.

A request must not: each user with the right to operate a connector could then make the worker send requests to any
address of its network.

Tests: ``tests/unit/config/test_source_connector_options.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from headrace.core.connect.config_def import Importance, InvalidValue, Type
from headrace.core.connect.typed_options import option
from headrace.core.model.errors import ConfigError

URL = "source.connector.url"
_FORM = "http://host:port/connectors/NAME"
_LOW = Importance.LOW


@dataclass(frozen=True, slots=True)
class SourceConnectorAddress:
    """The REST API of a Kafka Connect worker, and the name of a connector there."""

    base: str
    name: str


def source_connector_address(url: str, option: str = URL) -> SourceConnectorAddress:
    """Return the parts of ``http://host:port/connectors/NAME``. Raises ConfigError, without the text of the URL.

    ``option`` is where the URL is from.
    """
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        has_host = False
    base, found, name = url.rstrip("/").rpartition("/connectors/")
    if not has_host or parts.scheme not in ("http", "https") or not found or not name or {"/", "?", "#"} & set(name):
        raise ConfigError(f"{option}: is not the address of a connector; set it to {_FORM}", option)
    if parts.username is not None:
        raise ConfigError(
            f"{option}: contains credentials; set source.connector.user and source.connector.password, with {URL}",
            option,
        )
    return SourceConnectorAddress(base, unquote(name))


def _check_url(name: str, value: Any) -> None:
    if value:
        try:
            source_connector_address(value)
        except ConfigError as error:
            raise InvalidValue(f"Invalid value for configuration {name}: {error}") from error


@dataclass(frozen=True, slots=True)
class SourceConnectorSettings:
    """How to reach the source connector that writes the topics. All are empty without one."""

    url: str = option(
        URL,
        Type.STRING,
        "",
        f"The Debezium connector that writes the topics, in the REST API of its Kafka Connect worker: {_FORM}. POST "
        "/connectors/<name>/tables/<table>/resnapshot needs it, and reads configuration, status and offsets there; the "
        "doctor checks its settings and release. It is an option because a request must not choose which addresses the "
        "worker contacts.",
        validator=_check_url,
    )
    user: str = option("source.connector.user", Type.STRING, "", "User of that REST API.", _LOW)
    password: str | None = option("source.connector.password", Type.PASSWORD, None, "Password of that user.", _LOW)
    token: str | None = option(
        "source.connector.token", Type.PASSWORD, None, "Bearer token for that REST API, in place of a user.", _LOW
    )
    authorities: str = option(
        "source.connector.ssl.ca.location",
        Type.STRING,
        "",
        "PEM file of the authorities to trust for https, in place of those of the system.",
        _LOW,
    )
