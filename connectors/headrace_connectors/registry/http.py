"""GET requests to a registry, with its errors in our words.

The standard library's client: three kinds of requests, each answered once and then remembered, need no other
(``docs/why.md``).
"""

from __future__ import annotations

import json
import logging
import ssl
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from headrace.config.tls import client_context
from headrace.core.model.errors import BadRecord, ConfigError, Retriable
from headrace_connectors.http_transport import LARGEST, Reply, TooLarge, basic, send

log = logging.getLogger(__name__)

Authorize = Callable[[Mapping[str, str] | None], Mapping[str, str]]
"""Returns the headers with credentials; others than those that the registry has refused, if there are any."""

_OK, _UNAUTHORIZED = 200, 401
_REFUSED = (401, 403)
_NOT_FOUND = 404
_UNKNOWN = (40401, 40402, 40403)


def no_authorization(refused: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return no headers."""
    return {}


def constant(headers: Mapping[str, str]) -> Authorize:
    """Return credentials that do not change."""
    return lambda refused: headers


@dataclass(frozen=True, slots=True)
class RegistryClient:
    """Asks the addresses of one registry in turn. ``option`` names the property that has them."""

    option: str
    urls: Sequence[str]
    authorize: Authorize = no_authorization
    tls: ssl.SSLContext | None = None
    proxy: str = ""
    """``host:port`` of an HTTP proxy for all addresses."""

    def get(self, path: str, what: str) -> Reply:
        """Return the answer for ``path``. Raises BadRecord if it does not exist, Retriable or ConfigError."""
        failed: Retriable | None = None
        for url in self.urls:
            try:
                return self._get(url, path, what)
            except Retriable as error:
                failed = error
        raise failed or ConfigError(f"{self.option} is empty", self.option)

    def _get(self, url: str, path: str, what: str) -> Reply:
        authorization = self.authorize(None)
        reply = self._send(url, path, authorization)
        if reply.status == _UNAUTHORIZED and (renewed := self.authorize(authorization)) != authorization:
            reply = self._send(url, path, renewed)
        if reply.status == _OK:
            return reply
        raise self._meant(reply, without_credentials(url)[0], what)

    def _send(self, url: str, path: str, authorization: Mapping[str, str]) -> Reply:
        bare, credentials = without_credentials(url)
        headers = {"Accept": "*/*", **authorization}
        if credentials:
            headers.setdefault("Authorization", basic(credentials))
        request = urllib.request.Request(f"{bare.rstrip('/')}/{path}", headers=headers)  # noqa: S310 - scheme is checked
        try:
            return send(request, self.tls, self.proxy)
        except TooLarge as error:
            raise ConfigError(
                f"the answer of the schema registry at {bare} is larger than {LARGEST >> 20} MiB: it is no schema; "
                f"correct {self.option}",
                self.option,
            ) from error
        except OSError as error:
            raise failure(error, f"the schema registry at {bare}", self.option) from error

    def _meant(self, reply: Reply, url: str, what: str) -> Exception:
        if reply.status in _REFUSED:
            return ConfigError(f"the schema registry at {url} refuses the connector ({reply.status})", self.option)
        if reply.status == _NOT_FOUND and _is_registrys(reply.body):
            return BadRecord(f"the schema registry has no {what}")
        if reply.status == _NOT_FOUND:
            return ConfigError(f"there is no schema registry at {url} (404, but not for a schema)", self.option)
        return Retriable(f"the schema registry at {url} answers {reply.status}")


def failure(error: OSError, server: str, option: str) -> ConfigError | Retriable:
    """Return the error for a request without an answer: ConfigError for a certificate that is not trusted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigError(f"the certificate of {server} is not trusted: {error.verify_message}", option)
    return Retriable(f"{server} does not answer: {error}")


def content(reply: Reply) -> Any:
    """Return the body as JSON. Raises Retriable for anything else, which a proxy may have sent."""
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        raise Retriable("the schema registry's answer is no JSON") from error


def _is_registrys(body: bytes) -> bool:
    """Whether it is the schema that was not found, and not the path: Confluent's codes, or Apicurio's exceptions."""
    try:
        document = json.loads(body)
        code, name = int(document.get("error_code", 0)), str(document.get("name", ""))
    except (ValueError, TypeError, AttributeError):
        return False
    return code in _UNKNOWN or (name.endswith("NotFoundException") and name != "NotFoundException")


def addresses(option: str, given: Sequence[str]) -> list[str]:
    """The URLs of an option. Raises ConfigError for one that is none."""
    urls = [each for each in given if each]
    if not urls:
        raise ConfigError(f'Missing required configuration "{option}" which has no default value.', option)
    for each in urls:
        if urlsplit(each).scheme not in ("http", "https"):
            raise ConfigError(f"{option}: a URL begins with http:// or https://", option)
    return urls


def without_credentials(url: str) -> tuple[str, str]:
    """A URL, and the user and password that stood in it."""
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), unquote(credentials) if at else ""


def tls_context(options: Mapping[str, str], prefix: str) -> ssl.SSLContext | None:
    """Return the context of Kafka's ssl options below ``prefix``, None without any. Raises ConfigError."""
    given = {name: value for name, value in options.items() if name.startswith(prefix)}
    return client_context(given, prefix) if given else None
