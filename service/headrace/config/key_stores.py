"""Read key stores and trust stores in the formats of Kafka's ``ssl.*`` options: PEM, PKCS #12 and JKS.

JKS is Java's own format, which keytool wrote before Java 9 and still reads: a store has a checksum with its password,
certificates are stored in clear, keys with a cipher that only Java has (``sun.security.provider.KeyProtector``). There
is no maintained Python package for it. ``ReloadedContext`` follows changes of the files, so that a renewed certificate
needs no restart.

Tests: ``tests/unit/config/test_tls.py``.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

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

from headrace.core.model.errors import ConfigError

MAGIC = b"\xfe\xed\xfe\xed"
_DIGEST = 20
_KEY, _CERTIFICATE = 1, 2
_MAX_ENTRIES = 10_000


class WrongPassword(ValueError):
    """A store or a key of it cannot be read with the given password."""


@dataclass(frozen=True, slots=True)
class JavaKeyStore:
    """The entries of a store: keys, still encrypted, each with its chain in DER, and trusted certificates in DER."""

    keys: Sequence[tuple[bytes, Sequence[bytes]]]
    certificates: Sequence[bytes]


def read_java_key_store(content: bytes, password: str | None) -> JavaKeyStore:
    """Parse a store. Without a password its checksum is not verified, as in Java.

    Raises WrongPassword, and ValueError for a store that is not in this format.
    """
    body, checksum = content[:-_DIGEST], content[-_DIGEST:]
    if password is not None:
        expected = hashlib.sha1(_utf16(password) + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(expected, checksum):
            raise WrongPassword("the password is wrong, or the file is damaged")
    source = _Bytes(body)
    if source.take(4) != MAGIC:
        raise ValueError("it is not a JKS store")
    version, count = source.number(4), source.number(4)
    if version not in (1, 2) or count > _MAX_ENTRIES:
        raise ValueError("it is not a JKS store of version 1 or 2")
    keys: list[tuple[bytes, Sequence[bytes]]] = []
    certificates: list[bytes] = []
    for _ in range(count):
        tag = source.number(4)
        source.take(source.number(2))  # the alias
        source.take(8)  # when the entry was made
        if tag == _KEY:
            encrypted = source.take(source.number(4))
            keys.append((encrypted, [_certificate(source, version) for _ in range(source.number(4))]))
        elif tag == _CERTIFICATE:
            certificates.append(_certificate(source, version))
        else:
            raise ValueError(f"it has an entry of the unknown type {tag}")
    return JavaKeyStore(keys, certificates)


def decrypted(encrypted: bytes, password: str) -> bytes:
    """Return a key of a store as PKCS #8 in DER. Raises WrongPassword."""
    protected = _octets(encrypted)
    salt, text, checksum = protected[:_DIGEST], protected[_DIGEST:-_DIGEST], protected[-_DIGEST:]
    secret = _utf16(password)
    stream, digest = bytearray(), salt
    while len(stream) < len(text):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        stream += digest
    plain = bytes(a ^ b for a, b in zip(text, cycle(stream), strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain, usedforsecurity=False).digest(), checksum):
        raise WrongPassword("the key's password is wrong")
    return plain


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _certificate(source: _Bytes, version: int) -> bytes:
    if version > 1:
        source.take(source.number(2))  # the type, X.509
    return source.take(source.number(4))


def _octets(encrypted: bytes) -> bytes:
    """Return the second member of an ``EncryptedPrivateKeyInfo`` (RFC 5208); the first names the cipher."""
    members = _Bytes(_Bytes(encrypted).element())
    members.element()
    return members.element()


class _Bytes:
    """A position in bytes. Each method raises ValueError at a premature end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        end = self._position + count
        if end > len(self._content):
            raise ValueError("it ends in the middle of an entry")
        taken = self._content[self._position : end]
        self._position = end
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def element(self) -> bytes:
        self.take(1)
        length = self.number(1)
        return self.take(length if length < 0x80 else self.number(length & 0x7F))


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
        return self.key + b"".join(certificate.public_bytes(Encoding.PEM) for certificate in self.chain)


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
            certificates = [x509.load_der_x509_certificate(der) for der in store.certificates]
        elif _is_der(content):
            loaded = pkcs12.load_pkcs12(content, _encoded(password))
            certificates = [entry.certificate for entry in (loaded.cert, *loaded.additional_certs) if entry is not None]
        else:
            certificates = x509.load_pem_x509_certificates(_pem(content))
    except (WrongPassword, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _store_error(error) from error
    if not certificates:
        raise StoreError("it has no trusted certificate")
    return certificates


def _key_of_jks(content: bytes, password: str | None, key_password: str | None) -> KeyAndChain:
    store = read_java_key_store(content, password)
    password = key_password if key_password is not None else password
    if not store.keys:
        raise NoPrivateKey("it has no private key")
    if password is None:
        raise WrongPassword("a password is needed")
    encrypted, chain = store.keys[0]
    key = load_der_private_key(decrypted(encrypted, password), None)
    return KeyAndChain(_key_pem(key), [x509.load_der_x509_certificate(der) for der in chain])


def _key_of_pkcs12(content: bytes, password: str | None) -> KeyAndChain:
    loaded = pkcs12.load_pkcs12(content, _encoded(password))
    if loaded.key is None or loaded.cert is None:
        raise NoPrivateKey("it has no private key")
    chain = _ordered(loaded.cert.certificate, [entry.certificate for entry in loaded.additional_certs])
    return KeyAndChain(_key_pem(loaded.key), chain)


def _key_of_pem(content: bytes, password: str | None) -> KeyAndChain:
    text = _pem(content)
    block = _PRIVATE_KEY.search(text)
    if block is None:
        raise NoPrivateKey("it has no private key")
    encrypted = b"ENCRYPTED" in block[0]
    if encrypted and password is None:
        raise WrongPassword("the key is encrypted and a password is needed")
    try:
        key = load_pem_private_key(block[0], _encoded(password) if encrypted else None)
    except ValueError as error:
        if encrypted:  # one of 256 wrong passwords decrypts it, to something that is no key
            raise WrongPassword("the password is wrong, or the key is damaged") from error
        raise
    return KeyAndChain(_key_pem(key), x509.load_pem_x509_certificates(text))


def _key_pem(key: object) -> bytes:
    if not isinstance(key, RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey):
        raise StoreError("its private key is of a kind that TLS does not use")
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _ordered(leaf: x509.Certificate, others: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """Return the chain from the leaf to its last known issuer. PKCS #12 does not order certificates."""
    chain = [leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((other for other in others if other.subject == chain[-1].issuer and other not in chain), None)
        if issuer is None:
            break
        chain.append(issuer)
    return chain


def _is_der(content: bytes) -> bool:
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


log = logging.getLogger(__name__)


class ReloadedContext(ssl.SSLContext):
    """A context that makes each connection with the current content of its files.

    asyncio, and with it aiohttp, aiokafka and uvicorn, calls ``wrap_bio`` for every connection. OpenSSL could replace
    a key in a context, but could not remove an authority from it.
    """

    _make: Callable[[], ssl.SSLContext]
    _files: Sequence[str]
    _prefix: str
    _current: ssl.SSLContext
    _seen: tuple[object, ...]

    @classmethod
    def of(cls, make: Callable[[], ssl.SSLContext], files: Sequence[str], prefix: str) -> ReloadedContext:
        """Return a context that ``make`` makes again after a change of ``files``. Raises ConfigError."""
        seen, current = _versions_of(files), make()
        context = cls.__new__(cls, current.protocol)
        context.check_hostname, context.verify_mode = current.check_hostname, current.verify_mode
        context._make, context._files, context._prefix = make, files, prefix
        context._current, context._seen = current, seen
        return context

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return self.current().wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return self.current().wrap_socket(*arguments, **options)

    def current(self) -> ssl.SSLContext:
        """Return the context with the current content of the files, the last valid one if that is unreadable."""
        seen = _versions_of(self._files)
        if seen != self._seen:
            self._seen = seen
            try:
                self._current = self._make()
                log.info("TLS: %s are read again after a change: %s", f"{self._prefix}*", ", ".join(self._files))
            except ConfigError as error:
                log.error("TLS: changed certificates are not used, the last ones stay in use: %s", error)
        return self._current


def _versions_of(files: Sequence[str]) -> tuple[object, ...]:
    """Return what changes with the content of the files, also if a link to them changes as in a mounted Secret."""
    return tuple(_version_of(file) for file in files)


def _version_of(file: str) -> object:
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
