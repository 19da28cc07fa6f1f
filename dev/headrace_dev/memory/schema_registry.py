"""A schema registry in memory; ``down`` simulates one that does not answer."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.converters.registered import IdKind, RegisteredSchema, SchemaId
from headrace.core.model.errors import BadRecord, Retriable


class MemorySchemaRegistry:
    """A ``ports.SchemaRegistry`` whose ids of all kinds share one sequence."""

    def __init__(self) -> None:
        self.down = False
        self.asked: list[SchemaId] = []
        self._schemas: list[RegisteredSchema] = []

    def register(
        self, text: str, schema_type: str = "AVRO", references: Mapping[str, RegisteredSchema] | None = None
    ) -> int:
        """Register a schema and return its id, from 1."""
        self._schemas.append(RegisteredSchema(text, schema_type, dict(references or {})))
        return len(self._schemas)

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        """Return the schema of an id. Raises BadRecord for an unknown one, Retriable while ``down``."""
        self.asked.append(schema_id)
        if self.down:
            raise Retriable("the schema registry does not answer")
        number = 0 if schema_id.kind is IdKind.GUID else int(schema_id.value)
        if not 0 < number <= len(self._schemas):
            raise BadRecord(f"the schema registry has no schema with {schema_id}")
        return self._schemas[number - 1]
