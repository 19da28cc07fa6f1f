"""A registry with Confluent's API: Confluent's own, Karapace, Apicurio under ``/apis/ccompat/v7``, Redpanda."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from headrace.config.registry_converters import OAUTHBEARER, ConfluentOptions
from headrace.converters.registered import IdKind, RegisteredSchema, SchemaId
from headrace.core.connect.typed_options import parsed
from headrace.core.model.errors import ConfigError, Retriable
from headrace_connectors.http_transport import basic
from headrace_connectors.registry.http import (
    Authorize,
    RegistryClient,
    addresses,
    constant,
    content,
    no_authorization,
    tls_context,
)
from headrace_connectors.registry.oauth import BearerTokens

URL = "schema.registry.url"
_SOURCE = "basic.auth.credentials.source"
_USER_INFO = "basic.auth.user.info"
_TOKEN_SOURCE = "bearer.auth.credentials.source"  # noqa: S105 - the name of an option
_TOKEN = "bearer.auth.token"  # noqa: S105 - the name of an option


class ConfluentRegistry:
    """A ``SchemaRegistry``; ``options`` are the converter's."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises ConfigError for options that cannot be right; asks nothing yet."""
        given = parsed(ConfluentOptions, options)
        urls = addresses(URL, given.urls)
        tls = tls_context(options, "schema.registry.ssl.")
        self._client = RegistryClient(URL, urls, _authorization(given, tls), tls, _proxy(given))

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        """By id or GUID, with all that it refers to."""
        path = f"schemas/guids/{schema_id.value}" if schema_id.kind is IdKind.GUID else f"schemas/ids/{schema_id.value}"
        if schema_id.subject:
            path += f"?subject={quote(schema_id.subject, safe='')}"
        return self._schema(content(self._client.get(path, f"schema with {schema_id}")))

    def _schema(self, found: Any) -> RegisteredSchema:
        try:
            context = _context(found.get("subject") or "")
            references = {
                each["name"]: self._referred(each["subject"], each["version"], context)
                for each in found.get("references") or ()
            }
            return RegisteredSchema(found["schema"], found.get("schemaType") or "AVRO", references)
        except (KeyError, TypeError, AttributeError) as error:
            raise Retriable("the schema registry's answer is not one of Confluent's API") from error

    def _referred(self, name: str, version: int, context: str) -> RegisteredSchema:
        """Fetch a reference, whose name may lack the context of the schema that contains it."""
        subject = name if _context(name) else f"{context}{name}"
        path = f"subjects/{quote(subject, safe='')}/versions/{version}"
        return self._schema(content(self._client.get(path, f"version {version} of subject {subject}")))


def _context(subject: str) -> str:
    """The context that a subject is qualified with: ``:.eu:`` of ``:.eu:orders-value``; none for most."""
    return subject[: subject.find(":", 1) + 1] if subject.startswith(":.") else ""


def _authorization(given: ConfluentOptions, tls: ssl.SSLContext | None) -> Authorize:
    if given.credentials_source == "USER_INFO":
        info = given.registry_user_info or given.user_info or ""
        if ":" not in info:
            raise ConfigError(f"{_SOURCE}=USER_INFO needs {_USER_INFO} with user:password", _USER_INFO)
        return constant({"Authorization": basic(info)})
    if not given.token_source:
        return no_authorization
    scope = {"target-sr-cluster": given.logical_cluster, "Confluent-Identity-Pool-Id": given.identity_pool}
    headers = {header: value for header, value in scope.items() if value}
    if given.token_source == OAUTHBEARER:
        return BearerTokens(given, tls, headers)
    if not given.token:
        raise ConfigError(f"{_TOKEN_SOURCE}=STATIC_TOKEN needs {_TOKEN}", _TOKEN)
    return constant({"Authorization": f"Bearer {given.token}", **headers})


def _proxy(given: ConfluentOptions) -> str:
    host, port = given.proxy_host, given.proxy_port
    if bool(host) != bool(port):
        raise ConfigError("proxy.host and proxy.port go together", "proxy.port" if host else "proxy.host")
    return f"{host}:{port}" if host else ""
