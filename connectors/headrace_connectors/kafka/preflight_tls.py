"""Name the cause of a TLS handshake that fails, at the client or at the broker.

In TLS 1.3 a broker verifies the client's certificate after the client has finished its handshake. Its alert arrives
later, and is lost if the client has already sent a request. ``check_alert`` opens a connection that only reads.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from datetime import UTC, datetime

from cryptography import x509

from headrace.config.tls import own_certificate
from headrace.core.model.errors import ConfigError

STEP_SECONDS = 5.0
_ALERT_SECONDS = 2.0
_OWN = "ssl.keystore.location"

_UNTRUSTED = "correct the CA in ssl.truststore.location", "ssl.truststore.location"
_OTHER_HOST = "use a name that the certificate contains in bootstrap.servers", "bootstrap.servers"
_CERTIFICATE_ADVICE = {
    9: ("correct the clock of this machine, or the certificate of the broker", "bootstrap.servers"),
    10: ("renew the certificate of the broker", "bootstrap.servers"),
    62: _OTHER_HOST,  # host name
    64: _OTHER_HOST,  # IP address
}
"""What to do, and the property, by OpenSSL's code (X509_V_ERR_*)."""

_OF_VERSIONS = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "HANDSHAKE_FAILURE", "INSUFFICIENT_SECURITY")
_OF_CERTIFICATES = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR")
"""Parts of OpenSSL's names of the alerts that a broker sends."""


async def check_handshake(host: str, port: int, context: ssl.SSLContext) -> None:
    """Return after a TLS handshake. Raises ConfigError with the cause if the broker has no TLS or either rejects it."""
    broker = f"Kafka broker {host}:{port}"
    try:
        async with asyncio.timeout(STEP_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        advice, key = _CERTIFICATE_ADVICE.get(error.verify_code, _UNTRUSTED)
        raise ConfigError(
            f"{broker}: its certificate is not accepted: {error.verify_message.rstrip('.')}; {advice}", key
        ) from error
    except (OSError, TimeoutError) as error:
        raise _of_alert(broker, error, context) or ConfigError(
            f"{broker}: accepts TCP but no TLS handshake ({type(error).__name__}); check that this port "
            "uses TLS, as security.protocol does",
            "security.protocol",
        ) from error
    await closed(writer)


async def check_alert(host: str, port: int, context: ssl.SSLContext) -> None:
    """Raise ConfigError if the broker rejects the client after the client's handshake; return if it does not."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_ALERT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                await reader.read(1)
            except OSError as error:
                if found := _of_alert(f"Kafka broker {host}:{port}", error, context):
                    raise found from error
            finally:
                writer.transport.abort()


async def has_tls(host: str, port: int) -> bool:
    """Return whether a port answers a TLS handshake, with any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        async with asyncio.timeout(_ALERT_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError) as error:
        return isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")
    await closed(writer)
    return True


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection, for a second at most."""
    writer.close()
    with suppress(OSError, asyncio.TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()


def _of_alert(broker: str, error: BaseException, context: ssl.SSLContext) -> ConfigError | None:
    """Return the error for an alert of the broker, None if ``error`` is another one."""
    alert = error.reason or "" if isinstance(error, ssl.SSLError) else ""
    if any(part in alert for part in _OF_VERSIONS):
        return ConfigError(
            f"{broker}: rejects the TLS handshake: no common version or cipher suite; correct ssl.enabled.protocols "
            "and ssl.cipher.suites",
            "ssl.enabled.protocols",
        )
    if "ALERT" not in alert or not any(part in alert for part in _OF_CERTIFICATES):
        return None
    own = own_certificate(context)
    if own is None:
        return ConfigError(f"{broker}: requires a client certificate, and none is configured; set {_OWN}", _OWN)
    subject = f"{broker}: rejects the client certificate {own.subject.rfc4514_string()}"
    return ConfigError(f"{subject}: {_cause(own, alert)} in {_OWN}", _OWN)


def _cause(own: x509.Certificate, alert: str) -> str:
    now = datetime.now(UTC)
    if own.not_valid_after_utc < now:
        return f"it expired at {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; renew the certificate"
    if own.not_valid_before_utc > now:
        return f"it is valid from {own.not_valid_before_utc:%Y-%m-%d %H:%M} UTC; correct the clock, or the certificate"
    issuer, words = own.issuer.rfc4514_string(), alert.split("ALERT_")[-1].replace("_", " ").lower()
    return f"its issuer is {issuer} ({words}); use a certificate of an authority that the broker trusts"
