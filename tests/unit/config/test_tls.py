"""TLS from Kafka's options: every format of store, renewal, client certificates, and what is refused."""

from __future__ import annotations

import contextlib
import gc
import os
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from support.servers.certificates import PASSWORD, Authority, Identity, keytool

from headrace.config.key_stores import ReloadedContext
from headrace.config.tls import certificate_ends, client_context, server_context
from headrace.core.model.errors import ConfigError

Properties = dict[str, str | None]


@pytest.fixture(scope="module")
def authority() -> Authority:
    """One authority for all tests of this file."""
    return Authority()


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> ssl.SSLObject:
    """Connect both in memory and return the client's side. Raises SSLError of either side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_side=False, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    finished: set[int] = set()
    for _ in range(10):
        for index, end in enumerate(ends):
            try:
                end.do_handshake()
                finished.add(index)
            except ssl.SSLWantReadError:
                continue
    assert len(finished) == 2
    with contextlib.suppress(ssl.SSLWantReadError):
        ends[0].read(1)  # with TLS 1.3 the client has finished before the server rejects its certificate
    return ends[0]


def stored(path: Path, content: bytes) -> str:
    """Write a store and return its path."""
    path.write_bytes(content)
    return str(path)


def trusting(authority: Authority) -> Properties:
    """A client that trusts the authority."""
    return {"ssl.truststore.certificates": authority.pem().decode()}


def keystores(folder: Path, authority: Authority, kind: str) -> Properties:
    """The server's options for a key store of a kind."""
    own, root = authority.issue("server"), authority.identity.certificate
    path = folder / "store"
    if kind == "pem":
        return {"ssl.keystore.location": stored(path, own.pem()), "ssl.keystore.type": "PEM"}
    if kind == "encrypted pem":
        location = stored(path, own.pem("of-the-key"))
        return {"ssl.keystore.location": location, "ssl.keystore.type": "PEM", "ssl.key.password": "of-the-key"}
    if kind == "inline":
        key, _, chain = own.pem("of-the-key").decode().partition("-----BEGIN CERT")
        inline = {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": "-----BEGIN CERT" + chain}
        return {**inline, "ssl.keystore.type": "PEM", "ssl.key.password": "of-the-key"}
    pkcs12 = stored(folder / "store.p12", own.pkcs12(root))
    if kind == "pkcs12":
        return {"ssl.keystore.location": pkcs12, "ssl.keystore.type": "PKCS12", "ssl.keystore.password": PASSWORD}
    conversion = ("-importkeystore", "-srckeystore", pkcs12, "-srcstorepass", PASSWORD, "-destkeystore", path)
    java = "JKS" if kind == "jks" else "PKCS12"
    keytool(*conversion, "-deststorepass", PASSWORD, "-deststoretype", java, "-noprompt")
    return {"ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD}


@pytest.mark.parametrize("kind", ["pem", "encrypted pem", "inline", "pkcs12", "jks", "keytool's pkcs12 as jks"])
def test_a_server_has_the_key_of_its_store(kind: str, authority: Authority, tmp_path: Path) -> None:
    """Each format of Kafka's option, also a PKCS12 file that is named JKS, the default type."""
    server = server_context(keystores(tmp_path, authority, kind))
    client = handshake(server, client_context(trusting(authority)))
    assert client.version() == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client_context(trusting(Authority("other"))))


@pytest.mark.parametrize("kind", ["pem", "pkcs12", "jks"])
def test_a_client_trusts_the_certificates_of_its_store(kind: str, authority: Authority, tmp_path: Path) -> None:
    """A trust store in each format, the last two made by keytool."""
    pem = stored(tmp_path / "ca.pem", authority.pem())
    properties: Properties = {"ssl.truststore.location": pem, "ssl.truststore.type": "PEM"}
    if kind != "pem":
        path = tmp_path / "trust"
        entry = ("-importcert", "-noprompt", "-alias", "ca", "-file", pem)
        keytool(*entry, "-keystore", path, "-storepass", PASSWORD, "-storetype", kind)
        properties = {"ssl.truststore.location": str(path), "ssl.truststore.password": PASSWORD}
        properties["ssl.truststore.type"] = kind.upper()
    server = server_context(keystores(tmp_path, authority, "pem"))
    assert handshake(server, client_context(properties))
    others = server_context(keystores(tmp_path, Authority("other"), "pem"))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(others, client_context(properties))


def test_a_renewed_certificate_is_used_without_a_restart(authority: Authority, tmp_path: Path) -> None:
    """A mounted Secret changes by a new target of a link; both the key and the trusted authority change with it."""
    renewed = Authority("renewed")
    for name, issuer in (("old", authority), ("new", renewed)):
        (tmp_path / name).mkdir()
        stored(tmp_path / name / "tls.pem", issuer.issue("server").pem())
        stored(tmp_path / name / "ca.pem", issuer.pem())
    (tmp_path / "data").symlink_to("old")
    locations: Properties = {
        "ssl.keystore.location": str(tmp_path / "data" / "tls.pem"),
        "ssl.truststore.location": str(tmp_path / "data" / "ca.pem"),
        "ssl.client.auth": "required",
    }
    server, client = server_context(locations), client_context(locations)
    assert handshake(server, client)
    (tmp_path / "next").symlink_to("new")
    (tmp_path / "next").rename(tmp_path / "data")
    assert handshake(server, client)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client_context(trusting(authority)))
    old = client_context(trusting(renewed) | identity(authority.issue("client")))
    with pytest.raises(ssl.SSLError):
        handshake(server, old)


def test_a_mounted_tls_secret_is_a_key_store(authority: Authority, tmp_path: Path) -> None:
    """A folder with tls.key and tls.crt, as Kubernetes and cert-manager make it, is read again after each change."""
    secret = tmp_path / "secret"
    secret.mkdir()

    def renew(issuer: Authority) -> None:
        own = issuer.issue("server")
        stored(secret / "tls.key", own.pem().removesuffix(own.certificate_pem()))
        stored(secret / "tls.crt", own.certificate_pem())

    renew(authority)
    server = server_context({"ssl.keystore.location": str(secret)})
    assert handshake(server, client_context(trusting(authority)))
    renewed = Authority("renewed")
    renew(renewed)
    assert handshake(server, client_context(trusting(renewed)))


def test_certificates_that_cannot_be_read_leave_the_last_ones(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is being written, or damaged, stops no server. The error is logged once per change."""
    location = tmp_path / "tls.pem"
    stored(location, authority.issue("server").pem())
    server = server_context({"ssl.keystore.location": str(location)})
    location.write_bytes(b"-----BEGIN")
    for _ in range(2):
        assert handshake(server, client_context(trusting(authority)))
    assert caplog.text.count("the last ones stay in use") == 1
    location.write_bytes(authority.issue("server").pem())
    os.utime(location, ns=(1, 1))
    assert isinstance(server, ReloadedContext)
    last = server.current()
    assert server.current() is last


def test_a_key_store_whose_folder_cannot_be_read_leaves_the_last_one(authority: Authority, tmp_path: Path) -> None:
    """Also the question whether it is a folder may fail, as without permission for a folder above it."""
    stored(tmp_path / "tls.pem", authority.issue("server").pem())
    location = tmp_path / "link"
    location.symlink_to("tls.pem")
    server = server_context({"ssl.keystore.location": str(location)})
    location.unlink()
    location.symlink_to("x" * 300)  # too long for the file system
    assert handshake(server, client_context(trusting(authority)))
    with pytest.raises(ConfigError, match=f"ssl.keystore.location: {location} cannot be read: File name too long"):
        server_context({"ssl.keystore.location": str(location)})


@pytest.mark.parametrize(("mode", "without"), [("required", False), ("REQUESTED", True), ("none", True)])
def test_clients_prove_themselves(mode: str, without: bool, authority: Authority, tmp_path: Path) -> None:
    """``requested`` accepts a client without a certificate, but none with a wrong one."""
    server = server_context(keystores(tmp_path, authority, "pem") | trusting(authority) | {"ssl.client.auth": mode})
    assert handshake(server, client_context(trusting(authority) | identity(authority.issue("client"))))
    if without:
        assert handshake(server, client_context(trusting(authority)))
    else:
        with pytest.raises(ssl.SSLError):
            handshake(server, client_context(trusting(authority)))
    if mode != "none":
        for wrong in (Authority("other").issue("client"), authority.issue("client", ends=-timedelta(hours=1))):
            with pytest.raises(ssl.SSLError):
                handshake(server, client_context(trusting(authority) | identity(wrong)))


def identity(own: Identity) -> Properties:
    """The options of a client with its own certificate."""
    key, _, chain = own.pem().decode().partition("-----BEGIN CERT")
    return {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": "-----BEGIN CERT" + chain}


def test_a_name_is_verified_unless_it_is_turned_off(authority: Authority, tmp_path: Path) -> None:
    """An empty ``endpoint.identification.algorithm`` turns it off, as in Kafka."""
    server = server_context(keystores(tmp_path, authority, "pem"))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, client_context(trusting(authority)), "other.example")
    unnamed = trusting(authority) | {"ssl.endpoint.identification.algorithm": ""}
    assert handshake(server, client_context(unnamed), "other.example")


@pytest.mark.parametrize(
    ("options", "version", "cipher"),
    [
        ({"enabled.protocols": "TLSv1.2"}, "TLSv1.2", None),
        ({"protocol": "TLSv1.2"}, "TLSv1.2", None),
        (
            {"cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
        (
            {"cipher.suites": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"},
            "TLSv1.2",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
        ),
        (
            {"cipher.suites": "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256"},
            "TLSv1.3",
            None,
        ),
    ],
)
def test_versions_and_ciphers_are_limited(
    options: dict[str, str], version: str, cipher: str | None, authority: Authority, tmp_path: Path
) -> None:
    """Cipher suites have Java's names, as in Kafka's files; without one of TLS 1.3, that version is off."""
    limits: Properties = {f"ssl.{name}": value for name, value in options.items()}
    client = handshake(
        server_context(keystores(tmp_path, authority, "pem") | limits), client_context(trusting(authority))
    )
    assert client.version() == version
    assert cipher is None or (client.cipher() or ("",))[0] == cipher


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "ssl.keystore.location: is not set"),
        ({"keystore.location": "/nowhere/tls.pem"}, "/nowhere/tls.pem cannot be read: No such file"),
        ({"keystore.type": "BCFKS"}, "must be one of"),
        ({"engine.factory.class": "x.Y"}, "it is a Java class"),
        ({"client.auth": "required"}, "needs ssl.truststore.location"),
        ({"keystore.key": "x"}, "cannot be set beside"),
        ({"protocol": "SSLv3"}, "must be one of"),
        ({"enabled.protocols": "TLSv1.1"}, "must be one of"),
        ({"enabled.protocols": "TLSv1.3", "protocol": "TLSv1.2"}, "leave none"),
        ({"cipher.suites": "TLS_AES_128_GCM_SHA256"}, "cannot be chosen one by one"),
        ({"cipher.suites": "TLS_NOTHING_WITH_NOTHING"}, "OpenSSL knows none"),
        ({"truststore.certificates": "x"}, "ssl.truststore.certificates: cannot be read: it is neither PEM"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    options: dict[str, str], message: str, authority: Authority, tmp_path: Path
) -> None:
    """The error begins with the option."""
    given: Properties = {f"ssl.{name}": value for name, value in options.items()}
    needed = keystores(tmp_path, authority, "pem") if options else {}
    with pytest.raises(ConfigError, match=message) as refused:
        server_context(needed | given)
    assert refused.value.key is not None


@pytest.mark.parametrize("kind", ["pkcs12", "jks", "encrypted pem"])
@pytest.mark.parametrize("password", ["wrong-one", None])
def test_a_wrong_password_is_named_and_not_shown(
    kind: str, password: str | None, authority: Authority, tmp_path: Path
) -> None:
    """The error has the file, not the password."""
    properties = keystores(tmp_path, authority, kind)
    properties["ssl.key.password" if kind == "encrypted pem" else "ssl.keystore.password"] = password
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location: .*cannot be read: .*password") as refused:
        server_context(properties)
    assert "wrong-one" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


DECRYPTED_BY_ANOTHER_PASSWORD = """
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGjMF8GCSqGSIb3DQEFDTBSMDEGCSqGSIb3DQEFDDAkBBB6mGzJqEG9LGKQ1fqP
OicmAgIIADAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQEF19BWF9P0TaKDtx
tTi66wRAEz1nRuul4PjumEclJQi2Dyo4s6nuzAKXeul+yD/MdTXzPW3mj366jo0+
hgQVCaJ4fKzTPBUm5TGWJthqPxnJhw==
-----END ENCRYPTED PRIVATE KEY-----
"""
"""A key of the numbers 0 to 31. The padding of what ``wrong-167`` decrypts is right by chance."""


def test_a_wrong_password_that_decrypts_something_is_named(authority: Authority, tmp_path: Path) -> None:
    """One of 256 passwords passes the only check that the encryption has."""
    properties = keystores(tmp_path, authority, "encrypted pem")
    Path(properties["ssl.keystore.location"]).write_text(DECRYPTED_BY_ANOTHER_PASSWORD)
    properties["ssl.key.password"] = "wrong-167"
    with pytest.raises(ConfigError, match="the password is wrong, or the key is damaged") as refused:
        server_context(properties)
    assert "wrong-167" not in str(refused.value)


@pytest.mark.parametrize("damage", [b"", b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\1\0\0\0\1\0\1a", b"\x30\x82\x01", b"PK\3\4"])
def test_damaged_stores_are_refused(damage: bytes, tmp_path: Path) -> None:
    """Any content is an error with the option's name."""
    path = stored(tmp_path / "store", damage)
    for role in ("keystore", "truststore"):
        with pytest.raises(ConfigError, match=rf"ssl\.{role}\.location: .*cannot be read: "):
            client_context({f"ssl.{role}.location": path})


def test_a_key_of_another_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    """Two files that were mixed up."""
    key = authority.issue("one").pem().partition(b"-----BEGIN CERT")[0]
    path = stored(tmp_path / "tls.pem", key + authority.issue("two").certificate_pem())
    with pytest.raises(ConfigError, match="do not fit"):
        server_context({"ssl.keystore.location": path})


def test_a_folder_is_no_trust_store(tmp_path: Path) -> None:
    """Only a key store may be a mounted Secret. No descriptor stays open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ConfigError, match=f"truststore.location: {tmp_path} cannot be read: it is not a file"):
        client_context({"ssl.truststore.location": str(tmp_path)})
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("option", ["keystore.location", "truststore.location"])
def test_pipes_and_devices_are_refused(tmp_path: Path, option: str) -> None:
    """A connector names files too: a pipe would hold the event loop, and a device would never end."""
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(ConfigError, match=f"{option}: {path} cannot be read: it is not a file"):
            client_context({f"ssl.{option}": path})


def test_the_ends_of_certificates_in_use_are_known(tmp_path: Path, authority: Authority) -> None:
    """The earliest end by option, that of a renewed file at once, and none of a context that nothing refers to."""
    prefix, hour, day = "listeners.https.test.", timedelta(hours=1), timedelta(days=1)
    identities = {days: authority.issue("worker", "localhost", ends=days * day) for days in (5, 30, 60)}
    ends = {days: each.certificate.not_valid_after_utc.timestamp() for days, each in identities.items()}
    stores = [stored(tmp_path / f"{days}.pem", identities[days].pem()) for days in (5, 30)]
    contexts = [server_context({f"{prefix}keystore.location": store}, prefix) for store in stores]
    option = f"{prefix}keystore.location"
    assert certificate_ends()[option] == ends[5]
    stored(tmp_path / "5.pem", identities[60].pem())
    os.utime(tmp_path / "5.pem", (0, hour.total_seconds()))
    assert certificate_ends()[option] == ends[30]
    del contexts
    gc.collect()
    assert option not in certificate_ends()
