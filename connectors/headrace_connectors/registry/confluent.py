"""A registry with Confluent's API: Confluent's own, Karapace, Apicurio under ``/apis/ccompat/v7``, Redpanda."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit

from headrace.config.registry_converters import OAUTHBEARER, ConfluentOptions
from headrace.converters.registered import IdKind, RegisteredSchema, SchemaId
from headrace.core.connect.typed_options import parse_options
from headrace.core.model.errors import ConfigError, Retriable
from headrace.runtime.http_client import HttpClient, TooLarge, basic
from headrace_connectors.registry.client import SECONDS, RegistryClient, addresses, content, failure, http_client
from headrace_connectors.tokens import ClientCredentials, NoToken, Token, TokenCache

URL = "schema.registry.url"
_SOURCE = "basic.auth.credentials.source"
_USER_INFO = "basic.auth.user.info"
_TOKEN_SOURCE = "bearer.auth.credentials.source"  # noqa: S105 - the name of an option
_TOKEN = "bearer.auth.token"  # noqa: S105 - the name of an option
_ISSUER = "bearer.auth.issuer.endpoint.url"
_CLIENT_ID = "bearer.auth.client.id"
_CLIENT_SECRET = "bearer.auth.client.secret"  # noqa: S105 - the name of an option
_REFUSED = (400, 401, 403)
_DEFAULT_SECONDS = 300.0
"""The life of a token for which the provider states none."""


class ConfluentRegistry:
    """A ``SchemaRegistry``; ``options`` are the converter's."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raise ConfigError for invalid options. No request is sent."""
        given = parse_options(ConfluentOptions, options)
        urls = addresses(URL, given.urls)
        host, port = given.proxy_host, given.proxy_port
        if bool(host) != bool(port):
            raise ConfigError("proxy.host and proxy.port go together", "proxy.port" if host else "proxy.host")
        http = http_client(options, "schema.registry.ssl.", f"{host}:{port}" if host else "")
        self._client = RegistryClient(URL, urls, http, _headers(given), _tokens(given, http.tls))

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        """By id or GUID, with all that it refers to."""
        path = f"schemas/guids/{schema_id.value}" if schema_id.kind is IdKind.GUID else f"schemas/ids/{schema_id.value}"
        if schema_id.subject:
            path += f"?subject={quote(schema_id.subject, safe='')}"
        return self._schema(content(self._client.get(path, f"schema with {schema_id}")))

    def _schema(self, document: Any) -> RegisteredSchema:
        try:
            context = _context(document.get("subject") or "")
            references = {}
            for reference in document.get("references") or ():
                subject, version = reference["subject"], reference["version"]
                if not _context(subject):  # it may lack the context of the schema that refers to it
                    subject = f"{context}{subject}"
                path = f"subjects/{quote(subject, safe='')}/versions/{version}"
                answer = self._client.get(path, f"version {version} of subject {subject}")
                references[reference["name"]] = self._schema(content(answer))
            return RegisteredSchema(document["schema"], document.get("schemaType") or "AVRO", references)
        except (KeyError, TypeError, AttributeError) as error:
            raise Retriable("the schema registry's answer is not one of Confluent's API") from error


def _context(subject: str) -> str:
    """The context that a subject is qualified with: ``:.eu:`` of ``:.eu:orders-value``; none for most."""
    return subject[: subject.find(":", 1) + 1] if subject.startswith(":.") else ""


def _headers(given: ConfluentOptions) -> Mapping[str, str]:
    """Return the headers of each request: credentials that do not change, and what a cluster needs beside a token."""
    if given.credentials_source == "USER_INFO":
        info = given.registry_user_info or given.user_info or ""
        if ":" not in info:
            raise ConfigError(f"{_SOURCE}=USER_INFO needs {_USER_INFO} with user:password", _USER_INFO)
        return {"Authorization": basic(info)}
    if not given.token_source:
        return {}
    cluster = {"target-sr-cluster": given.logical_cluster, "Confluent-Identity-Pool-Id": given.identity_pool}
    headers = {header: value for header, value in cluster.items() if value}
    if given.token_source == OAUTHBEARER:
        return headers
    if not given.token:
        raise ConfigError(f"{_TOKEN_SOURCE}=STATIC_TOKEN needs {_TOKEN}", _TOKEN)
    return {"Authorization": f"Bearer {given.token}", **headers}


def _tokens(given: ConfluentOptions, tls: ssl.SSLContext | None) -> TokenCache | None:
    """Return the tokens of OAuth's client credentials, None for other credentials. Requests nothing yet."""
    if given.credentials_source == "USER_INFO" or given.token_source != OAUTHBEARER:
        return None
    for name, value in ((_ISSUER, given.issuer_url), (_CLIENT_ID, given.client_id)):
        if not value:
            raise ConfigError(f"bearer.auth.credentials.source=OAUTHBEARER needs {name}", name)
    if not given.client_secret:
        raise ConfigError(f"bearer.auth.credentials.source=OAUTHBEARER needs {_CLIENT_SECRET}", _CLIENT_SECRET)
    url = given.issuer_url or ""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" in parts.netloc:
        raise ConfigError(f"{_ISSUER}: a URL begins with http:// or https:// and has no user", _ISSUER)
    http = HttpClient(SECONDS, tls, environment_proxies=True)
    credentials = ClientCredentials(url, given.client_id or "", given.client_secret, given.scope, http)

    def refresh_at(token: Token, _: float) -> float:
        life = (token.begins if token.ends is None else token.ends) - token.begins
        return token.begins + max(life - given.expiry_buffer, life / 2)

    return TokenCache(lambda: _fetch_token(credentials), refresh_at)


def _fetch_token(credentials: ClientCredentials) -> Token:
    provider = f"the OAuth provider at {credentials.url}"
    try:
        token = credentials.fetch()
    except NoToken as error:
        if error.status in _REFUSED:
            raise ConfigError(
                f"{_CLIENT_ID}: {provider} refuses the client ({error}); correct {_CLIENT_ID}, {_CLIENT_SECRET} and "
                "bearer.auth.scope",
                _CLIENT_ID,
            ) from error
        if 300 <= error.status < 400:
            message = f"{_ISSUER}: {provider} redirects, which is not followed with credentials"
            raise ConfigError(message, _ISSUER) from error
        raise Retriable(f"{provider} answers {error.status} without an access token") from error
    except TooLarge as error:
        raise ConfigError(f"{_ISSUER}: the answer of {credentials.url} is too large for a token", _ISSUER) from error
    except OSError as error:
        raise failure(error, provider, _ISSUER) from error
    return token if token.ends is not None else replace(token, ends=token.begins + _DEFAULT_SECONDS)
