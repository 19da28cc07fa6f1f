"""Check a broker's TCP, TLS, Kafka protocol and SASL in turn, so that an error names the cause of a failed connection.

A client reports every cause as "Unable to bootstrap". Each address of ``bootstrap.servers`` is tried; one that
works is enough.

In TLS 1.3 a broker verifies the client's certificate after the client has finished its handshake. Its alert arrives
later, and is lost if the client has already sent a request. ``check_alert`` opens a connection that only reads.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from aiokafka import errors as kafka
from aiokafka.protocol.metadata import MetadataRequest
from cryptography import x509

from headrace.config.tls import own_certificate
from headrace.core.model.errors import ConfigError, HeadraceError, Retriable
from headrace_connectors.kafka.connections import close_connection, create_connection
from headrace_connectors.kafka.oauth import LoginError, TokenProvider
from headrace_connectors.kafka.security import ARGUMENTS

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
        raise _alert_error(broker, error, context) or ConfigError(
            f"{broker}: accepts TCP but no TLS handshake ({type(error).__name__}); check that this port "
            "uses TLS, as security.protocol does",
            "security.protocol",
        ) from error
    await close_writer(writer)


async def check_alert(host: str, port: int, context: ssl.SSLContext) -> None:
    """Raise ConfigError if the broker rejects the client after the client's handshake; return if it does not."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_ALERT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                await reader.read(1)
            except OSError as error:
                if alert_error := _alert_error(f"Kafka broker {host}:{port}", error, context):
                    raise alert_error from error
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
    await close_writer(writer)
    return True


async def close_writer(writer: asyncio.StreamWriter) -> None:
    """Close a connection, for a second at most."""
    writer.close()
    with suppress(OSError, asyncio.TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()


def _alert_error(broker: str, error: BaseException, context: ssl.SSLContext) -> ConfigError | None:
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
    certificate = own_certificate(context)
    if certificate is None:
        return ConfigError(f"{broker}: requires a client certificate, and none is configured; set {_OWN}", _OWN)
    subject = f"{broker}: rejects the client certificate {certificate.subject.rfc4514_string()}"
    return ConfigError(f"{subject}: {_refusal_cause(certificate, alert)} in {_OWN}", _OWN)


def _refusal_cause(certificate: x509.Certificate, alert: str) -> str:
    now = datetime.now(UTC)
    if certificate.not_valid_after_utc < now:
        return f"it expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; renew the certificate"
    if certificate.not_valid_before_utc > now:
        begin = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M}"
        return f"it is valid from {begin} UTC; correct the clock, or the certificate"
    issuer, words = certificate.issuer.rfc4514_string(), alert.split("ALERT_")[-1].replace("_", " ").lower()
    return f"its issuer is {issuer} ({words}); use a certificate of an authority that the broker trusts"


ANSWER_SECONDS = 14.0
_TOKEN_SECONDS = 8.0


async def check_brokers(arguments: Mapping[str, Any]) -> None:
    """Return if one broker of ``arguments`` accepts the connection. Raises ConfigError or Retriable with the cause."""
    addresses = str(arguments["bootstrap_servers"]).split(",")
    # All at once, so that the answer takes no longer with more addresses.
    checks = await asyncio.gather(
        *(_check(address.strip(), arguments) for address in addresses), return_exceptions=True
    )
    failures: list[HeadraceError] = []
    for outcome in checks:
        if outcome is None:
            return
        if not isinstance(outcome, HeadraceError):
            raise outcome
        failures.append(outcome)
    # A rejected connection shows more about the client's settings than a broker that is down.
    raise next((failure for failure in failures if isinstance(failure, ConfigError)), failures[0])


async def _check(address: str, arguments: Mapping[str, Any]) -> None:
    host, separator, port = address.rpartition(":")
    if not (separator and port.isdigit()):
        raise ConfigError(f"bootstrap.servers: {address!r} is not host:port", "bootstrap.servers")
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            host = host.strip("[]")
            await _check_tcp(host, int(port), address)
            if str(arguments.get("security_protocol", "")).endswith("SSL"):
                await check_handshake(host, int(port), arguments["ssl_context"])
            if "sasl_oauth_token_provider" in arguments:
                await _fetch_token(arguments["sasl_oauth_token_provider"])
            await _check_protocol(host, int(port), address, arguments)
    except TimeoutError as error:
        raise Retriable(
            f"Kafka broker {address}: no complete login within {ANSWER_SECONDS:g} s; check the load of the broker and "
            "the network"
        ) from error


async def _check_tcp(host: str, port: int, address: str) -> None:
    try:
        async with asyncio.timeout(STEP_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError as error:
        raise Retriable(f"Kafka broker {address}: no answer within {STEP_SECONDS:g} s; check firewalls") from error
    except OSError as error:
        raise Retriable(
            f"Kafka broker {address}: cannot be reached: {error.strerror or error}; check that the broker is up, and "
            "host and port in bootstrap.servers"
        ) from error
    await close_writer(writer)


async def _fetch_token(tokens: TokenProvider) -> None:
    """Return if there is a token. Raises ConfigError or Retriable."""
    try:
        async with asyncio.timeout(_TOKEN_SECONDS):
            await tokens.token()
    except LoginError as error:
        raise error.failure from error
    except TimeoutError as error:
        raise Retriable(f"{tokens.name}: no answer within {_TOKEN_SECONDS:g} s; check the network") from error


async def _check_protocol(host: str, port: int, address: str, arguments: Mapping[str, Any]) -> None:
    """Send ApiVersions, SASL if configured, and a request: a listener that requires SASL rejects only the request."""
    connection = {key: arguments[key] for key in ("client_id", *ARGUMENTS) if key in arguments}
    mechanism = arguments.get("sasl_mechanism", "PLAIN")
    opened = None
    try:
        opened = await create_connection(host, port, request_timeout_ms=int(STEP_SECONDS * 1000), **connection)
        try:
            await opened.send(MetadataRequest([]))
        finally:
            await close_connection(opened)
    except LoginError as error:
        raise error.failure from error
    except (kafka.AuthenticationFailedError, kafka.SaslAuthenticationFailed) as error:
        if mechanism == "OAUTHBEARER":
            advice = arguments["sasl_oauth_token_provider"].advice
            raise ConfigError(
                f"Kafka broker {address}: rejects the token: {_status(error)}; {advice}", "sasl.mechanism"
            ) from error
        raise ConfigError(
            f"Kafka broker {address}: rejects the login by {mechanism}: invalid user or password; correct "
            "sasl.jaas.config",
            "sasl.jaas.config",
        ) from error
    except (kafka.UnsupportedSaslMechanismError, kafka.IllegalSaslStateError) as error:
        raise ConfigError(
            f"Kafka broker {address}: SASL {mechanism} is not enabled on this port; correct sasl.mechanism or "
            "security.protocol",
            "sasl.mechanism",
        ) from error
    except (kafka.KafkaError, OSError, TimeoutError) as error:
        protocol = str(arguments.get("security_protocol", "PLAINTEXT"))
        if opened is None and protocol.endswith("SSL"):
            await check_alert(host, port, arguments["ssl_context"])
        elif opened is None and await has_tls(host, port):
            raise ConfigError(
                f"Kafka broker {address}: this port uses TLS, and security.protocol={protocol} does not; correct "
                "security.protocol or the port in bootstrap.servers",
                "security.protocol",
            ) from error
        if opened is not None and not protocol.startswith("SASL"):
            raise Retriable(
                f"Kafka broker {address}: answers, but closes the connection at the first request: the port probably "
                f"requires a login; set security.protocol=SASL_{protocol} with sasl.mechanism and sasl.jaas.config"
            ) from error
        raise Retriable(
            f"Kafka broker {address}: accepts TCP but does not answer Kafka's protocol ({type(error).__name__}); check "
            "that the port is a broker's, that security.protocol matches its listener, and that it is fully started"
        ) from error


def _status(error: Exception) -> str:
    """Return the status that a broker gives for a token (RFC 7628), without the rest of its message."""
    match = re.search(r'"status"\s*:\s*"([\w ]+)"', str(error))
    return match[1] if match else "authentication failed"
