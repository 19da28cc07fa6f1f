"""The worker's options of access to the REST API: users, tokens, roles, limits (``docs/security.md``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from headrace.core.connect.config_def import Importance, Type
from headrace.core.connect.config_validators import InvalidValue, at_least
from headrace.core.connect.typed_options import option, seconds

_LOW = Importance.LOW
BASIC_AUTH_EXTENSION = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
ROLES = ("read", "operate", "admin")
"""The roles. Each one includes those before it."""
_LOCAL = ("localhost", "127.0.0.1", "::1")


def _known_extensions(name: str, value: Any) -> None:
    for each in value or ():
        if each != BASIC_AUTH_EXTENSION:
            raise InvalidValue(
                f"Invalid value {each} for configuration {name}: it is a Java class; "
                f"only {BASIC_AUTH_EXTENSION} is known"
            )


def _user_roles(name: str, value: Any) -> None:
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


def _secure_url(name: str, value: Any) -> None:
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
        validator=_known_extensions,
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
        validator=_user_roles,
        read=user_roles,
    )

    @property
    def enabled(self) -> bool:
        """Whether users may authenticate with passwords."""
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
        validator=_secure_url,
    )
    jwks_url: str | None = option(
        "rest.oauth.jwks.url",
        Type.STRING,
        None,
        "URL of the provider's public keys. By default the one in <issuer>/.well-known/openid-configuration.",
        _LOW,
        _secure_url,
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
