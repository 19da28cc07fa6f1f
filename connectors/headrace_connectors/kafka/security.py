"""The security properties of Kafka's clients: TLS and the login, as arguments of aiokafka.

Every ``ssl.*`` property of Kafka's Java client has its effect, or is refused or reported by name. Stores and versions
of TLS are those of ``headrace.config.tls``, so key and trust stores may be PEM, PKCS12 or JKS, and their files are read
again when they change.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from typing import Any

from headrace.config.tls import NO_EFFECT, REFUSED, TlsSettings, client_context
from headrace.core.connect.typed_options import definition
from headrace.core.model.errors import ConfigError

log = logging.getLogger(__name__)

Properties = Mapping[str, str]

_TLS = "ssl."
LOGIN = "sasl.jaas.config"
_TLS_PROPERTIES = {f"{_TLS}{key.name}" for key in definition(TlsSettings).keys}
_NO_EFFECT = {f"{_TLS}{name}": reason for name, reason in NO_EFFECT.items()}
_REFUSED = {f"{_TLS}{name}": reason for name, reason in REFUSED.items()}
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"'][^\s;]*))""")


def is_security(key: str) -> bool:
    """Return whether ``security_arguments`` handles a property."""
    return key.startswith(_TLS) or key == LOGIN


def security_arguments(properties: Properties) -> dict[str, Any]:
    """Return the arguments for TLS and login. Raises ConfigError, which names the property."""
    _check_names(properties)
    arguments: dict[str, Any] = {}
    if LOGIN in properties:
        arguments.update(_jaas(properties[LOGIN]))
    if properties.get("security.protocol", "PLAINTEXT").strip().endswith("SSL"):
        arguments["ssl_context"] = client_context(properties)
    return arguments


def _check_names(properties: Properties) -> None:
    for key in properties:
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


def _jaas(text: str) -> dict[str, str]:
    """Return user and password of a Plain or Scram login module. Messages must not contain the text."""
    options = {name: next(filter(None, rest), "") for name, *rest in _JAAS_OPTION.findall(text)}
    if "username" not in options or "password" not in options:
        raise ConfigError(f'{LOGIN} needs a login module with username="…" and password="…"', LOGIN)
    unescaped = {name: re.sub(r"\\(.)", r"\1", options[name]) for name in ("username", "password")}
    return {"sasl_plain_username": unescaped["username"], "sasl_plain_password": unescaped["password"]}
