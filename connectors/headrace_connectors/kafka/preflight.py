"""Check a broker's TCP, TLS, Kafka protocol and SASL in turn, so that an error names the cause of a failed connection.

A client reports every cause as "Unable to bootstrap". Each address of ``bootstrap.servers`` is tried; one that
works is enough.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from aiokafka import errors as kafka
from aiokafka.protocol.metadata import MetadataRequest

from headrace.core.model.errors import ConfigError, HeadraceError, Retriable
from headrace_connectors.kafka.connections import close_connection, create_connection
from headrace_connectors.kafka.preflight_tls import STEP_SECONDS, check_alert, check_handshake, closed, has_tls
from headrace_connectors.kafka.security import ARGUMENTS
from headrace_connectors.kafka.tokens import LoginError, TokenProvider

ANSWER_SECONDS = 14.0
_TOKEN_SECONDS = 8.0


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
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await _connect(host.strip("[]"), int(port), address, arguments)
    except TimeoutError as error:
        raise Retriable(
            f"Kafka broker {address}: no complete login within {ANSWER_SECONDS:g} s; check the load of the broker and "
            "the network"
        ) from error


async def _connect(host: str, port: int, address: str, arguments: Mapping[str, Any]) -> None:
    await _tcp(host, port, address)
    if str(arguments.get("security_protocol", "")).endswith("SSL"):
        await check_handshake(host, port, arguments["ssl_context"])
    if "sasl_oauth_token_provider" in arguments:
        await _token(arguments["sasl_oauth_token_provider"])
    await _protocol(host, port, address, arguments)


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
    await closed(writer)


async def _token(tokens: TokenProvider) -> None:
    """Return if there is a token. Raises ConfigError or Retriable."""
    try:
        async with asyncio.timeout(_TOKEN_SECONDS):
            await tokens.token()
    except LoginError as error:
        raise error.failure from error
    except TimeoutError as error:
        raise Retriable(f"{tokens.name}: no answer within {_TOKEN_SECONDS:g} s; check the network") from error


async def _protocol(host: str, port: int, address: str, arguments: Mapping[str, Any]) -> None:
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
                f"Kafka broker {address}: rejects the token: {_status(error)}; {advice}",
                "sasl.mechanism",
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
    found = re.search(r'"status"\s*:\s*"([\w ]+)"', str(error))
    return found[1] if found else "authentication failed"
