"""GET requests to a registry, and what each answer means (``docs/decisions/decoding.md``)."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from headrace.config.tls import client_context
from headrace.core.model.errors import BadRecord, ConfigError, Retriable
from headrace.runtime.http_client import HttpClient, HttpResponse, TooLarge, basic
from headrace_connectors.tokens import TokenCache

SECONDS = 10.0
_MAX_REDIRECTS = 10
_UNKNOWN = (40401, 40402, 40403)


@dataclass(frozen=True, slots=True)
class RegistryClient:
    """Queries the addresses of one registry in turn. ``option`` names the property that contains them.

    ``headers`` are sent with each request, and a bearer token if there are ``tokens``.
    """

    option: str
    urls: Sequence[str]
    http: HttpClient
    headers: Mapping[str, str] = field(default_factory=dict)
    tokens: TokenCache | None = None

    def get(self, path: str, what: str) -> HttpResponse:
        """Return the answer for ``path``. Raises BadRecord if it does not exist, Retriable or ConfigError."""
        failed: Retriable | None = None
        for url in self.urls:
            try:
                return self._get(url, path, what)
            except Retriable as error:
                failed = error
        raise failed or ConfigError(f"{self.option} is empty", self.option)

    def _get(self, url: str, path: str, what: str) -> HttpResponse:
        token = None if self.tokens is None else self.tokens.token()
        answer = self._send(url, path, token)
        if answer.status == HTTPStatus.UNAUTHORIZED and self.tokens is not None and token is not None:
            self.tokens.discard(token)
            if (renewed := self.tokens.token()) != token:
                answer = self._send(url, path, renewed)
        if answer.status == HTTPStatus.OK:
            return answer
        server = f"schema registry at {without_credentials(url)[0]}"
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise ConfigError(f"the {server} refuses the connector ({answer.status})", self.option)
        if answer.status == HTTPStatus.NOT_FOUND and _lacks_schema(answer.body):
            raise BadRecord(f"the schema registry has no {what}")
        if answer.status == HTTPStatus.NOT_FOUND:
            raise ConfigError(f"there is no {server} (404, but not for a schema)", self.option)
        raise Retriable(f"the {server} answers {answer.status}")

    def _send(self, url: str, path: str, token: str | None) -> HttpResponse:
        bare, credentials = without_credentials(url)
        headers = {"Accept": "*/*", **self.headers}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if credentials:
            headers.setdefault("Authorization", basic(credentials))
        try:
            return self.http.send("GET", f"{bare.rstrip('/')}/{path}", headers)
        except TooLarge as error:
            raise ConfigError(
                f"the answer of the schema registry at {bare} is larger than {self.http.max_bytes >> 20} MiB: it is no "
                f"schema; correct {self.option}",
                self.option,
            ) from error
        except OSError as error:
            raise failure(error, f"the schema registry at {bare}", self.option) from error


def failure(error: OSError, server: str, option: str) -> ConfigError | Retriable:
    """Return the error for a request without an answer: ConfigError for a certificate that is not trusted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigError(f"the certificate of {server} is not trusted: {error.verify_message}", option)
    return Retriable(f"{server} does not answer: {error}")


def content(answer: HttpResponse) -> Any:
    """Return the body as JSON. Raises Retriable for anything else, which a proxy may have sent."""
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise Retriable("the schema registry's answer is no JSON") from error


def _lacks_schema(body: bytes) -> bool:
    """Whether it is the schema that was not found, and not the path: Confluent's codes, or Apicurio's exceptions."""
    try:
        document = json.loads(body)
        code, name = int(document.get("error_code", 0)), str(document.get("name", ""))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False
    return code in _UNKNOWN or (name.endswith("NotFoundException") and name != "NotFoundException")


def addresses(option: str, given: Sequence[str]) -> list[str]:
    """The URLs of an option. Raises ConfigError for one that is none."""
    urls = [url for url in given if url]
    if not urls:
        raise ConfigError(f'Missing required configuration "{option}" which has no default value.', option)
    for url in urls:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigError(f"{option}: a URL begins with http:// or https://", option)
    return urls


def without_credentials(url: str) -> tuple[str, str]:
    """A URL, and the user and password that stood in it."""
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), unquote(credentials) if at else ""


def http_client(options: Mapping[str, str], prefix: str, proxy: str = "") -> HttpClient:
    """Return a client with the TLS of Kafka's ssl options below ``prefix``. Raises ConfigError.

    ``proxy`` is ``host:port`` of an HTTP proxy for all addresses.
    """
    given = {name: value for name, value in options.items() if name.startswith(prefix)}
    tls = client_context(given, prefix) if given else None
    return HttpClient(SECONDS, tls, proxy, environment_proxies=True, redirects=_MAX_REDIRECTS)
