"""The worker's options of its REST API: addresses, headers of answers, users, tokens, roles, limits.

``docs/security.md`` describes access. ``response.http.headers.config`` (KIP-577) has rules
``[action] [name]:[value]``, separated by commas; a rule whose value has a comma is put in double quotes. The actions
are ``set`` and ``add``, and ``setDate`` and ``addDate``, whose value is milliseconds from now.

Tests: ``tests/unit/config/test_worker.py``, ``tests/rest/``.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from headrace.core.connect.config_def import Importance, InvalidValue, Type, at_least
from headrace.core.connect.typed_options import option, seconds
from headrace.core.model.errors import ConfigError

DEFAULT_PORT = 8083
HTTP, HTTPS = "http", "https"


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on. An empty host means every interface, port 0 a free port."""

    scheme: str
    host: str
    port: int


def parsed_listeners(option: str, addresses: Sequence[str]) -> tuple[Listener, ...]:
    """Return the listeners of an option, in order. Raises ConfigError."""
    listeners = tuple(_listener(option, address.strip()) for address in addresses)
    fixed = [(listener.host, listener.port) for listener in listeners if listener.port]
    twice = next((place for place in fixed if fixed.count(place) > 1), None)
    if twice is not None:
        raise ConfigError(f"{option}: {twice[0]}:{twice[1]} is listed twice; remove one", option)
    return listeners


def advertised(listeners: Sequence[Listener], scheme: str | None) -> Listener:
    """Return the listener that other workers use: the first http one without ``scheme``, as in Kafka Connect.

    Raises ConfigError if there is none of the scheme.
    """
    name = "rest.advertised.listener"
    for wanted in (scheme,) if scheme else (HTTP, HTTPS):
        listener = next((listener for listener in listeners if listener.scheme == wanted), None)
        if listener is not None:
            return listener
    raise ConfigError(f"{name}: listeners has no {scheme} address; add one, or remove {name}", name)


def authority(host: str, port: int) -> str:
    """Return ``host:port`` as a URL contains it: with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _listener(option: str, address: str) -> Listener:
    try:
        url = urlsplit(address.lower())
        port = DEFAULT_PORT if url.port is None else url.port
    except ValueError as error:
        raise ConfigError(f"{option}: {address!r} is not http://host:port or https://host:port", option) from error
    if url.scheme not in (HTTP, HTTPS) or url.path.strip("/") or url.query or url.username is not None:
        raise ConfigError(f"{option}: {address!r} is not http://host:port or https://host:port", option)
    return Listener(url.scheme, url.hostname or "", port)


_ACTIONS = {action.lower(): action for action in ("set", "add", "setDate", "addDate")}


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """One header. ``replaces``: instead of the answer's own; the ``value`` of a date is milliseconds from now."""

    name: str
    value: str
    replaces: bool
    is_date: bool


def header_rules(text: str) -> tuple[HeaderRule, ...]:
    """Return the rules in order. Raises ValueError, which names the cause."""
    [rules] = csv.reader([text], skipinitialspace=True) if text.strip() else [[]]
    return tuple(map(_rule, rules))


def response_headers(name: str, value: Any) -> None:
    """Validate the option."""
    try:
        header_rules(str(value or ""))
    except ValueError as error:
        raise InvalidValue(f"Invalid value {value} for configuration {name}: {error}") from error


def _rule(text: str) -> HeaderRule:
    parts = text.split(None, 1)
    if len(parts) != 2:
        raise ValueError(f"Invalid format of header config '{text}'. Expected: '[action] [header name]:[header value]'")
    action = _ACTIONS.get(parts[0].lower())
    if action is None:
        expected = ", ".join(_ACTIONS.values())
        raise ValueError(f"Invalid header config action: '{parts[0]}'. Expected one of {expected}")
    name, colon, value = (part.strip() for part in parts[1].partition(":"))
    if not colon:
        raise ValueError(
            f"Invalid format of header name and header value pair '{parts[1]}'. "
            "Expected: '[header name]:[header value]'"
        )
    if not name or len(name.split()) > 1:
        raise ValueError(f"Invalid header name '{name}'. The '[header name]' cannot contain whitespace")
    is_date = action.endswith("Date")
    if is_date and not value.lstrip("-").isdecimal():
        raise ValueError(f"Invalid header config '{text}': the value of {action} is milliseconds from now")
    return HeaderRule(name, value, action.startswith("set"), is_date)


_LOW = Importance.LOW
BASIC_AUTH_EXTENSION = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
ROLES = ("read", "operate", "admin")
"""The roles. Each one includes those before it."""
_LOCAL = ("localhost", "127.0.0.1", "::1")


def _check_extensions(name: str, value: Any) -> None:
    for class_name in value or ():
        if class_name != BASIC_AUTH_EXTENSION:
            raise InvalidValue(
                f"Invalid value {class_name} for configuration {name}: it is a Java class; "
                f"only {BASIC_AUTH_EXTENSION} is known"
            )


def _check_user_roles(name: str, value: Any) -> None:
    try:
        user_roles(value or ())
    except ValueError as error:
        raise InvalidValue(f"Invalid value for configuration {name}: {error}") from error


def user_roles(entries: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return users with their roles from entries ``user:role``. Raises ValueError."""
    roles: dict[str, str] = {}
    for entry in entries:
        user, colon, role = entry.rpartition(":")
        if not colon or not user or role not in ROLES:
            raise ValueError(f"{entry!r} is not user:role with one of the roles {', '.join(ROLES)}")
        roles[user] = role
    return tuple(roles.items())


def _check_secure_url(name: str, value: Any) -> None:
    if value is not None and not is_secure_url(str(value)):
        raise InvalidValue(f"Invalid value {value} for configuration {name}: it must be an https URL")


def is_secure_url(url: str) -> bool:
    """Return whether nobody can change what is read from the URL: it is https, or on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in _LOCAL))


@dataclass(frozen=True, slots=True)
class BasicAuthSettings:
    """Users with passwords."""

    extensions: tuple[str, ...] = option(
        "rest.extension.classes",
        Type.LIST,
        (),
        f"{BASIC_AUTH_EXTENSION} requires a user and a password for every request. No other class is known.",
        validator=_check_extensions,
    )
    file: str | None = option(
        "rest.basic.auth.file",
        Type.STRING,
        None,
        "File of users and passwords, a line user=password for each, as Kafka Connect's PropertyFileLoginModule reads "
        "it. It may be a mounted Secret. A change of the file applies to the next request. Setting it requires "
        "authentication.",
    )
    roles: tuple[tuple[str, str], ...] = option(
        "rest.basic.auth.roles",
        Type.LIST,
        (),
        "Roles of users, as user:role. The roles are read, operate and admin. A user without an entry is an admin, as "
        "in Kafka Connect.",
        validator=_check_user_roles,
        read=user_roles,
    )

    @property
    def enabled(self) -> bool:
        return self.file is not None or bool(self.extensions)


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Bearer tokens of an OpenID provider."""

    issuer: str | None = option(
        "rest.oauth.issuer",
        Type.STRING,
        None,
        "Issuer (iss) of the JSON Web Tokens that requests may send as bearer tokens: the URL of an OpenID provider. "
        "Setting it requires authentication.",
        validator=_check_secure_url,
    )
    jwks_url: str | None = option(
        "rest.oauth.jwks.url",
        Type.STRING,
        None,
        "URL of the provider's public keys. By default the one in <issuer>/.well-known/openid-configuration.",
        _LOW,
        _check_secure_url,
    )
    audience: tuple[str, ...] = option(
        "rest.oauth.audience",
        Type.LIST,
        (),
        "A token must be for one of these audiences (aud). Required with rest.oauth.issuer: without it a token for any "
        "other service would be valid here.",
    )
    role_claim: str = option(
        "rest.oauth.role.claim",
        Type.STRING,
        "roles",
        "Claim with the roles of a caller: a list, or a text with spaces between them. A claim within a claim has a "
        "dot, such as realm_access.roles.",
    )
    read_roles: tuple[str, ...] = option(
        "rest.oauth.roles.read", Type.LIST, ("read",), "Values of the claim that give the role read."
    )
    operate_roles: tuple[str, ...] = option(
        "rest.oauth.roles.operate", Type.LIST, ("operate",), "Values of the claim that give the role operate."
    )
    admin_roles: tuple[str, ...] = option(
        "rest.oauth.roles.admin", Type.LIST, ("admin",), "Values of the claim that give the role admin."
    )
    principal_claim: str = option(
        "rest.oauth.principal.claim", Type.STRING, "sub", "Claim with the caller's name in the audit log.", _LOW
    )


@dataclass(frozen=True, slots=True)
class RestAccessSettings:
    """What is open without credentials, and limits of connections."""

    open_metrics: bool = option(
        "rest.metrics.anonymous",
        Type.BOOLEAN,
        False,
        "Whether /metrics answers without credentials if authentication is required. /health always does.",
    )
    connections: int = option(
        "rest.connections.max",
        Type.INT,
        1000,
        "Largest number of open connections. At the limit, the connection that has been idle the longest is closed.",
        _LOW,
        at_least(10),
    )
    receive_timeout: float = option(
        "rest.receive.timeout.ms",
        Type.LONG,
        30_000,
        "Time that a client has to send the head of a request, and again to send its body.",
        _LOW,
        at_least(1),
        read=seconds,
    )
