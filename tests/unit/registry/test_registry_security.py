"""The clients of schema registries with TLS, OAuth, and servers that answer too much or too slowly."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from support.servers.certificates import PASSWORD, Authority, keytool
from support.servers.http_registry import Server
from support.servers.socket_server import answering, dripping

from headrace.config.registry_converters import CONFLUENT_AVRO, REGISTRY_CONVERTERS
from headrace.config.tls import server_context
from headrace.converters.registered import IdKind, SchemaId
from headrace.core.model.errors import ConfigError, Retriable
from headrace.runtime.http_client import MAX_BYTES, HttpClient
from headrace_connectors.registry import ApicurioRegistry, ConfluentRegistry
from headrace_connectors.registry.client import RegistryClient

ONE = SchemaId(IdKind.ID, 1)
PATH = "/schemas/ids/1"
SCHEMA = {"schema": '"int"'}
TLS = "schema.registry.ssl."


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Servers that are closed after the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def server(running: ExitStack) -> Server:
    """A registry with one schema."""
    found = running.enter_context(closing(Server()))
    found.answers = {PATH: (200, SCHEMA)}
    return found


# -- size and time ----------------------------------------------------------------------------------------------------


def test_too_large_answer_is_an_error(server: Server) -> None:
    """An answer above the limit is refused, and not cut to a shorter schema."""
    server.answers[PATH] = 200, b" " * (MAX_BYTES + 1)
    with pytest.raises(ConfigError, match="is larger than 16 MiB"):
        ConfluentRegistry({"schema.registry.url": server.url}).fetch(ONE)
    path = "/apis/registry/v2/ids/globalIds/1"
    server.answers[path] = 200, b" " * (MAX_BYTES + 1)
    with pytest.raises(ConfigError, match="is larger than 16 MiB"):
        ApicurioRegistry({"apicurio.registry.url": f"{server.url}/apis/registry/v2"}).fetch(
            SchemaId(IdKind.GLOBAL_ID, 1)
        )


def test_deeply_nested_answer_is_an_error(server: Server) -> None:
    """JSON that is nested too deeply for the parser is an answer that is no JSON."""
    server.answers[PATH] = 200, b"[" * 200_000
    with pytest.raises(Retriable, match="is no JSON"):
        ConfluentRegistry({"schema.registry.url": server.url}).fetch(ONE)


def test_slow_answer_ends_with_the_deadline() -> None:
    """A registry that sends a byte now and then is Retriable after the deadline."""
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n") as url:
        client = RegistryClient("schema.registry.url", [url], HttpClient(0.5))
        with pytest.raises(Retriable, match=r"does not answer: no complete answer within 0\.5 s"):
            client.get("schemas/ids/1", "schema")


@pytest.mark.parametrize(
    "text",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200,
    ],
)
def test_damaged_answers_are_retriable(text: bytes) -> None:
    """An answer that is no HTTP, ends early, or has too many headers is Retriable."""
    with answering(text) as (url, _), pytest.raises(Retriable, match="does not answer"):
        ConfluentRegistry({"schema.registry.url": url}).fetch(ONE)


def test_redirects_in_a_circle_end(server: Server) -> None:
    """A server that redirects without end is Retriable."""
    server.moved[PATH] = f"{server.url}{PATH}"
    with pytest.raises(Retriable, match="answers 302"):
        ConfluentRegistry({"schema.registry.url": server.url}).fetch(ONE)
    assert len(server.asked) < 20


def test_redirect_to_another_scheme_is_not_followed(server: Server, tmp_path: Path) -> None:
    """A redirect to a file or to FTP is not followed."""
    (tmp_path / "x").write_text('{"schema": "stolen"}')
    for address in (f"file://{tmp_path}/x", "ftp://127.0.0.1:1/x"):
        server.moved[PATH] = address
        with pytest.raises(Retriable, match="answers 302"):
            ConfluentRegistry({"schema.registry.url": server.url}).fetch(ONE)


# -- TLS --------------------------------------------------------------------------------------------------------------


def secured(folder: Path, running: ExitStack, authority: Authority, *, expired: bool = False) -> Server:
    """A registry over TLS that requires a client's certificate."""
    own = authority.issue("registry", ends=timedelta(hours=-1 if expired else 1))
    (folder / "server.pem").write_bytes(own.pem())
    context = server_context(
        {
            "ssl.keystore.location": str(folder / "server.pem"),
            "ssl.truststore.certificates": authority.pem().decode(),
            "ssl.client.auth": "required",
        }
    )
    server = running.enter_context(closing(Server(context)))
    server.answers = {PATH: (200, SCHEMA)}
    return server


def pem(folder: Path, authority: Authority) -> dict[str, str]:
    client = authority.issue("headrace")
    (folder / "client.pem").write_bytes(client.pem("key-password"))
    (folder / "ca.pem").write_bytes(authority.pem())
    return {
        "truststore.location": str(folder / "ca.pem"),
        "keystore.location": str(folder / "client.pem"),
        "key.password": "key-password",
    }


def pem_texts(folder: Path, authority: Authority) -> dict[str, str]:
    key, chain = authority.issue("headrace").pem().decode().split("-----BEGIN CERTIFICATE", 1)
    return {
        "truststore.type": "PEM",
        "truststore.certificates": authority.pem().decode(),
        "keystore.type": "PEM",
        "keystore.key": key,
        "keystore.certificate.chain": "-----BEGIN CERTIFICATE" + chain,
    }


def java(folder: Path, authority: Authority) -> dict[str, str]:
    (folder / "client.p12").write_bytes(authority.issue("headrace").pkcs12())
    (folder / "ca.pem").write_bytes(authority.pem())
    store = folder / "ca.jks"
    keytool("-importcert", "-noprompt", "-alias", "ca", "-storetype", "JKS", "-file", folder / "ca.pem",
            "-keystore", store, "-storepass", PASSWORD)  # fmt: skip
    return {
        "truststore.location": str(store),
        "truststore.type": "JKS",
        "truststore.password": PASSWORD,
        "keystore.location": str(folder / "client.p12"),
        "keystore.type": "PKCS12",
        "keystore.password": PASSWORD,
    }


@pytest.mark.parametrize("stores", [pem, pem_texts, java])
def test_mutual_tls(tmp_path: Path, running: ExitStack, stores: Callable[[Path, Authority], dict[str, str]]) -> None:
    """The client proves itself with a key from PEM files, PEM text, PKCS12 and JKS; without one it is refused."""
    authority = Authority()
    server = secured(tmp_path, running, authority)
    given = {f"{TLS}{name}": value for name, value in stores(tmp_path, authority).items()}
    assert ConfluentRegistry({"schema.registry.url": server.url, **given}).fetch(ONE).text == '"int"'
    anonymous = {name: value for name, value in given.items() if ".key" not in name}
    with pytest.raises(Retriable, match="does not answer"):
        ConfluentRegistry({"schema.registry.url": server.url, **anonymous}).fetch(ONE)


@pytest.mark.parametrize(
    ("expired", "cause"), [(False, "(unable to get|self-signed)"), (True, "certificate has expired")]
)
def test_refused_certificates_are_named(tmp_path: Path, running: ExitStack, expired: bool, cause: str) -> None:
    """The error has OpenSSL's reason, which distinguishes an unknown authority from an expired certificate."""
    authority = Authority()
    server = secured(tmp_path, running, authority, expired=expired)
    trusted = authority if expired else Authority("other")
    given = {f"{TLS}truststore.certificates": trusted.pem().decode(), f"{TLS}truststore.type": "PEM"}
    with pytest.raises(ConfigError, match=f"is not trusted: {cause}"):
        ConfluentRegistry({"schema.registry.url": server.url, **given}).fetch(ONE)


def test_each_tls_option_of_kafka_is_known() -> None:
    """Each ssl option has its effect, has none with the reason, or is refused by name."""
    known = {key.name: key for key in REGISTRY_CONVERTERS[CONFLUENT_AVRO].keys}
    names = ["cipher.suites", "protocol", "enabled.protocols", "provider", "secure.random.implementation"]
    assert all(f"{TLS}{name}" in known for name in names)
    assert "Has no effect" in known[f"{TLS}provider"].doc
    engine = known[f"{TLS}engine.factory.class"]
    assert engine.validator is not None
    with pytest.raises(ValueError, match="it is a Java class"):
        engine.validator(engine.name, "x.Y")


# -- OAuth ------------------------------------------------------------------------------------------------------------

OAUTH = {
    "bearer.auth.credentials.source": "OAUTHBEARER",
    "bearer.auth.client.id": "head race",
    "bearer.auth.client.secret": "the:secret",
    "bearer.auth.scope": "read write",
    "bearer.auth.logical.cluster": "lsrc-1",
    "bearer.auth.identity.pool.id": "pool-1",
}


def oauth(server: Server, **more: str) -> ConfluentRegistry:
    issuer = {"bearer.auth.issuer.endpoint.url": f"{server.url}/token"}
    return ConfluentRegistry({"schema.registry.url": server.url, **OAUTH, **issuer, **more})


def tokens(*names: str, seconds: int = 3600) -> tuple[int, object]:
    return 200, deque({"access_token": name, "expires_in": seconds, "token_type": "bearer"} for name in names)


def test_token_is_fetched_with_the_clients_credentials(server: Server) -> None:
    """One token serves all requests, with the cluster and the pool; the secret goes to the token endpoint only."""
    server.answers["/token"] = tokens("first")
    registry = oauth(server)
    registry.fetch(ONE)
    registry.fetch(ONE)
    [(_, form)] = server.posted
    assert parse_qs(form.decode()) == {"grant_type": ["client_credentials"], "scope": ["read write"]}
    headers = [headers for path, headers in server.asked if path == PATH]
    assert [each["Authorization"] for each in headers] == ["Bearer first"] * 2
    assert {name.lower(): value for name, value in headers[0].items()}["target-sr-cluster"] == "lsrc-1"
    basic = next(headers["Authorization"] for path, headers in server.asked if path == "/token")
    assert base64.b64decode(basic.removeprefix("Basic ")) == b"head+race:the%3Asecret"  # RFC 6749


def test_token_is_fetched_again_before_its_end(server: Server) -> None:
    """A token of 2 s is replaced after half of its life, since the buffer is longer."""
    server.answers["/token"] = tokens("first", "second", seconds=0)
    registry = oauth(server)
    registry.fetch(ONE)
    registry.fetch(ONE)
    assert [each["Authorization"] for path, each in server.asked if path == PATH] == ["Bearer first", "Bearer second"]


def test_refused_token_is_replaced_once(server: Server) -> None:
    """A token that the registry refuses is replaced; a second refusal is an error."""
    server.answers["/token"] = tokens("first", "second")
    server.answers[PATH] = 401, {"error_code": 401}
    with pytest.raises(ConfigError, match=r"refuses the connector \(401\)"):
        oauth(server).fetch(ONE)
    assert [each["Authorization"] for path, each in server.asked if path == PATH] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ((401, {"error": "invalid_client"}), ConfigError, r"refuses the client \(401 invalid_client\)"),
        ((400, {"error": "the:secret"}), ConfigError, r"refuses the client \(400\)"),
        ((500, b""), Retriable, "answers 500"),
        ((200, b"<html>"), Retriable, "without an access token"),
        ((200, {"access_token": "a\r\nHost: b"}), Retriable, "without an access token"),
        ((200, b" " * (MAX_BYTES + 1)), ConfigError, "too large for a token"),
    ],
)
def test_errors_of_the_provider(
    server: Server, answer: tuple[int, object], error: type[Exception], message: str
) -> None:
    """A refused client is a ConfigError, other answers without a token are Retriable. No message has the secret."""
    server.answers["/token"] = answer
    with pytest.raises(error, match=message) as caught:
        oauth(server).fetch(ONE)
    assert "the:secret" not in str(caught.value)
    assert not [path for path, _ in server.asked if path == PATH]


def test_credentials_do_not_follow_a_redirect(server: Server, running: ExitStack) -> None:
    """A provider that redirects is refused: the client's secret is for the configured URL."""
    other = running.enter_context(closing(Server()))
    server.moved["/token"] = f"{other.url}/token"
    with pytest.raises(ConfigError, match="redirects"):
        oauth(server).fetch(ONE)
    assert other.asked == []


def test_token_does_not_follow_a_redirect_to_another_server(server: Server, running: ExitStack) -> None:
    """Neither the token nor the cluster and the pool are sent to another port of the same host."""
    other = running.enter_context(closing(Server()))
    other.answers[PATH] = 200, SCHEMA
    server.answers["/token"] = tokens("first")
    server.moved[PATH] = f"{other.url}{PATH}"
    oauth(server).fetch(ONE)
    [(_, headers)] = other.asked
    assert {name.lower() for name in headers} <= {"accept", "accept-encoding", "host", "user-agent", "connection"}


@pytest.mark.parametrize("missing", ["issuer.endpoint.url", "client.id", "client.secret"])
def test_missing_options_are_named(server: Server, missing: str) -> None:
    """OAUTHBEARER without one of its options names it before a request."""
    with pytest.raises(ConfigError, match=rf"needs bearer\.auth\.{missing}") as caught:
        oauth(server, **{f"bearer.auth.{missing}": ""})
    assert caught.value.key == f"bearer.auth.{missing}"
