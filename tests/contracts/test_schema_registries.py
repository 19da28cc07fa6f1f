"""The schema registries pass their contract: in memory, and clients of both APIs of a running one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from contracts.schema_registry_suite import PART, WHOLE, RegistryCase, SchemaRegistrySuite

from headrace.converters.registered import IdKind, RegisteredSchema
from headrace.ports import SchemaRegistry
from headrace_connectors.registry import ApicurioRegistry, ConfluentRegistry
from headrace_dev.memory import MemorySchemaRegistry
from headrace_dev.registry import Registry
from headrace_dev.server import LOOPBACK, free_ports


class TestMemory(SchemaRegistrySuite):
    """In memory."""

    @pytest.fixture
    def case(self) -> RegistryCase:
        registry = MemorySchemaRegistry()
        whole = registry.register(WHOLE, references={"n.Part": RegisteredSchema(PART)})

        def down() -> SchemaRegistry:
            registry.down = True
            return registry

        return RegistryCase(registry, whole, "whole", down)


@pytest.mark.stack
class TestReal(SchemaRegistrySuite):
    """Confluent's API and Apicurio's own API of one registry."""

    @pytest.fixture(params=["confluent", "apicurio"])
    def case(
        self, request: pytest.FixtureRequest, stack_registry: Registry, unique: Callable[[str], str]
    ) -> RegistryCase:
        part = unique("part")
        stack_registry.register(part, PART)
        references = [{"name": "n.Part", "subject": part, "version": 1}]
        subject = unique("whole-value")
        whole = stack_registry.register(subject, WHOLE, references=references)
        [port] = free_ports(1)
        if request.param == "confluent":
            return RegistryCase(
                ConfluentRegistry({"schema.registry.url": stack_registry.confluent_url}),
                whole,
                subject,
                lambda: ConfluentRegistry({"schema.registry.url": f"http://{LOOPBACK}:{port}"}),
            )
        return RegistryCase(
            ApicurioRegistry({"apicurio.registry.url": stack_registry.apicurio_url}),
            whole,
            subject,
            lambda: ApicurioRegistry({"apicurio.registry.url": f"http://{LOOPBACK}:{port}"}),
            [IdKind.CONTENT_ID],
        )
