"""The security properties of Kafka's clients: TLS and the login, as arguments of aiokafka.

Every ``ssl.*`` property of Kafka's Java client has its effect, or is refused or reported by name. Stores and versions
of TLS are those of ``headrace.config.tls``, so key and trust stores may be PEM, PKCS12 or JKS, and their files are read
again when they change. Logins are by user and password, by a token (``oauth.py``), by AWS's credentials (the extra
``msk``; MSK accepts AWS_MSK_IAM's tokens with the mechanism OAUTHBEARER) and by Kerberos (the extra ``gssapi``).

Tests: ``tests/unit/kafka/test_settings.py``, ``tests/unit/kafka/test_msk_and_kerberos.py``.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import logging
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from headrace.config import keys_without_effect
from headrace.config.tls import REFUSED, TlsSettings, client_context
from headrace.core.connect.typed_options import definition
from headrace.core.model.errors import ConfigError, Retriable
from headrace_connectors.kafka.oauth import LOGIN, OAUTH_PROPERTIES, RefreshWindow, TokenProvider, token_provider
from headrace_connectors.tokens import Token

_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"'][^\s;]*))""")


@dataclass(frozen=True, slots=True)
class LoginModule:
    """The options of a login module."""

    options: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, text: str) -> LoginModule:
        """Parse the property. The name of the module is not verified: the mechanism decides what it needs."""
        options = {name: next(filter(None, values), "") for name, *values in _OPTION.findall(text)}
        return cls({name: re.sub(r"\\(.)", r"\1", value) for name, value in options.items()})

    def user_and_password(self) -> tuple[str, str]:
        """Return the user and the password. Raises ConfigError."""
        if "username" not in self.options or "password" not in self.options:
            raise ConfigError(f'{LOGIN} needs a login module with username="…" and password="…"', LOGIN)
        return self.options["username"], self.options["password"]


AWS_MSK_IAM = "AWS_MSK_IAM"
_SIGNER = "aws_msk_iam_sasl_signer"
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::\d+)?$")
_WINDOW = RefreshWindow(factor=0.8, jitter=0.05, period=60, buffer=300)
_ADVICE = "allow kafka-cluster:Connect for the AWS identity of the worker"
_OPTIONS = ("awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsStsRegion", "awsDebugCreds")
"""The options of AWS's ``IAMLoginModule``. The last two have no effect."""
_NO_CREDENTIALS = ("NoCredentialsError", "ProfileNotFound", "PartialCredentialsError")
"""The names of botocore's errors."""


def is_msk(address: str) -> bool:
    return _HOST.search(address.strip()) is not None


def msk_tokens(properties: Mapping[str, str], module: LoginModule) -> TokenProvider:
    """Return the tokens of a client. Clients with equal properties share them. Raises ConfigError."""
    if importlib.util.find_spec(_SIGNER) is None:
        raise ConfigError(
            f"sasl.mechanism: {AWS_MSK_IAM} needs a package that is not installed; install it with "
            "pip install 'headrace[msk]'",
            "sasl.mechanism",
        )
    unknown = sorted(set(module.options) - set(_OPTIONS))
    if unknown:
        raise ConfigError(f"{LOGIN}: {unknown[0]} is not an option of the IAMLoginModule; remove it", LOGIN)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    for address in properties.get("bootstrap.servers", "").split(","):
        if match := _HOST.search(address.strip()):
            region = match[1]
            break
    if not region:
        raise ConfigError(
            "bootstrap.servers: contains no AWS region; use the names that MSK shows, or set the environment variable "
            "AWS_REGION",
            "bootstrap.servers",
        )
    names = (module.options.get(name) for name in ("awsProfileName", "awsRoleArn", "awsRoleSessionName"))
    return _provider(MskTokens(region, *names))


@lru_cache(maxsize=16)
def _provider(source: MskTokens) -> TokenProvider:
    return TokenProvider(source, _WINDOW, advice=_ADVICE)


@dataclass(frozen=True, slots=True)
class MskTokens:
    """Signed requests for the action kafka-cluster:Connect, which MSK accepts as tokens for 15 minutes."""

    region: str
    profile: str | None = None
    role: str | None = None
    role_session: str | None = None
    name: ClassVar[str] = "AWS credentials"

    def fetch(self) -> Token:
        """Sign a token. Raises ConfigError without credentials, Retriable if AWS does not give them."""
        signer = importlib.import_module(f"{_SIGNER}.MSKAuthTokenProvider")
        try:
            if self.role:
                session = self.role_session or "headrace"
                text, ends_ms = signer.generate_auth_token_from_role_arn(self.region, self.role, session)
            elif self.profile:
                text, ends_ms = signer.generate_auth_token_from_profile(self.region, self.profile)
            else:
                text, ends_ms = signer.generate_auth_token(self.region)
        except Exception as error:  # botocore's errors have no common base that needs no import of it
            cause = type(error).__name__
            if isinstance(error, ValueError) or cause in _NO_CREDENTIALS:
                raise ConfigError(
                    f"{LOGIN}: AWS credentials are missing ({cause}); give the worker a role, or set awsProfileName or "
                    "awsRoleArn",
                    LOGIN,
                ) from error
            raise Retriable(
                f"{self.name}: cannot be fetched: {cause}; check the role of the worker and the network to AWS"
            ) from error
        return Token(text, time.time(), ends_ms / 1000)


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


def is_security(key: str) -> bool:
    return key.startswith(_TLS) or key == LOGIN or key in OAUTH_PROPERTIES


def security_arguments(properties: Properties) -> dict[str, Any]:
    """Return the arguments for TLS and login. Raises ConfigError, which names the property."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip()
    mechanism = properties.get("sasl.mechanism", "PLAIN").strip()
    for key in properties:
        if key in OAUTH_PROPERTIES and mechanism != "OAUTHBEARER":
            log.warning("Property %s has no effect: it applies to sasl.mechanism=OAUTHBEARER only", key)
        if not key.startswith(_TLS) or key in _TLS_PROPERTIES:
            continue
        name = key.removeprefix(_TLS)
        if name in keys_without_effect.TLS:
            log.warning("Property %s has no effect: %s", key, keys_without_effect.TLS[name])
        elif name in REFUSED:
            raise ConfigError(f"{key}: cannot be set: {REFUSED[name]}", key)
        else:
            close = difflib.get_close_matches(key, _TLS_PROPERTIES, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"{key}: not a property of this client{hint}", key)
    arguments: dict[str, Any] = {}
    if LOGIN in properties or protocol.startswith("SASL"):
        arguments.update(_login(properties, protocol, mechanism))
    if protocol.endswith("SSL"):
        arguments["ssl_context"] = client_context(properties)
    return arguments


def _login(properties: Properties, protocol: str, mechanism: str) -> dict[str, Any]:
    """Return the arguments for the mechanism. Raises ConfigError."""
    if mechanism == AWS_MSK_IAM:
        return {"sasl_oauth_token_provider": msk_tokens(properties, LoginModule.of(properties.get(LOGIN, "")))}
    if mechanism == GSSAPI:
        return kerberos_arguments(properties, LoginModule.of(properties.get(LOGIN, "")))
    if mechanism == "OAUTHBEARER":
        module = LoginModule.of(properties.get(LOGIN, ""))
        return {"sasl_oauth_token_provider": token_provider(properties, module.options)}
    if LOGIN not in properties:
        raise ConfigError(f"{LOGIN}: is not set, and security.protocol={protocol} needs a login; set {LOGIN}", LOGIN)
    user, password = LoginModule.of(properties[LOGIN]).user_and_password()
    return {"sasl_plain_username": user, "sasl_plain_password": password}
