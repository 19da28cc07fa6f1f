"""The registry that keeps the schemas of converters."""

from __future__ import annotations

from typing import Protocol

from headrace.converters.registered import RegisteredSchema, SchemaId


class SchemaRegistry(Protocol):
    """A schema registry. ``fetch`` may block; it is called by threads that do not decode."""

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        """Return the schema with an id; it never changes.

        Raises BadRecord for an unknown id, Retriable while the registry does not answer, and ConfigError if it rejects
        the connector (wrong password, no registry at this address).
        """
