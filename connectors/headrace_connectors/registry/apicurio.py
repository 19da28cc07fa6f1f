"""Apicurio's own API, versions 2 and 3 (``…/apis/registry/v2`` and ``v3``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from headrace.config.registry_converters import ApicurioOptions
from headrace.converters.registered import IdKind, RegisteredSchema, SchemaId
from headrace.core.connect.typed_options import parse_options
from headrace.core.model.errors import ConfigError, Retriable
from headrace.runtime.http_client import basic
from headrace_connectors.registry.client import RegistryClient, addresses, content, http_client

URL = "apicurio.registry.url"
_USER, _PASSWORD = "apicurio.registry.auth.username", "apicurio.registry.auth.password"
_PATHS = {
    IdKind.GLOBAL_ID: "ids/globalIds",
    IdKind.CONTENT_ID: "ids/contentIds",
    IdKind.CONTENT_HASH: "ids/contentHashes",
    IdKind.ID: "ids/globalIds",
}


class ApicurioRegistry:
    """A ``SchemaRegistry``; ``options`` are the converter's, ``schema_type`` is the type of its schemas."""

    def __init__(self, options: Mapping[str, str], schema_type: str = "AVRO") -> None:
        """Raise ConfigError for invalid options. No request is sent."""
        given = parse_options(ApicurioOptions, options)
        urls = addresses(URL, given.urls)
        headers: Mapping[str, str] = {}
        if given.user:
            if not given.password:
                raise ConfigError(f"{_USER} needs {_PASSWORD}", _PASSWORD)
            headers = {"Authorization": basic(f"{given.user}:{given.password}")}
        self._schema_type = schema_type
        self._client = RegistryClient(URL, urls, http_client(options, "apicurio.registry.request.ssl."), headers)

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        """By global or content id, hash or version, with all that it refers to."""
        if schema_id.kind is IdKind.VERSION:
            return self._version(*str(schema_id.value).split("/"))
        path = f"{_PATHS[schema_id.kind]}/{schema_id.value}"
        what = f"schema with {schema_id}"
        return self._schema(self._client.get(path, what).body, content(self._client.get(f"{path}/references", what)))

    def _schema(self, text: bytes, references: Any) -> RegisteredSchema:
        try:
            schemas = {}
            for reference in references:
                group, artifact = (str(reference.get(name) or "default") for name in ("groupId", "artifactId"))
                parts = (quote(part, safe="") for part in (group, artifact, str(reference["version"])))
                schemas[reference["name"]] = self._version(*parts)
        except (KeyError, TypeError) as error:
            raise Retriable("the schema registry's answer is not one of Apicurio's API") from error
        return RegisteredSchema(text.decode(), self._schema_type, schemas)

    def _version(self, group: str, artifact: str, version: str) -> RegisteredSchema:
        path = f"groups/{group}/artifacts/{artifact}/versions/{version}"
        what = f"version {version} of artifact {artifact}"
        text = f"{path}/content" if "/v3" in self._client.urls[0] else path
        return self._schema(self._client.get(text, what).body, content(self._client.get(f"{path}/references", what)))
