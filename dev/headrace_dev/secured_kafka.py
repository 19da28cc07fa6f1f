"""A broker with secured listeners, beside the plain one that only the test itself uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace_dev.kafka import Kafka
from headrace_dev.server import LOOPBACK, free_ports

_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_TOKENS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener: its name in capitals, protocol, and what its TLS and SASL need.

    ``keys`` (key and certificate) and ``clients`` (the authority of the clients' certificates, which are then required)
    are PEM files. ``session_ms`` is ``connections.max.reauth.ms``.
    """

    name: str
    protocol: str
    host: str = LOOPBACK
    keys: Path | None = None
    clients: Path | None = None
    mechanisms: Sequence[str] = ()
    session_ms: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tokens:
    """How the broker verifies tokens: a file with the issuer's public keys (JWKS), and the audience."""

    keys: Path
    audience: str


class SecuredKafka(Kafka):
    """A broker with a plain listener and ``listeners``. ``users`` may log in with PLAIN and SCRAM."""

    def __init__(
        self, root: Path, listeners: Sequence[Listener], users: Mapping[str, str], tokens: Tokens | None = None
    ) -> None:
        allowed = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.keys.as_uri()}"] if tokens else []
        super().__init__(root, options=allowed, users=users)
        ports = free_ports(len(listeners))
        self._addresses = {each.name: f"{each.host}:{port}" for each, port in zip(listeners, ports, strict=True)}
        for each in listeners:
            self._add(each, tokens)

    def address(self, listener: str) -> str:
        """Return host and port of a listener."""
        return self._addresses[listener]

    def _add(self, listener: Listener, tokens: Tokens | None) -> None:
        for key in ("listeners", "advertised.listeners"):
            self._settings[key] += f",{listener.name}://{self._addresses[listener.name]}"
        self._settings["listener.security.protocol.map"] += f",{listener.name}:{listener.protocol}"
        settings: dict[str, str] = {}
        if listener.keys is not None:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(listener.keys)}
        if listener.clients is not None:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(listener.clients)}
            settings["ssl.client.auth"] = "required"
        if listener.mechanisms:
            settings["sasl.enabled.mechanisms"] = ",".join(listener.mechanisms)
        for mechanism in listener.mechanisms:
            settings |= {f"{mechanism.lower()}.{key}": value for key, value in self._sasl(mechanism, listener).items()}
        if "OAUTHBEARER" in listener.mechanisms and tokens is not None:
            settings["oauthbearer.sasl.server.callback.handler.class"] = _TOKENS
            settings["sasl.oauthbearer.jwks.endpoint.url"] = tokens.keys.as_uri()
            settings["sasl.oauthbearer.expected.audience"] = tokens.audience
        prefix = f"listener.name.{listener.name.lower()}."
        self._settings |= {f"{prefix}{key}": value for key, value in {**settings, **listener.settings}.items()}

    def _sasl(self, mechanism: str, listener: Listener) -> dict[str, str]:
        known = "".join(f' user_{user}="{password}"' for user, password in self._users.items())
        options = known if mechanism == "PLAIN" else ""
        settings = {"sasl.jaas.config": f"{_MODULES[mechanism]} required{options};"}
        if listener.session_ms:
            settings["connections.max.reauth.ms"] = str(listener.session_ms)
        return settings
