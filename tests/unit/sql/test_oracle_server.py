"""Oracle over TLS, with python-oracledb's own client: the handshakes that it accepts and refuses, and their answers.

The server speaks TLS and refuses the service after the handshake, as a listener does that does not know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from support.servers.certificates import Authority, Identity
from support.servers.tls_server import SeenClients, tls_server

from headrace.core.model.errors import ConfigError
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace_connectors.sql import OracleRowSource
from headrace_connectors.sql.availability import Unreachable

Serve = Callable[..., SeenClients]


def refused_service(_: bytes) -> bytes:
    """Return a listener's REFUSE packet: it does not know the service."""
    reason = b"(DESCRIPTION=(ERR=12514)(VSNNUM=0)(ERROR_STACK=(ERROR=(CODE=12514)(EMFI=4))))"
    body = bytes((0, 0)) + len(reason).to_bytes(2, "big") + reason
    return (len(body) + 8).to_bytes(2, "big") + bytes((0, 0, 4, 0, 0, 0)) + body


@pytest.fixture
def authority() -> Authority:
    """Return the authority of the server's certificate."""
    return Authority()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return a function that starts a server with an identity, which ends with the test."""
    with ExitStack() as running:

        def start(identity: Identity, clients: Authority | None = None) -> SeenClients:
            return running.enter_context(tls_server(tmp_path, identity, refused_service, clients))

        yield start


@pytest.fixture
def options(authority: Authority, tmp_path: Path) -> DatabaseOptions:
    """Return options that verify the server's certificate and name."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.pem())
    return DatabaseOptions(
        "localhost", 1, "reader", "secret", "SHOP", type="oracle", sslmode="verify-full", sslrootcert=str(ca)
    )


def check(database: DatabaseOptions, server: SeenClients) -> None:
    source = OracleRowSource(ReselectOptions(database=replace(database, port=server.port)))
    try:
        source.check()
    finally:
        source.close()


def refusal(database: DatabaseOptions, server: SeenClients) -> str:
    with pytest.raises(ConfigError) as caught:
        check(database, server)
    return str(caught.value)


def accepted(database: DatabaseOptions, server: SeenClients) -> bool:
    """Return whether the handshake succeeds, so that the driver sends its CONNECT packet."""
    with pytest.raises(Unreachable):
        check(database, server)
    return any(each[4:5] == b"\x01" for each in server.sent)


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_given_authority_is_accepted(authority: Authority, options: DatabaseOptions, serve: Serve, mode: str) -> None:
    """Each mode with TLS accepts a certificate that the authority in sslrootcert has signed."""
    assert accepted(replace(options, sslmode=mode), serve(authority.issue("server")))


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_unknown_authority_is_refused(options: DatabaseOptions, serve: Serve, mode: str) -> None:
    """No mode with TLS accepts another authority, and nothing is sent to such a server."""
    server = serve(Authority("other").issue("server"))
    assert "not trusted (unable to get local issuer certificate)" in refusal(replace(options, sslmode=mode), server)
    assert not any(server.sent)


def test_require_without_files_verifies_with_the_systems_authorities(
    authority: Authority, options: DatabaseOptions, serve: Serve
) -> None:
    """The mode require without an authority does not accept any certificate."""
    server = serve(authority.issue("server"))
    assert "is not trusted" in refusal(replace(options, sslmode="require", sslrootcert=""), server)


def test_expired_certificate_is_named(authority: Authority, options: DatabaseOptions, serve: Serve) -> None:
    """The answer to an expired certificate says so."""
    server = serve(authority.issue("server", ends=timedelta(hours=-1)))
    assert "the server's certificate has expired" in refusal(options, server)


@pytest.mark.parametrize("mode", ["require", "verify-full"])
def test_other_name_is_refused(authority: Authority, options: DatabaseOptions, serve: Serve, mode: str) -> None:
    """A certificate for another name is refused, and accepted by verify-ca only."""
    server = serve(authority.issue("server"))
    named = replace(options, hostname="127.0.0.1", sslmode=mode)  # the driver compares names, no addresses
    assert "another name" in refusal(named, server)
    assert not any(server.sent)
    assert accepted(replace(named, sslmode="verify-ca"), server)


def test_verify_ca_needs_an_authority(options: DatabaseOptions, serve: Serve, authority: Authority) -> None:
    """The mode verify-ca without sslrootcert is refused before a connection: anybody gets a public certificate."""
    server = serve(authority.issue("server"))
    assert "verify-ca needs sslrootcert" in refusal(replace(options, sslmode="verify-ca", sslrootcert=""), server)
    assert not server.sent


def test_certificates_without_tls_are_refused(authority: Authority, options: DatabaseOptions, serve: Serve) -> None:
    """Certificates with the default mode, which has no TLS with Oracle, would have no effect."""
    server = serve(authority.issue("server"))
    assert "prefer uses no TLS with Oracle" in refusal(replace(options, sslmode="prefer"), server)


# -- the client's certificate -----------------------------------------------------------------------------------------


def test_client_certificate_from_files(
    authority: Authority, options: DatabaseOptions, serve: Serve, tmp_path: Path
) -> None:
    """The key may be in another file than the certificate, and encrypted."""
    client = authority.issue("reader")
    (tmp_path / "client.crt").write_bytes(client.certificate_pem())
    (tmp_path / "client.key").write_bytes(client.pem("key-password"))
    given = replace(options, sslcert=str(tmp_path / "client.crt"), sslkey=str(tmp_path / "client.key"))
    server = serve(authority.issue("server"), authority)
    assert accepted(replace(given, sslpassword="key-password"), server)
    assert server.certificates[-1]["subject"] == ((("commonName", "reader"),),)
    assert "sslkey: " in refusal(replace(given, sslpassword="wrong"), server)


@pytest.mark.parametrize("name", ["ewallet.p12", "ewallet.pem"])
def test_client_certificate_from_a_wallet(
    authority: Authority, options: DatabaseOptions, serve: Serve, tmp_path: Path, name: str
) -> None:
    """A wallet has the authority and the client's key, both formats with a password."""
    client, wallet = authority.issue("reader"), tmp_path / "wallet"
    wallet.mkdir()
    pem = client.pem("wallet-password") + authority.pem()
    p12 = client.pkcs12(authority.identity.certificate, password="wallet-password")
    (wallet / name).write_bytes(p12 if name.endswith("p12") else pem)
    given = replace(options, sslrootcert="", wallet_location=str(wallet))
    server = serve(authority.issue("server"), authority)
    assert accepted(replace(given, wallet_password="wallet-password"), server)
    assert server.certificates[-1]["subject"] == ((("commonName", "reader"),),)
    answer = refusal(replace(given, wallet_password="wrong-password"), server)
    assert "wallet.location: " in answer
    assert "wrong-password" not in answer


def test_wallet_with_authorities_only(
    authority: Authority, options: DatabaseOptions, serve: Serve, tmp_path: Path
) -> None:
    """A wallet without a key verifies the server."""
    wallet = tmp_path / "wallet"
    wallet.mkdir()
    (wallet / "ewallet.pem").write_bytes(authority.pem())
    assert accepted(replace(options, sslrootcert="", wallet_location=str(wallet)), serve(authority.issue("server")))
    (wallet / "ewallet.pem").write_bytes(Authority("other").pem())
    changed = replace(options, sslrootcert="", wallet_location=str(wallet))
    assert "is not trusted" in refusal(changed, serve(authority.issue("server")))


def test_unreadable_wallets_are_named(
    options: DatabaseOptions, serve: Serve, authority: Authority, tmp_path: Path
) -> None:
    """A folder with an auto-login wallet only is refused with its reason."""
    (tmp_path / "cwallet.sso").write_bytes(b"\xa1\xf8N")
    given = replace(options, sslrootcert="", wallet_location=str(tmp_path))
    answer = refusal(given, serve(authority.issue("server")))
    assert "neither ewallet.p12 nor ewallet.pem; cwallet.sso" in answer


@pytest.mark.parametrize("given", ["missing", "expired", "unknown"])
def test_refused_client_certificates_are_named(
    authority: Authority, options: DatabaseOptions, serve: Serve, tmp_path: Path, given: str
) -> None:
    """A server that does not accept the client's certificate ends the connection; the answer names that cause."""
    if given != "missing":
        issuer = Authority("other") if given == "unknown" else authority
        client = issuer.issue("reader", ends=timedelta(hours=-1 if given == "expired" else 1))
        (tmp_path / "client.pem").write_bytes(client.pem())
        options = replace(options, sslcert=str(tmp_path / "client.pem"))
    server = serve(authority.issue("server"), authority)
    with pytest.raises((ConfigError, Unreachable), match="client's certificate"):
        check(options, server)
