"""The metadata that Confluent's converters store in a field's options: ``(confluent.field_meta).params``.

It is extension 1088 of the options. It is read as an independent message, whose other fields are ignored, so that
nothing has to be registered in the default pool of the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_NUMBER = 1088


def _options() -> Any:
    file = FileDescriptorProto(name="headrace/meta.proto", package="headrace", syntax="proto3")
    meta = file.message_type.add(name="Meta")
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=FieldDescriptorProto.TYPE_STRING)
    repeated = FieldDescriptorProto.LABEL_REPEATED
    meta.field.add(name="params", number=2, label=repeated, type_name=".headrace.Meta.ParamsEntry")
    file.message_type.add(name="Options").field.add(name="field_meta", number=_NUMBER, type_name=".headrace.Meta")
    for message in (meta, file.message_type[1]):
        message.field[0].type = FieldDescriptorProto.TYPE_MESSAGE
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("headrace.Options"))


_Options = _options()


def encoded(params: Mapping[str, str]) -> bytes:
    """Encode field options that contain only these parameters."""
    options = _Options()
    options.field_meta.params.update(params)
    return bytes(options.SerializeToString())


def params(options: bytes) -> dict[str, str]:
    """Return the parameters in a field's options."""
    return dict(_Options.FromString(options).field_meta.params)
