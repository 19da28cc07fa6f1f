"""The options of Confluent's ProtobufConverter for reading messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.core.connect.config_def import Importance, Type
from headrace.core.connect.typed_options import Layout, option


def _switch(name: str, default: bool, doc: str) -> Any:
    return option(name, Type.BOOLEAN, default, doc, Importance.LOW, layout=Layout(display_name=name))


@dataclass(frozen=True, slots=True)
class ProtobufOptions:
    """How Confluent's converter reads messages, with its defaults."""

    full_names: bool = _switch(
        "enhanced.protobuf.schema.support", False, "Includes the package in the names of messages."
    )
    int_for_enums: bool = _switch("int.for.enums", False, "Reads enums as their numbers instead of their names.")
    optional_for_nullables: bool = _switch(
        "optional.for.nullables", False, "Only fields declared optional may be null."
    )
    optional_for_proto2: bool = _switch(
        "optional.for.proto2", True, "Whether fields of proto2 that are not set are null."
    )
    wrapper_for_nullables: bool = _switch("wrapper.for.nullables", False, "Only messages and wrappers may be null.")
    wrapper_for_raw_primitives: bool = _switch(
        "wrapper.for.raw.primitives", True, "Reads wrappers as the values in them."
    )
    index_for_unions: bool = _switch("generate.index.for.unions", True, "Appends the index of a oneof to its name.")
    flatten_unions: bool = _switch(
        "flatten.unions", False, "Reads the members of a oneof as fields instead of a struct."
    )
