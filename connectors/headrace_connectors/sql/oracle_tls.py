"""The TLS context of connections to Oracle: authorities and the client's key from PEM files or a wallet.

python-oracledb's thin mode would read a wallet itself, but only ``ewallet.pem``, and it ignores a key that it cannot
decrypt. It compares names after the handshake (``ssl_server_dn_match``) instead of in the context. The contexts here
always verify the certificate.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from headrace.config.key_stores import (
    KeyAndChain,
    NoPrivateKey,
    ReloadedContext,
    StoreError,
    key_and_chain,
    trusted_certificates,
)
from headrace.config.tls import load_key, store_content
from headrace.core.model.errors import ConfigError
from headrace.core.reselect.options import DatabaseOptions

Content = TypeVar("Content")
_PREFIX = "reselect.database."
_WITHOUT_TLS = ("disable", "allow", "prefer")
_WALLETS = ("ewallet.p12", "ewallet.pem")


def tls_context(database: DatabaseOptions) -> ssl.SSLContext | None:
    """Return the context, None for connections without TLS. Changed files apply to new connections.

    Raises ConfigError for files that cannot be read, and for options that would have no effect or verify nothing.
    """
    files = [each for each in (database.sslrootcert, database.sslcert, database.sslkey) if each]
    if database.sslmode in _WITHOUT_TLS:
        if files or database.wallet_location:
            raise ConfigError(
                f"{_PREFIX}sslmode: {database.sslmode} uses no TLS with Oracle, so certificates have no effect; set "
                "verify-full, or remove sslrootcert, sslcert, sslkey and wallet.location",
                f"{_PREFIX}sslmode",
            )
        return None
    if database.wallet_location:
        if files:
            raise ConfigError(
                f"{_PREFIX}wallet.location: cannot be set beside sslrootcert, sslcert and sslkey",
                f"{_PREFIX}wallet.location",
            )
        wallet = _wallet(database.wallet_location)
        return ReloadedContext.of(lambda: _of_wallet(wallet, database.wallet_password), [str(wallet)], _PREFIX)
    if database.sslmode == "verify-ca" and not database.sslrootcert:
        raise ConfigError(
            f"{_PREFIX}sslmode: verify-ca needs sslrootcert or wallet.location: the authorities of the system sign "
            "certificates for anybody",
            f"{_PREFIX}sslmode",
        )
    return ReloadedContext.of(lambda: _of_files(database), files, _PREFIX) if files else _of_files(database)


def _of_files(database: DatabaseOptions) -> ssl.SSLContext:
    context = _context()
    if database.sslrootcert:
        _trust(context, _read("sslrootcert", database.sslrootcert, lambda text: trusted_certificates(text, None)))
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if database.sslcert:
        chain = _read("sslcert", database.sslcert, lambda text: text)
        key_file = database.sslkey or database.sslcert
        own = _read("sslkey", key_file, lambda text: key_and_chain(text + b"\n" + chain, None, database.sslpassword))
        load_key(context, own, f"{_PREFIX}sslkey")
    return context


def _of_wallet(wallet: Path, password: str | None) -> ssl.SSLContext:
    context = _context()
    _trust(context, _read("wallet.location", str(wallet), lambda content: trusted_certificates(content, password)))
    own = _read("wallet.location", str(wallet), lambda content: _key(content, password))
    if own is not None:
        load_key(context, own, f"{_PREFIX}wallet.location")
    return context


def _key(content: bytes, password: str | None) -> KeyAndChain | None:
    try:
        return key_and_chain(content, password, None)
    except NoPrivateKey:
        return None


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the driver compares names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # any trusted certificate is an anchor, as in a wallet
    return context


def _trust(context: ssl.SSLContext, certificates: Sequence[x509.Certificate]) -> None:
    context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in certificates))


def _wallet(folder: str) -> Path:
    found = next((path for path in (Path(folder, name) for name in _WALLETS) if path.is_file()), None)
    if found is None:
        raise ConfigError(
            f"{_PREFIX}wallet.location: {folder} has neither {' nor '.join(_WALLETS)}; cwallet.sso can only be read by "
            "Oracle's own libraries",
            f"{_PREFIX}wallet.location",
        )
    return found


def _read(option: str, path: str, read: Callable[[bytes], Content]) -> Content:
    """Return what ``read`` makes of a file. Raises ConfigError that names the option and the file."""
    try:
        return read(store_content(path))
    except (OSError, StoreError) as error:
        cause = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{_PREFIX}{option}: {path} cannot be read: {cause}", f"{_PREFIX}{option}") from error
