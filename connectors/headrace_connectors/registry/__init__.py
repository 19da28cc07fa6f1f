"""Schema registries, asked over HTTP: Confluent's API and Apicurio's own."""

from __future__ import annotations

from headrace_connectors.registry.apicurio import ApicurioRegistry
from headrace_connectors.registry.confluent import ConfluentRegistry

__all__ = ["ApicurioRegistry", "ConfluentRegistry"]
