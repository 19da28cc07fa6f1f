"""Load the registry's Protobuf schemas: each with everything that it imports, in its own descriptor pool."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from google.protobuf import (
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import DESCRIPTOR, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from headrace.converters.protobuf_text import described
from headrace.converters.registered import RegisteredSchema
from headrace.core.model.errors import BadRecord

ROOT = "schema.proto"
"""The file name of a schema that was fetched by its id."""

_GOOGLE = {
    module.name: module.serialized_pb
    for module in (
        DESCRIPTOR,
        *(any_pb2.DESCRIPTOR, duration_pb2.DESCRIPTOR, empty_pb2.DESCRIPTOR, field_mask_pb2.DESCRIPTOR),
        *(struct_pb2.DESCRIPTOR, timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR),
    )
}
_BUILT_IN = {
    "confluent/meta.proto": 'syntax = "proto3"; package confluent;',  # protobuf_meta.py reads its extension
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type; '
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    ),
    "confluent/types/decimal.proto": (  # its former path
        'syntax = "proto3"; import public "confluent/type/decimal.proto";'
    ),
    "google/type/date.proto": (
        'syntax = "proto3"; package google.type; message Date { int32 year = 1; int32 month = 2; int32 day = 3; }'
    ),
    "google/type/timeofday.proto": (
        'syntax = "proto3"; package google.type; '
        "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"
    ),
}
"""Files that schemas import without a reference, because converters contain them."""


def loaded(registered: RegisteredSchema) -> Any:
    """Return a schema as a ``FileDescriptor``. Raises BadRecord for a schema that cannot be loaded."""
    pool = DescriptorPool()
    _add(pool, registered, ROOT, set())
    return pool.FindFileByName(ROOT)


def _add(pool: Any, registered: RegisteredSchema, name: str, known: set[str]) -> None:
    """Add a schema and its imports to the pool, imports first."""
    if name in known:
        return
    known.add(name)
    file = _file(registered.text, name)
    for imported in file.dependency:
        reference = registered.references.get(imported)
        if reference is not None:
            _add(pool, reference, imported, known)
        elif imported in _BUILT_IN:
            _add(pool, RegisteredSchema(_BUILT_IN[imported], "PROTOBUF"), imported, known)
        elif imported not in known:
            known.add(imported)
            if imported not in _GOOGLE:
                raise BadRecord(
                    f"the Protobuf schema imports {imported}, which is not among its references in the registry"
                )
            _put(pool, FileDescriptorProto.FromString(bytes(_GOOGLE[imported])))
    _put(pool, file)


def _put(pool: Any, file: FileDescriptorProto) -> None:
    try:
        pool.Add(file)
        pool.FindFileByName(file.name)
    except (TypeError, KeyError) as error:
        raise BadRecord(f"the registry's Protobuf schema cannot be loaded: {error}") from error


def _file(text: str, name: str) -> FileDescriptorProto:
    """Parse a schema: text, or a descriptor in base64; registries store either."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return described(text, name)
    file.name = name
    return file
