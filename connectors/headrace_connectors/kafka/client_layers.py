"""The properties of a connector's clients, layer by layer, and which brokers receive the worker's credentials.

The worker's own connection properties come first, then its ``consumer.*`` (``producer.*``, ``admin.*``), then the
connector's ``consumer.override.*``. The first two are the operator's. The author of a connector must not obtain the
worker's credentials by sending them to other brokers, or in a form that others can read
(``docs/decisions/credentials.md``).
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.config.kafka import KafkaSettings
from headrace.core.model.errors import ConfigError
from headrace_connectors.kafka.msk import MECHANISM, is_msk

Properties = Mapping[str, str]

BROKERS = "bootstrap.servers"
_PROTOCOL, _LOGIN = "security.protocol", "sasl.jaas.config"
_SECRET = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a name
_CREDENTIALS = (_LOGIN, _SECRET, "sasl.oauthbearer.client.credentials.client.id")
"""The properties with the credentials of a login. They count as one: a connector has its own, or the worker's."""
_OF_THE_MACHINE = (MECHANISM, "GSSAPI")
"""The mechanisms with credentials of the worker's machine, which no property contains."""
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - a name
_SECURITY_PREFIXES = ("security.protocol", "sasl.", "ssl.")
_DEFAULTS = {_PROTOCOL: "PLAINTEXT"}


def client_properties(worker: Properties, client: str, settings: KafkaSettings) -> dict[str, str]:
    """Return the properties of the connector's ``client`` (``consumer``, ``producer`` or ``admin``).

    Raises ConfigError with the override if the worker's credentials would reach brokers that the connector names, or
    would be sent with other security settings than the worker's.
    """
    inherited = {**connection(worker), **under(f"{client}.", worker)}
    return overridden(inherited, settings, client)


def overridden(inherited: Properties, settings: KafkaSettings, client: str) -> dict[str, str]:
    """Return ``inherited`` with the connector's properties below ``prefix``. Raises ConfigError as above."""
    own, prefix = settings.overrides(client), f"{client}.override."
    if _is_token_file(own):
        raise ConfigError(
            f"{prefix}{_TOKEN_URL}: a connector cannot name a file, because it would send the file's content to its "
            "brokers; use a token endpoint, or set it in the worker's configuration",
            f"{prefix}{_TOKEN_URL}",
        )
    if names_other_brokers(inherited, own):
        _check_own_security(inherited, own, prefix)
        _check_msk(own, prefix)
        return {**without_security(inherited), **own}
    _check_inherited_login(inherited, own, prefix)
    if _has_login(own):
        inherited = {key: value for key, value in inherited.items() if key not in _CREDENTIALS}
    return {**inherited, **own}


def names_other_brokers(inherited: Properties, own: Properties) -> bool:
    """Return whether ``own`` properties have addresses that are not among the inherited ones."""
    return BROKERS in own and not _addresses(own) <= _addresses(inherited)


def without_security(properties: Properties) -> dict[str, str]:
    """Return the properties without credentials, certificates and security protocol."""
    return {key: value for key, value in properties.items() if not key.startswith(_SECURITY_PREFIXES)}


def connection(properties: Properties) -> dict[str, str]:
    """Return the properties with the brokers' addresses and the credentials."""
    return {key: value for key, value in properties.items() if key.startswith((BROKERS, *_SECURITY_PREFIXES))}


def under(prefix: str, properties: Properties) -> dict[str, str]:
    """Return the properties below ``prefix``, with the prefix removed."""
    return {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}


def _check_own_security(inherited: Properties, own: Properties, prefix: str) -> None:
    """Require a security protocol: without one, the data of a secured worker would be sent without encryption."""
    if _value(inherited, _PROTOCOL) != "PLAINTEXT" and _PROTOCOL not in own:
        raise ConfigError(
            f"{prefix}{BROKERS}: the worker's security settings are not sent to brokers that a connector names; set "
            f"{prefix}{_PROTOCOL} and what it needs ({prefix}sasl.*, {prefix}ssl.*), or remove {prefix}{BROKERS}",
            f"{prefix}{BROKERS}",
        )
    if _value(own, _PROTOCOL).startswith("SASL") and not _has_login(own):
        raise ConfigError(
            f"{prefix}{BROKERS}: the worker's credentials are not sent to brokers that a connector names; set "
            f"{prefix}{_LOGIN}",
            f"{prefix}{BROKERS}",
        )


def _check_msk(own: Properties, prefix: str) -> None:
    """Reject brokers outside of AWS for the worker's AWS identity: its tokens are valid at each MSK cluster."""
    if own.get("sasl.mechanism", "").strip() == MECHANISM and not all(map(is_msk, _addresses(own))):
        raise ConfigError(
            f"{prefix}{BROKERS}: tokens of the worker's AWS identity are not sent to brokers that are not of Amazon "
            "MSK; use the names that MSK shows",
            f"{prefix}{BROKERS}",
        )


def _check_inherited_login(inherited: Properties, own: Properties, prefix: str) -> None:
    """Reject security settings of the connector with which others could read the worker's password."""
    sasl = _value({**inherited, **own}, _PROTOCOL).startswith("SASL")
    identity = inherited.get("sasl.mechanism", "").strip() in _OF_THE_MACHINE
    if not (_has_login(inherited) or identity) or _has_login(own) or not sasl:
        return
    for key in own:
        if key.startswith(_SECURITY_PREFIXES) and _value(own, key) != _value(inherited, key):
            raise ConfigError(
                f"{prefix}{key}: the worker's credentials ({_LOGIN}) are sent with the worker's own security settings "
                f"only; set {prefix}{_LOGIN} as well, or remove {prefix}{key}",
                f"{prefix}{key}",
            )


def _has_login(properties: Properties) -> bool:
    return _LOGIN in properties or _SECRET in properties or _is_token_file(properties)


def _is_token_file(properties: Properties) -> bool:
    return properties.get(_TOKEN_URL, "").strip().lower().startswith("file:")


def _value(properties: Properties, key: str) -> str:
    return properties.get(key, _DEFAULTS.get(key, "")).strip()


def _addresses(properties: Properties) -> set[str]:
    return {address.strip() for address in properties.get(BROKERS, "").split(",")}
