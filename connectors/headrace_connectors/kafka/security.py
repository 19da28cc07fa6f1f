"""The security properties of Kafka's clients: TLS and the login, as arguments of aiokafka.

Every ``ssl.*`` property of Kafka's Java client has its effect, or is refused or reported by name. Stores and versions
of TLS are those of ``headrace.config.tls``, so key and trust stores may be PEM, PKCS12 or JKS, and their files are read
again when they change.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Any

from headrace.config.tls import NO_EFFECT, REFUSED, TlsSettings, client_context
from headrace.core.connect.typed_options import definition
from headrace.core.model.errors import ConfigError
from headrace_connectors.kafka.jaas import LOGIN, LoginModule
from headrace_connectors.kafka.kerberos import GSSAPI, kerberos_arguments
from headrace_connectors.kafka.msk import MECHANISM, msk_tokens
from headrace_connectors.kafka.oauth import OAUTH_PROPERTIES, token_provider

log = logging.getLogger(__name__)

Properties = Mapping[str, str]

ARGUMENTS = (
    "security_protocol",
    "ssl_context",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_oauth_token_provider",
    "sasl_kerberos_service_name",
)
"""aiokafka's arguments for the security of a connection."""

_TLS = "ssl."
_TLS_PROPERTIES = {f"{_TLS}{key.name}" for key in definition(TlsSettings).keys}
_NO_EFFECT = {f"{_TLS}{name}": reason for name, reason in NO_EFFECT.items()}
_REFUSED = {f"{_TLS}{name}": reason for name, reason in REFUSED.items()}


def is_security(key: str) -> bool:
    """Return whether ``security_arguments`` handles a property."""
    return key.startswith(_TLS) or key == LOGIN or key in OAUTH_PROPERTIES


def security_arguments(properties: Properties) -> dict[str, Any]:
    """Return the arguments for TLS and login. Raises ConfigError, which names the property."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip()
    mechanism = properties.get("sasl.mechanism", "PLAIN").strip()
    _check_names(properties, mechanism)
    arguments: dict[str, Any] = {}
    if LOGIN in properties or protocol.startswith("SASL"):
        arguments.update(_login(properties, protocol, mechanism))
    if protocol.endswith("SSL"):
        arguments["ssl_context"] = client_context(properties)
    return arguments


def _login(properties: Properties, protocol: str, mechanism: str) -> dict[str, Any]:
    """Return the arguments for the mechanism. Raises ConfigError."""
    if mechanism == MECHANISM:
        return {"sasl_oauth_token_provider": msk_tokens(properties, LoginModule.of(properties.get(LOGIN, "")))}
    if mechanism == GSSAPI:
        return kerberos_arguments(properties, LoginModule.of(properties.get(LOGIN, "")))
    if mechanism == "OAUTHBEARER":
        module = LoginModule.of(properties.get(LOGIN, ""))
        return {"sasl_oauth_token_provider": token_provider(properties, module)}
    if LOGIN not in properties:
        raise ConfigError(f"{LOGIN}: is not set, and security.protocol={protocol} needs a login; set {LOGIN}", LOGIN)
    user, password = LoginModule.of(properties[LOGIN]).user_and_password()
    return {"sasl_plain_username": user, "sasl_plain_password": password}


def _check_names(properties: Properties, mechanism: str) -> None:
    for key in properties:
        if key in OAUTH_PROPERTIES and mechanism != "OAUTHBEARER":
            log.warning("Property %s has no effect: it applies to sasl.mechanism=OAUTHBEARER only", key)
        if not key.startswith(_TLS) or key in _TLS_PROPERTIES:
            continue
        if key in _NO_EFFECT:
            log.warning("Property %s has no effect: %s", key, _NO_EFFECT[key])
        elif key in _REFUSED:
            raise ConfigError(f"{key}: cannot be set: {_REFUSED[key]}", key)
        else:
            close = difflib.get_close_matches(key, _TLS_PROPERTIES, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"{key}: not a property of this client{hint}", key)
