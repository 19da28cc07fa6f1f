"""Converters whose schemas stand in a registry, and their options (``connect.md`` section 13)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.core.connect.config_def import REQUIRED, ConfigDef, ConfigKey, Importance, Type
from headrace.core.connect.config_validators import InvalidValue, Validator, any_case, at_least

CONFLUENT_AVRO = "io.confluent.connect.avro.AvroConverter"
CONFLUENT_JSON = "io.confluent.connect.json.JsonSchemaConverter"
CONFLUENT_PROTOBUF = "io.confluent.connect.protobuf.ProtobufConverter"
APICURIO_AVRO = "io.apicurio.registry.utils.converter.AvroConverter"
APICURIO_JSON = "io.apicurio.registry.utils.converter.ExtJsonConverter"
APICURIO_PROTOBUF = "io.apicurio.registry.utils.converter.ProtobufConverter"
TOPIC_NAME_STRATEGY = "io.confluent.kafka.serializers.subject.TopicNameStrategy"
NO_CONTEXTS = "io.confluent.kafka.serializers.context.NullContextNameStrategy"

_READ_ONLY = "Says how documents are written; a sink reads them, whatever stands here."
_JAVA = "Of Java key stores, which are refused."
_OF_TLS = "Accepted for Kafka Connect's sake: the newest protocol that both sides know is spoken."
_OF_READING = "Accepted for Kafka Connect's sake: documents are read the same way, whatever stands here."


def _key(
    name: str, doc: str, kind: Type = Type.STRING, default: Any = None, validator: Validator | None = None
) -> ConfigKey:
    importance = Importance.HIGH if default is REQUIRED else Importance.LOW
    return ConfigKey(name, kind, default, importance, doc, display_name=name, validator=validator)


def _without_effect(doc: str, names: Iterable[str]) -> tuple[ConfigKey, ...]:
    return tuple(_key(name, doc) for name in names)


def _no_java_store(name: str, value: Any) -> None:
    if value:
        raise InvalidValue(
            f"Invalid value [hidden] for configuration {name}: it belongs to a Java key store; certificates are read "
            "from PEM files, which have none"
        )


def _no_key_in_place(name: str, value: Any) -> None:
    if value:
        raise InvalidValue(
            f"Invalid value [hidden] for configuration {name}: a client's key and certificates are read from the PEM "
            "file of keystore.location"
        )


def _no_contexts(name: str, value: Any) -> None:
    if value not in (None, "", NO_CONTEXTS):
        raise InvalidValue(
            f"Invalid value {value} for configuration {name}: it is a Java class; put the registry's context at the "
            "end of schema.registry.url (…/contexts/.eu)"
        )


def _tls(prefix: str) -> tuple[ConfigKey, ...]:
    return (
        _key(f"{prefix}truststore.location", "PEM file of the certificate authorities to trust."),
        _key(f"{prefix}truststore.certificates", "The same certificates in place, as PEM."),
        _key(f"{prefix}truststore.type", "PEM is read.", default="PEM"),
        _key(
            f"{prefix}truststore.password",
            "Of Java key stores, which are refused.",
            Type.PASSWORD,
            None,
            _no_java_store,
        ),
        _key(f"{prefix}keystore.location", "PEM file with the client's key and certificates."),
        _key(f"{prefix}keystore.type", "PEM is read.", default="PEM"),
        _key(
            f"{prefix}keystore.password", "Of Java key stores, which are refused.", Type.PASSWORD, None, _no_java_store
        ),
        _key(f"{prefix}key.password", "Password of the client's key.", Type.PASSWORD),
        _key(
            f"{prefix}endpoint.identification.algorithm",
            "https compares the registry's name with its certificate; empty does not.",
            default="https",
        ),
        _key(f"{prefix}keystore.key", "Refused: keystore.location.", Type.PASSWORD, None, _no_key_in_place),
        _key(f"{prefix}keystore.certificate.chain", "The same.", Type.PASSWORD, None, _no_key_in_place),
        *_without_effect(_OF_TLS, (f"{prefix}{name}" for name in ("protocol", "enabled.protocols", "cipher.suites"))),
    )


_CACHE = (_key("schemas.cache.config", "How many schemas of a task are remembered.", Type.INT, "1000", at_least(1)),)
_CONFLUENT = (
    _key("schema.registry.url", "URLs of the registry, separated by commas; asked in turn.", Type.LIST, REQUIRED),
    _key(
        "basic.auth.credentials.source",
        "Where user and password are: URL (in schema.registry.url) or USER_INFO.",
        default="URL",
        validator=any_case("URL", "USER_INFO"),
    ),
    _key("basic.auth.user.info", "user:password for USER_INFO.", Type.PASSWORD),
    _key("schema.registry.basic.auth.user.info", "The same.", Type.PASSWORD),
    _key(
        "bearer.auth.credentials.source",
        "STATIC_TOKEN sends bearer.auth.token.",
        validator=any_case("STATIC_TOKEN"),
    ),
    _key("bearer.auth.token", "The token.", Type.PASSWORD),
    _key("bearer.auth.logical.cluster", "The registry's cluster, which is sent with the token."),
    _key("bearer.auth.identity.pool.id", "The identity pool, which is sent with the token."),
    _key("proxy.host", "Host of an HTTP proxy before the registry."),
    _key("proxy.port", "Its port.", Type.INT),
    *_tls("schema.registry.ssl."),
    *_CACHE,
    *(
        _key(
            f"{side}.subject.name.strategy",
            f"By this one, schemas of {side}s are asked for within the subject of the topic's name and -{side}, so "
            "that contexts and roles count. By any other, ids are asked for alone.",
            default=TOPIC_NAME_STRATEGY,
        )
        for side in ("key", "value")
    ),
    _key(
        "context.name.strategy",
        "Contexts by topic, which a Java class would name; a context stands at the end of schema.registry.url.",
        default=NO_CONTEXTS,
        validator=_no_contexts,
    ),
    *_without_effect(
        _READ_ONLY,
        (
            "auto.register.schemas",
            "use.latest.version",
            "normalize.schemas",
            "latest.compatibility.strict",
            "id.compatibility.strict",
            "max.schemas.per.subject",
            "connect.meta.data",
            "scrub.invalid.names",
        ),
    ),
)
_AVRO = _without_effect(
    _OF_READING,
    (
        "enhanced.avro.schema.support",
        "allow.optional.map.keys",
        "flatten.singleton.unions",
        "discard.type.doc.default",
        "generalized.sum.type.support",
    ),
)
_JSON_SCHEMA = _without_effect(
    _OF_READING,
    (
        "object.additional.properties",
        "use.optional.for.nonrequired",
        "decimal.format",
        "flatten.singleton.unions",
        "generalized.sum.type.support",
        "oneof.for.nullables",
        "json.fail.invalid.schema",
        "json.schema.spec.version",
    ),
)
PROTOBUF_OPTIONS = {
    "enhanced.protobuf.schema.support": ("full_names", "false", "Names messages with their package."),
    "int.for.enums": ("int_for_enums", "false", "Gives enums as their numbers and not as their names."),
    "optional.for.nullables": ("optional_for_nullables", "false", "Only fields that say optional may be null."),
    "optional.for.proto2": ("optional_for_proto2", "true", "Whether fields of proto2 that are not set are null."),
    "wrapper.for.nullables": ("wrapper_for_nullables", "false", "Only messages and wrappers may be null."),
    "wrapper.for.raw.primitives": ("wrapper_for_raw_primitives", "true", "Gives wrappers as the values in them."),
    "generate.index.for.unions": ("index_for_unions", "true", "Puts the place of a oneof behind its name: choice_0."),
    "flatten.unions": ("flatten_unions", "false", "Gives the members of a oneof as fields, not as a struct."),
}
"""Options of Confluent's ProtobufConverter by name: the field of ``ProtobufOptions``, default and documentation."""


def _no_structs_for_nulls(name: str, value: Any) -> None:
    if value:
        raise InvalidValue(
            f"Invalid value true for configuration {name}: a null would become a struct of defaults, and the table "
            "would differ from its source; set it to false"
        )


_PROTOBUF = (
    *(_key(name, doc, Type.BOOLEAN, default) for name, (_, default, doc) in PROTOBUF_OPTIONS.items()),
    _key(
        "generate.struct.for.nulls",
        "Only false is accepted: a table that equals its source keeps its nulls.",
        Type.BOOLEAN,
        "false",
        _no_structs_for_nulls,
    ),
    *_without_effect(_OF_READING, ("generalized.sum.type.support",)),
)
_APICURIO = (
    _key("apicurio.registry.url", "URL of the registry with …/apis/registry/v2 or v3.", default=REQUIRED),
    _key("apicurio.registry.auth.username", "User for basic authentication."),
    _key("apicurio.registry.auth.password", "Its password.", Type.PASSWORD),
    _key(
        "apicurio.registry.use-id",
        "What the ids before documents count: contentId or globalId. If it is not set, ids of eight bytes are global "
        "ids and those of four are content ids.",
        validator=any_case("contentId", "globalId"),
    ),
    *_tls("apicurio.registry.request.ssl."),
    *_CACHE,
    *_without_effect(
        _READ_ONLY,
        (
            "apicurio.registry.auto-register",
            "apicurio.registry.auto-register.if-exists",
            "apicurio.registry.find-latest",
            "apicurio.registry.artifact-resolver-strategy",
            "apicurio.registry.artifact.group-id",
            "apicurio.registry.artifact.artifact-id",
            "apicurio.registry.artifact.version",
            "apicurio.registry.avro.encoding",
            "apicurio.registry.dereference-schema",
            "apicurio.registry.converter.serializer",
            "apicurio.registry.converter.deserializer",
        ),
    ),
    *_without_effect(
        "Not needed for reading: ids are found in headers or before the document, of four bytes or of eight.",
        (
            "apicurio.registry.headers.enabled",
            "apicurio.registry.id-handler",
            "apicurio.registry.as-confluent",
            "apicurio.registry.check-period-ms",
        ),
    ),
)

REGISTRY_CONVERTERS: dict[str, ConfigDef] = {
    CONFLUENT_AVRO: ConfigDef((*_CONFLUENT, *_AVRO)),
    CONFLUENT_JSON: ConfigDef((*_CONFLUENT, *_JSON_SCHEMA)),
    CONFLUENT_PROTOBUF: ConfigDef((*_CONFLUENT, *_PROTOBUF)),
    APICURIO_AVRO: ConfigDef((*_APICURIO, *_AVRO)),
    APICURIO_JSON: ConfigDef(_APICURIO),
    APICURIO_PROTOBUF: ConfigDef(_APICURIO),
}
"""Key and value converters by class."""
