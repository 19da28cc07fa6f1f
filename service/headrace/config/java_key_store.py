"""Read Java's own key store format, JKS, which keytool wrote before Java 9 and still reads.

A store has a checksum with its password. Certificates are stored in clear, keys with a cipher that only Java has
(``sun.security.provider.KeyProtector``). There is no maintained Python package for the format.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

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
        """Return the next big-endian number of ``width`` bytes."""
        return int.from_bytes(self.take(width), "big")

    def element(self) -> bytes:
        """Return the content of the next DER element."""
        self.take(1)
        length = self.number(1)
        return self.take(length if length < 0x80 else self.number(length & 0x7F))
