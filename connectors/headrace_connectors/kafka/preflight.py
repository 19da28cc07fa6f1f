"""Check a broker's TCP, TLS, Kafka protocol and SASL in turn, so that an error names the cause of a failed connection.

A client reports every cause as "Unable to bootstrap". Each address of ``bootstrap.servers`` is tried; one that
works is enough.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from aiokafka import errors as kafka
from aiokafka.conn import create_conn
from aiokafka.protocol.metadata import MetadataRequest

from headrace.core.model.errors import ConfigError, HeadraceError, Retriable

STEP_SECONDS = 5.0
_CONNECTION = (
    "client_id", "ssl_context", "security_protocol", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password",
)  # fmt: skip

_UNTRUSTED = "correct the CA in ssl.truststore.location", "ssl.truststore.location"
_OTHER_HOST = "use a name that the certificate contains in bootstrap.servers", "bootstrap.servers"
_CERTIFICATE_ADVICE = {
    9: ("correct the clock of this machine, or the certificate of the broker", "bootstrap.servers"),
    10: ("renew the certificate of the broker", "bootstrap.servers"),
    62: _OTHER_HOST,  # host name
    64: _OTHER_HOST,  # IP address
}
"""What to do, and the property, by OpenSSL's code (X509_V_ERR_*)."""


async def check_brokers(arguments: Mapping[str, Any]) -> None:
    """Return if one broker of ``arguments`` accepts the connection. Raises ConfigError or Retriable with the cause."""
    addresses = str(arguments["bootstrap_servers"]).split(",")
    # All at once, so that the answer takes no longer with more addresses.
    checks = await asyncio.gather(*(_check(each.strip(), arguments) for each in addresses), return_exceptions=True)
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
    host = host.strip("[]")
    await _tcp(host, int(port), address)
    if str(arguments.get("security_protocol", "")).endswith("SSL"):
        await _tls(host, int(port), address, arguments["ssl_context"])
    await _protocol(host, int(port), address, arguments)


async def _tcp(host: str, port: int, address: str) -> None:
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
    await _close(writer)


async def _tls(host: str, port: int, address: str, context: ssl.SSLContext) -> None:
    try:
        async with asyncio.timeout(STEP_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        advice, key = _CERTIFICATE_ADVICE.get(error.verify_code, _UNTRUSTED)
        raise ConfigError(
            f"Kafka broker {address}: its certificate is not accepted: {error.verify_message.rstrip('.')}; {advice}",
            key,
        ) from error
    except (ssl.SSLError, OSError, TimeoutError) as error:
        raise ConfigError(
            f"Kafka broker {address}: accepts TCP but no TLS handshake ({type(error).__name__}); check that this port "
            "uses TLS, as security.protocol does",
            "security.protocol",
        ) from error
    await _close(writer)


async def _protocol(host: str, port: int, address: str, arguments: Mapping[str, Any]) -> None:
    """Send ApiVersions, SASL if configured, and a request: a listener that requires SASL rejects only the request."""
    connection = {key: arguments[key] for key in _CONNECTION if key in arguments}
    mechanism = arguments.get("sasl_mechanism", "PLAIN")
    try:
        opened = await create_conn(host, port, request_timeout_ms=int(STEP_SECONDS * 1000), **connection)
        try:
            await opened.send(MetadataRequest([]))
        finally:
            opened.close()
    except (kafka.AuthenticationFailedError, kafka.SaslAuthenticationFailed) as error:
        raise ConfigError(
            f"Kafka broker {address}: user or password rejected (SASL {mechanism}); correct sasl.jaas.config",
            "sasl.jaas.config",
        ) from error
    except (kafka.UnsupportedSaslMechanismError, kafka.IllegalSaslStateError) as error:
        raise ConfigError(
            f"Kafka broker {address}: SASL {mechanism} is not enabled on this port; correct sasl.mechanism or "
            "security.protocol",
            "sasl.mechanism",
        ) from error
    except (kafka.KafkaError, OSError, TimeoutError) as error:
        raise Retriable(
            f"Kafka broker {address}: accepts TCP but does not answer Kafka's protocol ({type(error).__name__}); check "
            "that the port is a broker's, that security.protocol matches its listener, and that it is fully started"
        ) from error


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, asyncio.TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
