"""The addresses of the REST API: ``listeners`` and ``admin.listeners``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from headrace.core.model.errors import ConfigError

DEFAULT_PORT = 8083
HTTP, HTTPS = "http", "https"


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on. An empty host means every interface, port 0 a free port."""

    scheme: str
    host: str
    port: int


def parsed_listeners(option: str, addresses: Sequence[str]) -> tuple[Listener, ...]:
    """Return the listeners of an option, in order. Raises ConfigError."""
    found = tuple(_listener(option, each.strip()) for each in addresses)
    fixed = [(each.host, each.port) for each in found if each.port]
    twice = next((each for each in fixed if fixed.count(each) > 1), None)
    if twice is not None:
        raise ConfigError(f"{option}: {twice[0]}:{twice[1]} is listed twice; remove one", option)
    return found


def advertised(listeners: Sequence[Listener], scheme: str | None) -> Listener:
    """Return the listener that other workers use: the first http one without ``scheme``, as in Kafka Connect.

    Raises ConfigError if there is none of the scheme.
    """
    name = "rest.advertised.listener"
    for wanted in (scheme,) if scheme else (HTTP, HTTPS):
        found = next((each for each in listeners if each.scheme == wanted), None)
        if found is not None:
            return found
    raise ConfigError(f"{name}: listeners has no {scheme} address; add one, or remove {name}", name)


def authority(host: str, port: int) -> str:
    """Return ``host:port`` as a URL contains it: with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _listener(option: str, address: str) -> Listener:
    try:
        url = urlsplit(address.lower())
        port = DEFAULT_PORT if url.port is None else url.port
    except ValueError as error:
        raise ConfigError(f"{option}: {address!r} is not http://host:port or https://host:port", option) from error
    if url.scheme not in (HTTP, HTTPS) or url.path.strip("/") or url.query or url.username is not None:
        raise ConfigError(f"{option}: {address!r} is not http://host:port or https://host:port", option)
    return Listener(url.scheme, url.hostname or "", port)
