"""TLS from Kafka's ``ssl.*`` options, for servers and clients, with stores that are read again when their files change.

A new handshake looks at the files of the stores (``os.stat``, microseconds) and uses their new content. Stores that
cannot be read at that moment leave the last ones in use, with an error in the log. So the renewal of a certificate, by
cert-manager for example, needs no restart. Established connections keep what they were made with.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from headrace.config.key_stores import (
    MAX_STORE_BYTES,
    KeyAndChain,
    ReloadedContext,
    StoreError,
    key_and_chain,
    trusted_certificates,
)
from headrace.core.connect.config_def import Importance, InvalidValue, Type, any_case, one_of
from headrace.core.connect.typed_options import option, parse_options
from headrace.core.model.errors import ConfigError

Content = TypeVar("Content")

_LOW = Importance.LOW
_STORE_TYPES = any_case("JKS", "PKCS12", "PEM")
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OF_TLS_1_3 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""The suites of TLS 1.3. Python cannot choose among them."""

_lock = Lock()
_in_use: WeakKeyDictionary[ssl.SSLContext, str] = WeakKeyDictionary()
"""The contexts with a key that something still refers to, and the option of each key.

A registry of the process, because contexts are made where connections are, in clients that know nothing of metrics.
"""

REFUSED = {"engine.factory.class": "it is a Java class; remove it"}
"""Options that cannot be set, without ``ssl.``. Those without an effect are in ``keys_without_effect.py``."""


def _check_suites(name: str, value: Any) -> None:
    try:
        _openssl_ciphers(value or ())
    except ValueError as error:
        raise InvalidValue(f"Invalid value for configuration {name}: {error}") from error


def _check_versions(name: str, value: Any) -> None:
    for version in value or ():
        one_of(*_VERSIONS)(name, version)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Kafka's ``ssl.*`` options. Their names have a prefix: ``ssl.``, or ``listeners.https.ssl.``."""

    keystore_location: str | None = option(
        "keystore.location",
        Type.STRING,
        None,
        "File with the private key and its certificates: PEM, PKCS12 or JKS; or a folder with tls.key and tls.crt, as "
        "Kubernetes mounts a TLS Secret. A change of the files applies to new connections without a restart.",
    )
    keystore_type: str = option(
        "keystore.type",
        Type.STRING,
        "JKS",
        "Format of the key store: JKS, PKCS12 or PEM. The content of a file decides if it is another format. PEM is "
        "needed for the key in keystore.key.",
        _LOW,
        _STORE_TYPES,
    )
    keystore_password: str | None = option("keystore.password", Type.PASSWORD, None, "Password of the key store.")
    key_password: str | None = option(
        "key.password", Type.PASSWORD, None, "Password of the private key, if it is not that of the store."
    )
    keystore_key: str | None = option(
        "keystore.key", Type.PASSWORD, None, "The private key as PEM text, instead of a file."
    )
    keystore_certificate_chain: str | None = option(
        "keystore.certificate.chain", Type.STRING, None, "The certificates of keystore.key as PEM text."
    )
    truststore_location: str | None = option(
        "truststore.location",
        Type.STRING,
        None,
        "File with the certificates to trust: PEM, PKCS12 or JKS. By default those of the system.",
    )
    truststore_type: str = option(
        "truststore.type", Type.STRING, "JKS", "Format of the trust store, as keystore.type.", _LOW, _STORE_TYPES
    )
    truststore_password: str | None = option("truststore.password", Type.PASSWORD, None, "Password of the trust store.")
    truststore_certificates: str | None = option(
        "truststore.certificates", Type.STRING, None, "The certificates to trust as PEM text, instead of a file."
    )
    protocol: str = option(
        "protocol",
        Type.STRING,
        "TLSv1.3",
        "Newest version of TLS: TLSv1.3 (or TLS) or TLSv1.2.",
        _LOW,
        one_of("TLSv1.3", "TLS", "TLSv1.2"),
    )
    enabled_protocols: tuple[str, ...] = option(
        "enabled.protocols",
        Type.LIST,
        ("TLSv1.2", "TLSv1.3"),
        "Versions of TLS: TLSv1.2, TLSv1.3.",
        _LOW,
        _check_versions,
    )
    cipher_suites: tuple[str, ...] = option(
        "cipher.suites",
        Type.LIST,
        (),
        "Cipher suites by Java's or OpenSSL's names. Empty allows OpenSSL's default. Suites of TLSv1.3 are all "
        "named or none.",
        _LOW,
        _check_suites,
    )
    client_auth: str = option(
        "client.auth",
        Type.STRING,
        "none",
        "Whether clients of a listener have to send a certificate that the trust store proves: required, requested "
        "(may be missing) or none.",
        validator=any_case("required", "requested", "none"),
        read=str.lower,
    )
    endpoint_identification: str = option(
        "endpoint.identification.algorithm",
        Type.STRING,
        "https",
        "https verifies a server's name against its certificate; empty does not.",
        _LOW,
        one_of("https", "HTTPS", ""),
    )

    @property
    def has_key(self) -> bool:
        return self.keystore_location is not None or self.keystore_key is not None

    @property
    def has_trust(self) -> bool:
        return self.truststore_location is not None or self.truststore_certificates is not None


def client_context(properties: Mapping[str, str | None], prefix: str = "ssl.") -> ssl.SSLContext:
    """Return the context of a client. Its key store, if there is one, proves the client. Raises ConfigError."""
    settings = _parse(properties, prefix)

    def make() -> ssl.SSLContext:
        context = _Context(ssl.PROTOCOL_TLS_CLIENT)
        _configure(context, settings, prefix)
        if not settings.has_trust:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if not settings.endpoint_identification:
            context.check_hostname = False
        return context

    return _reloading_context(settings, prefix, make)


def server_context(properties: Mapping[str, str | None], prefix: str = "ssl.") -> ssl.SSLContext:
    """Return the context of a server. Raises ConfigError, also without a key store."""
    settings = _parse(properties, prefix)
    if not settings.has_key:
        raise ConfigError(
            f"{prefix}keystore.location: is not set; an https listener needs a key store", f"{prefix}keystore.location"
        )
    if settings.client_auth != "none" and not settings.has_trust:
        raise ConfigError(
            f"{prefix}client.auth: {settings.client_auth} needs {prefix}truststore.location: the authorities of the "
            "system would let any of their customers in",
            f"{prefix}client.auth",
        )
    modes = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}

    def make() -> ssl.SSLContext:
        context = _Context(ssl.PROTOCOL_TLS_SERVER)
        _configure(context, settings, prefix)
        context.verify_mode = modes[settings.client_auth]
        return context

    return _reloading_context(settings, prefix, make)


def own_certificate(context: ssl.SSLContext) -> x509.Certificate | None:
    """Return the certificate with which ``client_context`` or ``server_context`` proves itself now, None without."""
    current = context.current() if isinstance(context, ReloadedContext) else context
    return current.certificate if isinstance(current, _Context) else None


def certificate_ends() -> Mapping[str, float]:
    """Return when the certificates of this process end (Unix time), by the option of the key store.

    They are those of all contexts in use: listeners, and clients of Kafka, schema registries and token endpoints.
    Several contexts with one option, such as the Kafka clients of several connectors, have the earliest end.
    """
    with _lock:
        contexts = list(_in_use.items())
    ends: dict[str, float] = {}
    for context, option_name in contexts:
        if (certificate := own_certificate(context)) is not None:
            end = certificate.not_valid_after_utc.timestamp()
            ends[option_name] = min(end, ends.get(option_name, end))
    return ends


def _parse(properties: Mapping[str, str | None], prefix: str) -> TlsSettings:
    """Parse the options below ``prefix``. Blank texts are the same as none. Raises ConfigError."""
    for name, reason in REFUSED.items():
        if (properties.get(prefix + name) or "").strip():
            raise ConfigError(f"{prefix}{name}: cannot be set: {reason}", prefix + name)
    blank = (f"{prefix}{store}.{what}" for store in ("keystore", "truststore") for what in ("location", "type"))
    cleared = [name for name in blank if not (properties.get(name) or "").strip()]
    settings = parse_options(
        TlsSettings, {name: value for name, value in properties.items() if name not in cleared}, prefix
    )
    if settings.keystore_location is not None and settings.keystore_key is not None:
        raise ConfigError(
            f"{prefix}keystore.key: cannot be set beside {prefix}keystore.location", f"{prefix}keystore.key"
        )
    if (settings.keystore_key is None) != (settings.keystore_certificate_chain is None):
        raise ConfigError(
            f"{prefix}keystore.key and {prefix}keystore.certificate.chain belong together; set both",
            f"{prefix}keystore.key",
        )
    if settings.truststore_location is not None and settings.truststore_certificates is not None:
        raise ConfigError(
            f"{prefix}truststore.certificates: cannot be set beside {prefix}truststore.location",
            f"{prefix}truststore.certificates",
        )
    return settings


def _reloading_context(settings: TlsSettings, prefix: str, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """Return the context that ``make`` makes, and makes again after a change of the stores. Raises ConfigError."""
    files: list[str] = []
    if path := settings.keystore_location:
        files += _read(f"{prefix}keystore.location", lambda: _key_files(path), path)
    files += [settings.truststore_location] if settings.truststore_location else []
    context = ReloadedContext.of(make, files, prefix) if files else make()
    if settings.has_key:
        with _lock:
            _in_use[context] = f"{prefix}keystore.{'key' if settings.keystore_location is None else 'location'}"
    return context


class _Context(ssl.SSLContext):
    """A context that knows its own certificate, for messages."""

    certificate: x509.Certificate | None = None


def _configure(context: _Context, settings: TlsSettings, prefix: str) -> None:
    """Load stores, versions and ciphers into a context. Raises ConfigError."""
    newest = _VERSIONS.get(settings.protocol, ssl.TLSVersion.TLSv1_3)
    versions = [_VERSIONS[name] for name in settings.enabled_protocols if _VERSIONS[name] <= newest]
    ciphers, with_tls_1_3 = _openssl_ciphers(settings.cipher_suites)
    if ciphers:
        context.set_ciphers(ciphers)
    if not with_tls_1_3:
        versions = [version for version in versions if version is not ssl.TLSVersion.TLSv1_3]
    if settings.cipher_suites and not ciphers:
        versions = [version for version in versions if version is ssl.TLSVersion.TLSv1_3]
    if not versions:
        raise ConfigError(
            f"{prefix}enabled.protocols: protocol and cipher suites leave none", f"{prefix}enabled.protocols"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, any certificate of the trust store is an anchor
    if settings.has_trust:
        if path := settings.truststore_location:
            trusted = read_trust_store(f"{prefix}truststore.location", path, settings.truststore_password)
        else:
            text = (settings.truststore_certificates or "").encode()
            trusted = _read(f"{prefix}truststore.certificates", lambda: trusted_certificates(text, None))
        context.load_verify_locations(
            cadata=b"".join(certificate.public_bytes(Encoding.DER) for certificate in trusted)
        )
    if settings.has_key:
        key = _private_key(settings, prefix)
        load_key(context, key, f"{prefix}keystore.location")
        context.certificate = key.chain[0]


def _private_key(settings: TlsSettings, prefix: str) -> KeyAndChain:
    if settings.keystore_location is None:
        pem = f"{settings.keystore_key}\n{settings.keystore_certificate_chain}".encode()
        return _read(f"{prefix}keystore.key", lambda: key_and_chain(pem, None, settings.key_password))
    path = settings.keystore_location
    return _read(
        f"{prefix}keystore.location",
        lambda: key_and_chain(
            b"\n".join(map(store_content, _key_files(path))), settings.keystore_password, settings.key_password
        ),
        path,
    )


def read_trust_store(name: str, path: str, password: str | None) -> Sequence[x509.Certificate]:
    """Return the certificates in the file ``path``. Raises ConfigError that begins with ``name``, the file's option."""
    return _read(name, lambda: trusted_certificates(store_content(path), password), path)


def _key_files(path: str) -> tuple[str, ...]:
    """Return the file of a key store, or the two files of a mounted TLS Secret (``kubernetes.io/tls``)."""
    return (f"{path}/tls.key", f"{path}/tls.crt") if Path(path).is_dir() else (path,)


def store_content(path: str) -> bytes:
    """Return the content of a store.

    Raises OSError, and StoreError for a file that is too large, and for a folder, pipe or device. The last two would
    hold the event loop.
    """
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)  # a file object cannot be made of a folder, and would not close it
        raise StoreError("it is not a file")
    with os.fdopen(opened, "rb") as file:
        content = file.read(MAX_STORE_BYTES + 1)
    if len(content) > MAX_STORE_BYTES:
        raise StoreError("it is larger than 16 MiB")
    return content


def _read(name: str, read: Callable[[], Content], path: str = "") -> Content:
    """Return what ``read`` returns. Raises ConfigError that begins with the option and the file."""
    try:
        return read()
    except (OSError, StoreError) as error:
        cause = error.strerror if isinstance(error, OSError) else str(error)
        of_file = f" {path}" if path else ""
        raise ConfigError(f"{name}:{of_file} cannot be read: {cause}", name) from error


def load_key(context: ssl.SSLContext, key: KeyAndChain, name: str) -> None:
    """Load a key into a context, through a file in memory: OpenSSL takes a file, and the key must not be on a disk.

    Raises ConfigError that begins with the option ``name``.
    """
    file = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(file, key.pem())
        context.load_cert_chain(f"/proc/self/fd/{file}")
    except ssl.SSLError as error:
        raise ConfigError(f"{name}: key and certificate do not fit: {error.reason}", name) from error
    finally:
        os.close(file)


def _openssl_ciphers(suites: Sequence[str]) -> tuple[str, bool]:
    """Return OpenSSL's list of the suites before TLS 1.3, and whether TLS 1.3 is allowed. Raises ValueError."""
    if not suites:
        return "", True
    newer = _OF_TLS_1_3.intersection(suites)
    if newer and newer != _OF_TLS_1_3:
        missing = ", ".join(sorted(_OF_TLS_1_3 - newer))
        raise ValueError(f"the suites of TLSv1.3 cannot be chosen one by one; also name {missing}, or name none")
    older = ":".join(_openssl_name(suite) for suite in suites if suite not in _OF_TLS_1_3)
    if older:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(older)
        except ssl.SSLError as error:
            raise ValueError("OpenSSL knows none of the cipher suites") from error
    return older, bool(newer)


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite: ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`` is ECDHE-RSA-AES128-GCM-SHA256."""
    if "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    for size in ("128", "256"):
        cipher = cipher.replace(f"AES_{size}", f"AES{size}")
    cipher = cipher.replace("_CBC_", "_").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return "-".join(part for part in (*exchange.split("_"), *cipher.split("_")) if (exchange, part) != ("RSA", "RSA"))
