"""GSSAPI: Kerberos by aiokafka and the extra ``gssapi``, with the tickets of the Kerberos library."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from headrace.core.model.errors import ConfigError
from headrace_connectors.kafka.jaas import LOGIN, LoginModule

GSSAPI = "GSSAPI"
_SERVICE = "sasl.kerberos.service.name"
_OF_THE_LIBRARY = {
    "keyTab": "the environment variable KRB5_CLIENT_KTNAME",
    "principal": "the principal in that keytab",
    "ticketCache": "the environment variable KRB5CCNAME",
}
"""Options of Java's ``Krb5LoginModule`` that the Kerberos library takes from elsewhere."""


def kerberos_arguments(properties: Mapping[str, str], module: LoginModule) -> dict[str, Any]:
    """Return aiokafka's arguments. Raises ConfigError, which names the property."""
    if importlib.util.find_spec("gssapi") is None:
        raise ConfigError(
            f"sasl.mechanism: {GSSAPI} needs a package that is not installed; install it with "
            "pip install 'headrace[gssapi]'",
            "sasl.mechanism",
        )
    service = (properties.get(_SERVICE) or module.options.get("serviceName") or "").strip()
    if not service:
        raise ConfigError(
            f"{_SERVICE}: is not set; set the first part of the brokers' principal, often kafka", _SERVICE
        )
    for name, place in _OF_THE_LIBRARY.items():
        if name in module.options:
            raise ConfigError(f"{LOGIN}: {name} is not read by the Kerberos library; use {place}", LOGIN)
    return {"sasl_kerberos_service_name": service}
