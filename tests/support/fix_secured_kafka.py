"""A real broker with a listener for each way to secure one, started once per run if a test requests it."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from support.fix_asyncio import eventually
from support.servers.certificates import PASSWORD, Authority, Identity, keytool

from headrace_dev.secured_kafka import Listener, SecuredKafka, Tokens

USER, USER_PASSWORD = "headrace", "pass;word=1"
AUDIENCE = "kafka"
SESSION_MS = 3_000
"""How long a login on the listeners SHORT and TOKEN is valid; then the client has to log in again."""

_PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}


@dataclass(frozen=True)
class SecuredBroker:
    """The broker, and what its clients need.

    Listeners: TLS; MTLS (requires a certificate of ``clients``); ROTATED (of ``rotated.pem``); EXPIRED; OTHER (not the
    host of its certificate); LOGIN (SASL_SSL); CLEAR (SASL_PLAINTEXT with passwords); SHORT (as CLEAR, short sessions);
    TOKEN (SASL_PLAINTEXT with OAUTHBEARER only, short sessions).
    """

    kafka: SecuredKafka
    folder: Path
    authority: Authority = field(default_factory=Authority)
    clients: Authority = field(default_factory=Authority)
    issuer: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "issuer"}))

    def properties(self, listener: str, protocol: str = "SSL") -> dict[str, str]:
        """The properties of a client that trusts the broker."""
        found = {"bootstrap.servers": self.kafka.address(listener), "security.protocol": protocol}
        return found | ({"ssl.truststore.location": str(self.folder / "ca.pem")} if protocol.endswith("SSL") else {})

    def login(
        self, listener: str, mechanism: str, password: str = USER_PASSWORD, protocol: str = "SASL_PLAINTEXT"
    ) -> dict[str, str]:
        """The properties of a client that logs in with a password."""
        return self.properties(listener, protocol) | login(mechanism, password)

    def store(self, identity: Identity, kind: str, name: str = "client") -> dict[str, str]:
        """Write a key store of kind PEM, PKCS12 or JKS, and return the properties of a client with it."""
        file = self.folder / f"{name}-{time.monotonic_ns()}.{kind.lower()}"
        file.write_bytes(identity.pem() if kind == "PEM" else identity.pkcs12())
        if kind == "JKS":
            source = file.rename(file.with_suffix(".source"))
            passwords = ("-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
            keytool(
                "-importkeystore", "-srckeystore", source, *passwords, "-destkeystore", file, "-deststoretype", kind
            )
        found = {"ssl.keystore.type": kind, "ssl.keystore.location": str(file)}
        return found if kind == "PEM" else {**found, "ssl.keystore.password": PASSWORD}

    def token(self, *, seconds: float = 300, key: RSAKey | None = None, audience: str = AUDIENCE) -> str:
        """Return a token of the issuer that the broker trusts."""
        key = key or self.issuer
        now = int(time.time())
        claims = {"iss": "https://issuer", "aud": audience, "sub": USER, "iat": now, "exp": now + int(seconds)}
        return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key, algorithms=["RS256"])


def login(mechanism: str, password: str = USER_PASSWORD) -> dict[str, str]:
    """The ``sasl.*`` properties of a client with a password."""
    module = _MODULES.get(mechanism, "scram.ScramLoginModule")
    options = f'username="{USER}" password="{password}"'
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required {options};",
    }


@pytest.fixture
async def tls_closes(anyio_backend: str) -> AsyncIterator[None]:
    """Wait after a test until the peers have answered the end of its TLS connections; abort them after 10 s.

    aiokafka does not wait, and a loop that is closed before would warn about open sockets in a later test.
    """
    yield
    loop = asyncio.get_running_loop()
    connections = [each for each in gc.get_objects() if isinstance(each, SSLProtocol) and each._loop is loop]

    def are_closed() -> bool:
        return all(each._transport is None for each in connections)

    try:
        await eventually(are_closed)
    except TimeoutError:
        for each in connections:
            if isinstance(each._transport, asyncio.WriteTransport):
                each._transport.abort()
        await eventually(are_closed)


@pytest.fixture(scope="session")
def secured_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker with secured listeners; its certificates and keys are of this run."""
    folder = tmp_path_factory.mktemp("secured")
    authority, clients = Authority("brokers"), Authority("clients")
    issuer = RSAKey.generate_key(2048, {"kid": "issuer", "use": "sig", "alg": "RS256"})
    (folder / "ca.pem").write_bytes(authority.pem())
    for name in ("clients.pem", "rotated.pem"):
        (folder / name).write_bytes(clients.pem())
    (folder / "jwks.json").write_text(json.dumps({"keys": [issuer.as_dict(private=False)]}))
    keys, expired = folder / "broker.pem", folder / "expired.pem"
    keys.write_bytes(authority.issue("broker").pem())
    expired.write_bytes(authority.issue("broker", ends=timedelta(hours=-1)).pem())
    listeners = (
        Listener("TLS", "SSL", keys=keys),
        Listener("MTLS", "SSL", keys=keys, clients=folder / "clients.pem"),
        Listener("ROTATED", "SSL", keys=keys, clients=folder / "rotated.pem"),
        Listener("EXPIRED", "SSL", keys=expired),
        Listener("OTHER", "SSL", host="127.0.1.1", keys=keys),
        Listener("LOGIN", "SASL_SSL", keys=keys, mechanisms=(*_PASSWORDS, "OAUTHBEARER")),
        Listener("CLEAR", "SASL_PLAINTEXT", mechanisms=_PASSWORDS),
        Listener("SHORT", "SASL_PLAINTEXT", mechanisms=_PASSWORDS, session_ms=SESSION_MS),
        Listener("TOKEN", "SASL_PLAINTEXT", mechanisms=("OAUTHBEARER",), session_ms=SESSION_MS),
    )
    tokens = Tokens(folder / "jwks.json", AUDIENCE)
    kafka = SecuredKafka(folder, listeners, {USER: USER_PASSWORD}, tokens)
    kafka.start()
    yield SecuredBroker(kafka, folder, authority, clients, issuer)
    kafka.stop()
