"""Each way to secure Kafka against a real broker: what works, and the answer of a worker to what does not fit.

A worker starts with ``Stores.start``, which checks the connection; the last test does so as a process.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from support.fix_secured_kafka import SecuredBroker, login
from support.kafka.secured_clients import ANSWER_SECONDS, Unique, check_all_clients, error_at_start, worker_properties
from support.servers.certificates import Authority

from headrace.core.model.errors import ConfigError, HeadraceError, Retriable
from headrace_dev.server import free_ports, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("tls_closes")]

STORES = ("PEM", "PKCS12", "JKS")
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
Case = Callable[[SecuredBroker], Mapping[str, str]]


async def test_tls(secured_kafka: SecuredBroker, unique: Unique) -> None:
    """A worker with the authority of the broker uses each kind of client over TLS."""
    await check_all_clients(secured_kafka, secured_kafka.properties("TLS"), unique)


@pytest.mark.parametrize("kind", STORES)
async def test_a_client_certificate_in_each_format(secured_kafka: SecuredBroker, unique: Unique, kind: str) -> None:
    """A worker proves itself to a broker that requires certificates."""
    store = secured_kafka.store(secured_kafka.clients.issue("worker"), kind)
    await check_all_clients(secured_kafka, {**secured_kafka.properties("MTLS"), **store}, unique)


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_a_password(secured_kafka: SecuredBroker, unique: Unique, mechanism: str, protocol: str) -> None:
    """A worker logs in with each mechanism, over TLS and without."""
    listener = "LOGIN" if protocol == "SASL_SSL" else "CLEAR"
    await check_all_clients(secured_kafka, secured_kafka.login(listener, mechanism, protocol=protocol), unique)


def _client(listener: str, protocol: str = "SSL", **more: str) -> Case:
    properties = {name.replace("_", "."): value for name, value in more.items()}
    return lambda broker: {**broker.properties(listener, protocol), **properties}


def _other_authority(listener: str, protocol: str) -> Case:
    other = {"ssl.truststore.location": "", "ssl.truststore.certificates": Authority("other").pem().decode()}
    return lambda broker: {**broker.properties(listener, protocol), **login("SCRAM-SHA-512"), **other}


def _certificate(authority: Authority | None = None, ends: timedelta = timedelta(days=1)) -> Case:
    def properties(broker: SecuredBroker) -> Mapping[str, str]:
        identity = (authority or broker.clients).issue("worker", ends=ends)
        return {**broker.properties("MTLS"), **broker.store(identity, "PEM")}

    return properties


def _login(listener: str, mechanism: str, protocol: str = "SASL_PLAINTEXT", **more: str) -> Case:
    properties = {name.replace("_", "."): value for name, value in more.items()}
    return lambda broker: {**broker.login(listener, mechanism, "wrong", protocol), **properties}


ADDRESS = r"Kafka broker 127\.0\.[01]\.1:\d+: "
CASES: Mapping[str, tuple[Case, type[HeadraceError], str]] = {
    "the broker's certificate has expired": (
        _client("EXPIRED"),
        ConfigError,
        f"{ADDRESS}its certificate is not accepted: certificate has expired; renew the certificate of the broker",
    ),
    "the broker's certificate is for another host": (
        _client("OTHER"),
        ConfigError,
        f"{ADDRESS}its certificate is not accepted: IP address mismatch, certificate is not valid for '127.0.1.1'; "
        "use a name that the certificate contains in bootstrap.servers",
    ),
    **{
        f"another authority, {protocol}": (
            _other_authority(listener, protocol),
            ConfigError,
            f"{ADDRESS}its certificate is not accepted: unable to get local issuer certificate; "
            "correct the CA in ssl.truststore.location",
        )
        for listener, protocol in (("TLS", "SSL"), ("LOGIN", "SASL_SSL"))
    },
    **{
        f"no client certificate, {version}": (
            _client("MTLS", ssl_protocol=version),
            ConfigError,
            f"{ADDRESS}requires a client certificate, and none is configured; set ssl.keystore.location",
        )
        for version in ("TLSv1.3", "TLSv1.2")
    },
    "the client's certificate has expired": (
        _certificate(ends=timedelta(hours=-1)),
        ConfigError,
        rf"{ADDRESS}rejects the client certificate CN=worker: it expired at [-\d]+ [:\d]+ UTC; renew the certificate "
        "in ssl.keystore.location",
    ),
    "the client's certificate has another authority": (
        _certificate(Authority("strangers")),
        ConfigError,
        f"{ADDRESS}rejects the client certificate CN=worker: its issuer is CN=strangers [(]certificate unknown[)]; use "
        "a certificate of an authority that the broker trusts in ssl.keystore.location",
    ),
    "no TLS at a port with TLS": (
        _client("TLS", "PLAINTEXT"),
        ConfigError,
        f"{ADDRESS}this port uses TLS, and security.protocol=PLAINTEXT does not; correct security.protocol or the port "
        "in bootstrap.servers",
    ),
    "TLS at a port without": (
        _client("CLEAR", "SSL"),
        ConfigError,
        rf"{ADDRESS}accepts TCP but no TLS handshake \(\w+\); check that this port uses TLS, as security.protocol does",
    ),
    "TLS and login at a port without TLS": (
        _login("CLEAR", "PLAIN", "SASL_SSL"),
        ConfigError,
        rf"{ADDRESS}accepts TCP but no TLS handshake \(\w+\); check that this port uses TLS, as security.protocol does",
    ),
    **{
        f"no login, {protocol}": (
            _client(listener, protocol),
            Retriable,
            f"{ADDRESS}answers, but closes the connection at the first request: the port probably requires a login; "
            f"set security.protocol=SASL_{protocol} with sasl.mechanism and sasl.jaas.config",
        )
        for listener, protocol in (("LOGIN", "SSL"), ("CLEAR", "PLAINTEXT"))
    },
    "login at a port without": (
        _login("TLS", "PLAIN", "SASL_SSL"),
        ConfigError,
        f"{ADDRESS}SASL PLAIN is not enabled on this port; correct sasl.mechanism or security.protocol",
    ),
    **{
        f"wrong password, {mechanism}, {protocol}": (
            _login(listener, mechanism, protocol),
            ConfigError,
            f"{ADDRESS}rejects the login by {mechanism}: invalid user or password; correct sasl.jaas.config",
        )
        for listener, protocol in (("LOGIN", "SASL_SSL"), ("CLEAR", "SASL_PLAINTEXT"))
        for mechanism in PASSWORDS
    },
    **{
        f"{mechanism} where it is not enabled": (
            _login("TOKEN", mechanism),
            ConfigError,
            f"{ADDRESS}SASL {mechanism} is not enabled on this port; correct sasl.mechanism or security.protocol",
        )
        for mechanism in PASSWORDS
    },
    "unknown mechanism": (
        _login("CLEAR", "DIGEST-MD5"),
        ConfigError,
        "sasl.mechanism: invalid value: expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM, "
        "GSSAPI",
    ),
    **{
        f"no user and password, {mechanism}": (
            _client("CLEAR", "SASL_PLAINTEXT", sasl_mechanism=mechanism),
            ConfigError,
            "sasl.jaas.config: is not set, and security.protocol=SASL_PLAINTEXT needs a login; set sasl.jaas.config",
        )
        for mechanism in PASSWORDS
    },
    "unknown sasl property": (
        _login("CLEAR", "PLAIN", sasl_jaas_confg="x"),
        ConfigError,
        "sasl.jaas.confg: not a property of this client; did you mean sasl.jaas.config?",
    ),
    "unknown ssl property": (
        _client("TLS", ssl_trustore_location="x"),
        ConfigError,
        "ssl.trustore.location: not a property of this client; did you mean ssl.truststore.location?",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_does_not_fit(secured_kafka: SecuredBroker, unique: Unique, case: str) -> None:
    """The worker does not start: the error names the broker or the property, the cause and what to do."""
    properties, kind, text = CASES[case]
    error = await error_at_start(properties(secured_kafka), unique)
    assert type(error) is kind
    assert re.fullmatch(text.replace("?", r"\?"), str(error)), str(error)
    assert "wrong password" not in str(error)


@pytest.mark.parametrize("case", ["the client's certificate has expired", "wrong password, PLAIN, SASL_PLAINTEXT"])
def test_a_worker_that_is_rejected_ends_with_the_cause(
    secured_kafka: SecuredBroker, unique: Unique, tmp_path: Path, case: str
) -> None:
    """Its log contains the cause within 15 s, and no password; the process ends with status 1."""
    properties, _, text = CASES[case]
    given = worker_properties(properties(secured_kafka), unique("process"))
    given |= {"listeners": f"http://127.0.0.1:{free_ports(1)[0]}", "warehouse": str(tmp_path / "warehouse")}
    file = tmp_path / "worker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    command = [sys.executable, "-m", "headrace", "connect-distributed", str(file)]
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stderr=out)
    try:
        wait_until(lambda: "REST API on" in log.read_text(), "a worker that connects to Kafka", 60)
        began = time.monotonic()
        wait_until(lambda: re.search(f"cannot start: {text}", log.read_text()), "the cause", 60)
        assert time.monotonic() - began < ANSWER_SECONDS
        assert process.wait(60) == 1
    finally:
        process.kill()
    assert 'password="' not in log.read_text()
