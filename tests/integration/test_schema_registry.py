"""Documents of serializers with a running registry: each framing, each API."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest

from headrace.converters.avro import AvroReader
from headrace.converters.conversion import Headers
from headrace.converters.registered import (
    Framing,
    RegistryConverter,
    apicurio_framing,
    confluent_framing,
)
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, ConfigError, Retriable
from headrace.core.model.schema import Field, Schema
from headrace.ports import SchemaRegistry
from headrace_connectors.registry import ApicurioRegistry, ConfluentRegistry
from headrace_dev.registry import Registry
from headrace_dev.server import LOOPBACK, free_ports

pytestmark = pytest.mark.stack

PART = {"type": "record", "name": "n.Part", "fields": [{"name": "a", "type": ["null", "int"]}]}
WHOLE = {"type": "record", "name": "n.Whole", "fields": [{"name": "part", "type": "n.Part"}]}
DATA = SchemaAndValue(
    Schema(
        "struct",
        name="n.Whole",
        fields=(Field("part", Schema("struct", name="n.Part", fields=(Field("a", Schema("int32", optional=True)),))),),
    ),
    {"part": {"a": 7}},
)
PAYLOAD = b"\x02\x0e"


def converter(registry: SchemaRegistry, framing: Framing) -> RegistryConverter:
    return RegistryConverter(registry.fetch, framing, AvroReader)


def confluent(url: str) -> ConfluentRegistry:
    return ConfluentRegistry({"schema.registry.url": url})


def test_each_framing_and_each_api(stack_registry: Registry, unique: Callable[[str], str]) -> None:
    """A schema that refers to one of another subject, with ids of four bytes, of eight bytes and in headers."""
    part, whole = unique("part"), unique("whole")
    stack_registry.register(part, PART)
    number = stack_registry.register(whole, WHOLE, references=[{"name": "n.Part", "subject": part, "version": 1}])
    written = io.BytesIO()
    named: dict[str, Any] = {}
    fastavro.parse_schema(PART, named)
    fastavro.schemaless_writer(written, fastavro.parse_schema(WHOLE, named), DATA.value)
    assert written.getvalue() == PAYLOAD

    long = number.to_bytes(8, "big")
    apicurio = ApicurioRegistry({"apicurio.registry.url": stack_registry.apicurio_url})
    forms: list[tuple[RegistryConverter, bytes, Headers]] = [
        (
            converter(confluent(stack_registry.confluent_url), confluent_framing("value")),
            b"\0" + long[4:] + PAYLOAD,
            (),
        ),
        (converter(apicurio, apicurio_framing("value")), b"\0" + long[4:] + PAYLOAD, ()),
        (converter(apicurio, apicurio_framing("value")), PAYLOAD, (("apicurio.value.contentId", long),)),
        (
            converter(apicurio, apicurio_framing("value")),
            PAYLOAD,
            (("apicurio.value.artifactId", whole.encode()), ("apicurio.value.version", b"1")),
        ),
    ]
    for each, document, headers in forms:
        assert each.to_connect_data(document, headers) == DATA


def test_a_schema_by_its_contents_hash(stack_registry: Registry, unique: Callable[[str], str]) -> None:
    """Apicurio's serializers send a content hash if they have no id."""
    text = json.dumps({"type": "record", "name": unique("R"), "fields": PART["fields"]})
    stack_registry.register(unique("hashed"), text)
    apicurio = ApicurioRegistry({"apicurio.registry.url": stack_registry.apicurio_url})
    headers = (("apicurio.value.contentHash", hashlib.sha256(text.encode()).hexdigest().encode()),)
    data = converter(apicurio, apicurio_framing("value")).to_connect_data(PAYLOAD, headers)
    assert data.value == {"a": 7}


def test_what_is_not_there(stack_registry: Registry) -> None:
    """An unknown id is an error of the record, a wrong path is fatal, and an unreachable registry is retriable."""
    document = b"\0" + (999_999).to_bytes(4, "big") + PAYLOAD
    apicurio = ApicurioRegistry({"apicurio.registry.url": stack_registry.apicurio_url})
    for each in (
        converter(confluent(stack_registry.confluent_url), confluent_framing("key")),
        converter(apicurio, apicurio_framing("key")),
    ):
        with pytest.raises(BadRecord, match="has no schema"):
            each.to_connect_data(document, ())
    with pytest.raises(ConfigError, match="there is no schema registry"):
        converter(confluent(f"{stack_registry.url}/apis"), confluent_framing("key")).to_connect_data(document, ())
    [port] = free_ports(1)
    with pytest.raises(Retriable, match="does not answer"):
        converter(confluent(f"http://{LOOPBACK}:{port}"), confluent_framing("key")).to_connect_data(document, ())
