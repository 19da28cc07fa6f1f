"""Read key stores and trust stores in the formats of Kafka's ``ssl.*`` options: PEM, PKCS #12 and JKS.

The content decides the format, as in Java, where a store of type JKS may be PKCS #12: keytool writes PKCS #12 into
files called ``.jks`` since Java 9. No message contains a password or a part of a key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)

from headrace.config.java_key_store import MAGIC, WrongPassword, decrypted, read_java_key_store

MAX_STORE_BYTES = 16 * 1024 * 1024
"""Java's own trust store, with the authorities of the internet, has 150 KB."""

_PRIVATE_KEY = re.compile(rb"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----.*?-----END \1PRIVATE KEY-----", re.DOTALL)


class StoreError(ValueError):
    """A store cannot be read. The message is the cause, without the name of the store."""


class NoPrivateKey(StoreError):
    """A store has certificates only."""


@dataclass(frozen=True, slots=True)
class KeyAndChain:
    """A private key and the certificates that prove it, that of the key first."""

    key: bytes
    """Unencrypted PKCS #8 in PEM."""
    chain: Sequence[x509.Certificate]

    def __repr__(self) -> str:
        return f"KeyAndChain({len(self.chain)} certificates)"

    def pem(self) -> bytes:
        """Return key and chain in PEM, as OpenSSL loads them."""
        return self.key + b"".join(each.public_bytes(Encoding.PEM) for each in self.chain)


def key_and_chain(content: bytes, password: str | None, key_password: str | None) -> KeyAndChain:
    """Return the first key of a store. The key's own password is that of the store by default. Raises StoreError."""
    try:
        if content.startswith(MAGIC):
            return _key_of_jks(content, password, key_password)
        if _is_der(content):
            return _key_of_pkcs12(content, password)
        return _key_of_pem(content, key_password if key_password is not None else password)
    except (WrongPassword, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _store_error(error) from error


def trusted_certificates(content: bytes, password: str | None) -> Sequence[x509.Certificate]:
    """Return the certificates of a trust store, at least one. Raises StoreError."""
    try:
        if content.startswith(MAGIC):
            store = read_java_key_store(content, password)
            found = [x509.load_der_x509_certificate(each) for each in store.certificates]
        elif _is_der(content):
            loaded = pkcs12.load_pkcs12(content, _encoded(password))
            found = [each.certificate for each in (loaded.cert, *loaded.additional_certs) if each is not None]
        else:
            found = x509.load_pem_x509_certificates(_pem(content))
    except (WrongPassword, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _store_error(error) from error
    if not found:
        raise StoreError("it has no trusted certificate")
    return found


def _key_of_jks(content: bytes, password: str | None, key_password: str | None) -> KeyAndChain:
    store = read_java_key_store(content, password)
    own = key_password if key_password is not None else password
    if not store.keys:
        raise NoPrivateKey("it has no private key")
    if own is None:
        raise WrongPassword("a password is needed")
    encrypted, chain = store.keys[0]
    key = load_der_private_key(decrypted(encrypted, own), None)
    return KeyAndChain(_key_pem(key), [x509.load_der_x509_certificate(each) for each in chain])


def _key_of_pkcs12(content: bytes, password: str | None) -> KeyAndChain:
    loaded = pkcs12.load_pkcs12(content, _encoded(password))
    if loaded.key is None or loaded.cert is None:
        raise NoPrivateKey("it has no private key")
    chain = _ordered(loaded.cert.certificate, [each.certificate for each in loaded.additional_certs])
    return KeyAndChain(_key_pem(loaded.key), chain)


def _key_of_pem(content: bytes, password: str | None) -> KeyAndChain:
    text = _pem(content)
    found = _PRIVATE_KEY.search(text)
    if found is None:
        raise NoPrivateKey("it has no private key")
    encrypted = b"ENCRYPTED" in found[0]
    if encrypted and password is None:
        raise WrongPassword("the key is encrypted and a password is needed")
    key = load_pem_private_key(found[0], _encoded(password) if encrypted else None)
    return KeyAndChain(_key_pem(key), x509.load_pem_x509_certificates(text))


def _key_pem(key: object) -> bytes:
    if not isinstance(key, RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey):
        raise StoreError("its private key is of a kind that TLS does not use")
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _ordered(leaf: x509.Certificate, others: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """Return the chain from the leaf to its last known issuer. PKCS #12 does not order certificates."""
    chain = [leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in others if each.subject == chain[-1].issuer and each not in chain), None)
        if issuer is None:
            break
        chain.append(issuer)
    return chain


def _is_der(content: bytes) -> bool:
    """Whether the content is a DER sequence, as PKCS #12 is."""
    return content[:1] == b"\x30"


def _pem(content: bytes) -> bytes:
    if b"-----BEGIN " not in content:
        raise StoreError("it is neither PEM nor PKCS12 nor JKS")
    return content


def _encoded(password: str | None) -> bytes | None:
    return None if password is None else password.encode()


def _store_error(error: Exception) -> StoreError:
    """Return the cause in words that have no content of the store."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, WrongPassword):
        return StoreError(str(error))
    if isinstance(error, TypeError) or "assword" in str(error):
        return StoreError("the password is wrong or missing")
    return StoreError(f"it is damaged or of an unsupported kind ({type(error).__name__})")
