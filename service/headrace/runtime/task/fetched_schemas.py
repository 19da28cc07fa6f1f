"""The schemas of a registry that decoding a chunk needs.

Decoding does no I/O. It raises SchemaMissing at the first document whose schema no converter has read before; the task
fetches the schema and decodes the chunk again. This is rare, since converters cache what they have compiled from a
schema, and it costs the other chunks nothing.
"""

from __future__ import annotations

from headrace.converters.registered import RegisteredSchema, SchemaId
from headrace.core.model.errors import BadRecord
from headrace.ports import SchemaRegistry


class SchemaMissing(Exception):
    """Decoding needs a schema: call ``fetch``, and decode the same records again. ``clear`` the schemas afterwards."""

    def __init__(self, schemas: FetchedSchemas, schema_id: SchemaId) -> None:
        super().__init__(f"the schema with {schema_id} is not fetched yet")
        self.schemas = schemas
        self.schema_id = schema_id

    def fetch(self) -> None:
        """Fetch the schema from its registry. Blocks; raises Retriable or ConfigError."""
        self.schemas.fetch(self.schema_id)


class FetchedSchemas:
    """The schemas that one converter's registry has, and the ids that it does not have, for the current chunk."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._found: dict[SchemaId, RegisteredSchema | BadRecord] = {}

    def get(self, schema_id: SchemaId) -> RegisteredSchema:
        """Return a schema. Raises BadRecord if the registry does not have it, and SchemaMissing before ``fetch``."""
        found = self._found.get(schema_id)
        if found is None:
            raise SchemaMissing(self, schema_id)
        if isinstance(found, BadRecord):
            raise BadRecord(str(found))
        return found

    def fetch(self, schema_id: SchemaId) -> None:
        """Fetch a schema from the registry, or note that there is none. Blocks; raises Retriable or ConfigError."""
        try:
            self._found[schema_id] = self._registry.fetch(schema_id)
        except BadRecord as error:
            self._found[schema_id] = error

    def clear(self) -> None:
        """Discard all: converters have compiled what they need, and an id may be registered later."""
        self._found.clear()
