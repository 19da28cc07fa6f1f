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

_READ_ONLY = "Configures how documents are written. It has no effect on a sink, which reads them."
_OF_JAVA = "Belongs to a Java key store, which is refused."
_OF_TLS = "Accepted for compatibility with Kafka Connect. Connections use the newest protocol that both sides support."
_OF_READING = "Accepted for compatibility with Kafka Connect. This value does not change how documents are read."


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
        _key(f"{prefix}truststore.certificates", "The same certificates as PEM text."),
        _key(f"{prefix}truststore.type", "Format of the file: PEM.", default="PEM"),
        _key(
            f"{prefix}truststore.password",
            _OF_JAVA,
            Type.PASSWORD,
            None,
            _no_java_store,
        ),
        _key(f"{prefix}keystore.location", "PEM file with the client's key and certificates."),
        _key(f"{prefix}keystore.type", "Format of the file: PEM.", default="PEM"),
        _key(f"{prefix}keystore.password", _OF_JAVA, Type.PASSWORD, None, _no_java_store),
        _key(f"{prefix}key.password", "Password of the client's key.", Type.PASSWORD),
        _key(
            f"{prefix}endpoint.identification.algorithm",
            "https verifies the registry's name against its certificate; empty does not.",
            default="https",
        ),
        _key(f"{prefix}keystore.key", "Refused; use keystore.location.", Type.PASSWORD, None, _no_key_in_place),
        _key(
            f"{prefix}keystore.certificate.chain",
            "Refused; use keystore.location.",
            Type.PASSWORD,
            None,
            _no_key_in_place,
        ),
        *_without_effect(_OF_TLS, (f"{prefix}{name}" for name in ("protocol", "enabled.protocols", "cipher.suites"))),
    )


_CACHE = (_key("schemas.cache.config", "Maximum number of cached schemas of a task.", Type.INT, "1000", at_least(1)),)
_CONFLUENT = (
    _key("schema.registry.url", "URLs of the registry, separated by commas; queried in turn.", Type.LIST, REQUIRED),
    _key(
        "basic.auth.credentials.source",
        "Source of user and password: URL (in schema.registry.url) or USER_INFO.",
        default="URL",
        validator=any_case("URL", "USER_INFO"),
    ),
    _key("basic.auth.user.info", "user:password for USER_INFO.", Type.PASSWORD),
    _key("schema.registry.basic.auth.user.info", "The same as basic.auth.user.info.", Type.PASSWORD),
    _key(
        "bearer.auth.credentials.source",
        "STATIC_TOKEN sends bearer.auth.token.",
        validator=any_case("STATIC_TOKEN"),
    ),
    _key("bearer.auth.token", "Bearer token.", Type.PASSWORD),
    _key("bearer.auth.logical.cluster", "Id of the registry's cluster, which is sent with the token."),
    _key("bearer.auth.identity.pool.id", "Id of the identity pool, which is sent with the token."),
    _key("proxy.host", "Host of an HTTP proxy for the registry."),
    _key("proxy.port", "Port of that proxy.", Type.INT),
    *_tls("schema.registry.ssl."),
    *_CACHE,
    *(
        _key(
            f"{side}.subject.name.strategy",
            f"With this strategy, schemas of {side}s are queried within the subject of the topic's name and -{side}, "
            "so that contexts and roles apply. With any other, ids are queried without a subject.",
            default=TOPIC_NAME_STRATEGY,
        )
        for side in ("key", "value")
    ),
    _key(
        "context.name.strategy",
        "Contexts by topic need a Java class and are refused. Put a context at the end of schema.registry.url.",
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
    "enhanced.protobuf.schema.support": ("full_names", "false", "Includes the package in the names of messages."),
    "int.for.enums": ("int_for_enums", "false", "Reads enums as their numbers instead of their names."),
    "optional.for.nullables": ("optional_for_nullables", "false", "Only fields declared optional may be null."),
    "optional.for.proto2": ("optional_for_proto2", "true", "Whether fields of proto2 that are not set are null."),
    "wrapper.for.nullables": ("wrapper_for_nullables", "false", "Only messages and wrappers may be null."),
    "wrapper.for.raw.primitives": ("wrapper_for_raw_primitives", "true", "Reads wrappers as the values in them."),
    "generate.index.for.unions": ("index_for_unions", "true", "Appends the index of a oneof to its name."),
    "flatten.unions": ("flatten_unions", "false", "Reads the members of a oneof as fields instead of a struct."),
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
    _key("apicurio.registry.auth.password", "Password for basic authentication.", Type.PASSWORD),
    _key(
        "apicurio.registry.use-id",
        "Kind of the ids before documents: contentId or globalId. If not set, ids of eight bytes are global ids, "
        "and ids of four bytes are content ids.",
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
        "Not needed for reading: Headrace finds ids in headers or before the document, with four or eight bytes.",
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
