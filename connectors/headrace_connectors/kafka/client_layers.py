"""The properties of a connector's clients, layer by layer, and which brokers receive the worker's credentials.

The worker's own connection properties come first, then its ``consumer.*`` (``producer.*``, ``admin.*``), then the
connector's ``consumer.override.*``. The first two are the operator's. Whoever writes a connector must not obtain the
worker's credentials by sending them to other brokers, or in a form that others can read (``docs/why.md``).
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.config.kafka import KafkaSettings
from headrace.core.model.errors import ConfigError

Properties = Mapping[str, str]

BROKERS = "bootstrap.servers"
_PROTOCOL, _LOGIN = "security.protocol", "sasl.jaas.config"
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
    if names_other_brokers(inherited, own):
        _check_own_security(inherited, own, prefix)
        return {**without_security(inherited), **own}
    _check_inherited_login(inherited, own, prefix)
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
    if _value(own, _PROTOCOL).startswith("SASL") and _LOGIN not in own:
        raise ConfigError(
            f"{prefix}{BROKERS}: the worker's credentials are not sent to brokers that a connector names; set "
            f"{prefix}{_LOGIN}",
            f"{prefix}{BROKERS}",
        )


def _check_inherited_login(inherited: Properties, own: Properties, prefix: str) -> None:
    """Reject security settings of the connector with which others could read the worker's password."""
    if _LOGIN not in inherited or _LOGIN in own or not _value({**inherited, **own}, _PROTOCOL).startswith("SASL"):
        return
    for key in own:
        if key.startswith(_SECURITY_PREFIXES) and _value(own, key) != _value(inherited, key):
            raise ConfigError(
                f"{prefix}{key}: the worker's credentials ({_LOGIN}) are sent with the worker's own security settings "
                f"only; set {prefix}{_LOGIN} as well, or remove {prefix}{key}",
                f"{prefix}{key}",
            )


def _value(properties: Properties, key: str) -> str:
    return properties.get(key, _DEFAULTS.get(key, "")).strip()


def _addresses(properties: Properties) -> set[str]:
    return {address.strip() for address in properties.get(BROKERS, "").split(",")}
