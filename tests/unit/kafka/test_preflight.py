"""What an operator learns about a broker whose TLS does not fit: a real handshake with a server of each kind."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from support.fix_asyncio import serving
from support.servers.certificates import PASSWORD, Authority, Identity, keytool

from headrace.core.model.errors import ConfigError
from headrace_connectors.kafka.preflight import check_brokers
from headrace_connectors.kafka.settings import client_arguments

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def listener(
    folder: Path, identity: Identity | None, host: str = "127.0.0.1", clients: bytes = b""
) -> AsyncIterator[int]:
    """A listener, with TLS if there is an identity; yields its port.

    It requires certificates of clients from the authority ``clients``, and answers with their common name.
    """
    context = None
    if identity is not None:
        (folder / "server.pem").write_bytes(identity.pem())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        if clients:
            context.load_verify_locations(cadata=clients.decode())
            context.verify_mode = ssl.CERT_REQUIRED

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate = writer.get_extra_info("peercert") or {"subject": ()}
        writer.write(dict(part[0] for part in certificate["subject"]).get("commonName", "").encode())

    async with serving(serve, host=host, tls=context) as port:
        yield port


def arguments(host: str, port: int, authority: Authority) -> Mapping[str, object]:
    """The arguments of a client with TLS that trusts the authority."""
    properties = {"bootstrap.servers": f"{host}:{port}", "security.protocol": "SSL"}
    return client_arguments({**properties, "ssl.truststore.certificates": authority.pem().decode()})


@pytest.mark.parametrize(("store", "content"), [("jks", "JKS"), ("p12", "PKCS12"), ("pem", "PEM")])
async def test_a_client_proves_itself_with_a_store_of_any_format(tmp_path: Path, store: str, content: str) -> None:
    """The listener reads the name in the client's certificate."""
    authority = Authority()
    identity, keys = authority.issue("client"), tmp_path / f"client.{store}"
    keys.write_bytes(identity.pem() if store == "pem" else identity.pkcs12())
    if store == "jks":
        keys.rename(tmp_path / "client.p12")
        of_p12 = ("-srckeystore", tmp_path / "client.p12", "-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
        keytool("-importkeystore", *of_p12, "-destkeystore", keys, "-deststoretype", "JKS")
    properties = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", "ssl.keystore.type": content}
    properties |= {"ssl.keystore.location": str(keys), "ssl.truststore.certificates": authority.pem().decode()}
    properties |= {} if store == "pem" else {"ssl.keystore.password": PASSWORD}
    context = client_arguments(properties)["ssl_context"]
    async with listener(tmp_path, authority.issue("broker"), clients=authority.pem()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        assert await reader.read() == b"client"
        writer.close()


async def test_an_expired_certificate_is_renewed_at_the_broker(tmp_path: Path) -> None:
    """Another CA would not help."""
    authority = Authority()
    async with listener(tmp_path, authority.issue("broker", ends=timedelta(days=-1))) as port:
        with pytest.raises(ConfigError, match=r"certificate has expired; renew the certificate of the broker"):
            await check_brokers(arguments("127.0.0.1", port, authority))


async def test_a_certificate_of_another_host_is_reported_as_such(tmp_path: Path) -> None:
    """The certificate names localhost and 127.0.0.1."""
    authority = Authority()
    async with listener(tmp_path, authority.issue("broker"), "127.0.1.1") as port:
        with pytest.raises(ConfigError, match=r"127\.0\.1\.1.*use a name that the certificate contains") as caught:
            await check_brokers(arguments("127.0.1.1", port, authority))
        assert caught.value.key == "bootstrap.servers"


async def test_a_certificate_of_an_unknown_authority_needs_a_trust_store(tmp_path: Path) -> None:
    """The error names the property."""
    async with listener(tmp_path, Authority("other").issue("broker")) as port:
        with pytest.raises(ConfigError, match=r"correct the CA in ssl\.truststore\.location") as caught:
            await check_brokers(arguments("127.0.0.1", port, Authority()))
        assert caught.value.key == "ssl.truststore.location"


async def test_a_listener_without_tls_is_reported(tmp_path: Path) -> None:
    """The error names the protocol."""
    async with listener(tmp_path, None) as port:
        with pytest.raises(ConfigError, match="no TLS handshake") as caught:
            await check_brokers(arguments("127.0.0.1", port, Authority()))
        assert caught.value.key == "security.protocol"
