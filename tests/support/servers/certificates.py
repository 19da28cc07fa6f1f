"""Certificates for tests: an authority, keys that it signs, and stores in each format that Kafka's options know."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from headrace_dev.java import java

PASSWORD = "store-password"


@dataclass(frozen=True, slots=True)
class Identity:
    """A key with its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def pem(self, password: str | None = None) -> bytes:
        """Key and certificate as PEM."""
        protection = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection) + self.certificate_pem()

    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    def pkcs12(self, *others: x509.Certificate, password: str = PASSWORD) -> bytes:
        """Key and certificates as PKCS #12."""
        protection = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"key", self.key, self.certificate, list(others), protection)


class Authority:
    """A certificate authority; ``name`` is its common name."""

    def __init__(self, name: str = "authority") -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        self.identity = Identity(key, _certificate(_name(name), _name(name), key, key, authority=True))

    def issue(self, name: str, *hosts: str, ends: timedelta = timedelta(days=1)) -> Identity:
        """Return an identity for ``name`` on this machine and ``hosts``. ``ends`` in the past is an expired one."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.identity
        subject = issuer.certificate.subject
        return Identity(key, _certificate(_name(name), subject, key, issuer.key, hosts=hosts, ends=ends))

    def pem(self) -> bytes:
        """The authority's certificate as PEM."""
        return self.identity.certificate_pem()


def keytool(*arguments: str | Path) -> None:
    """Run Java's keytool."""
    command = [Path(java()).with_name("keytool"), *arguments]
    subprocess.run([str(each) for each in command], check=True, capture_output=True)


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    hosts: Sequence[str] = (),
    ends: timedelta = timedelta(days=1),
    authority: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)
    names = [*map(x509.DNSName, ("localhost", *hosts)), x509.IPAddress(ip_address("127.0.0.1"))]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(authority, None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
