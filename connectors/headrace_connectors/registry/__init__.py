"""Clients of schema registries over HTTP: for Confluent's API and for Apicurio's."""

from __future__ import annotations

from headrace_connectors.registry.apicurio import ApicurioRegistry
from headrace_connectors.registry.confluent import ConfluentRegistry

__all__ = ["ApicurioRegistry", "ConfluentRegistry"]
