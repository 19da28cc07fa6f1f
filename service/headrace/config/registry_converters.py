"""Converters whose schemas stand in a registry, and their options (``connect.md`` section 13).

Tests: ``tests/unit/config/test_reselect_and_converter_options.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from headrace.config.keys_without_effect import TLS, options_without_effect
from headrace.config.tls import REFUSED, TlsSettings
from headrace.converters.protobuf_data import ProtobufOptions
from headrace.converters.registered import IdKind
from headrace.core.connect.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    Importance,
    InvalidValue,
    Type,
    any_case,
    at_least,
    parse_list,
)
from headrace.core.connect.typed_options import Layout, Read, definition, option

OAUTHBEARER = "OAUTHBEARER"
CONFLUENT_AVRO = "io.confluent.connect.avro.AvroConverter"
CONFLUENT_JSON = "io.confluent.connect.json.JsonSchemaConverter"
CONFLUENT_PROTOBUF = "io.confluent.connect.protobuf.ProtobufConverter"
APICURIO_AVRO = "io.apicurio.registry.utils.converter.AvroConverter"
APICURIO_JSON = "io.apicurio.registry.utils.converter.ExtJsonConverter"
APICURIO_PROTOBUF = "io.apicurio.registry.utils.converter.ProtobufConverter"
TOPIC_NAME_STRATEGY = "io.confluent.kafka.serializers.subject.TopicNameStrategy"
NO_CONTEXTS = "io.confluent.kafka.serializers.context.NullContextNameStrategy"

_READ_ONLY = "Configures how documents are written. It has no effect on a sink, which reads them."
_OPAQUE = "Has no effect: the token is sent as the provider returns it, and its claims are not read."
_OF_READING = "Accepted for compatibility with Kafka Connect. This value does not change how documents are read."


def _option(
    name: str,
    doc: str,
    option_type: Type = Type.STRING,
    default: Any = None,
    validator: Any = None,
    read: Read | None = None,
) -> Any:
    importance = Importance.HIGH if default is REQUIRED else Importance.LOW
    return option(name, option_type, default, doc, importance, validator, read=read, layout=Layout(display_name=name))


def _refused(doc: str, names: Iterable[str]) -> tuple[ConfigKey, ...]:
    def refuse(name: str, value: Any) -> None:
        if value:
            raise InvalidValue(f"Invalid value [hidden] for configuration {name}: it cannot be set. {doc}")

    return tuple(
        ConfigKey(name, Type.STRING, None, Importance.LOW, doc, display_name=name, validator=refuse) for name in names
    )


def _check_no_contexts(name: str, value: Any) -> None:
    if value not in (None, "", NO_CONTEXTS):
        raise InvalidValue(
            f"Invalid value {value} for configuration {name}: it is a Java class; put the registry's context at the "
            "end of schema.registry.url (…/contexts/.eu)"
        )


def _tls(prefix: str) -> Iterator[ConfigKey]:
    """Kafka's options of a TLS client behind ``prefix``, those without an effect, and those that are refused."""
    for key in definition(TlsSettings).with_prefix(prefix).keys:
        if not key.name.endswith(".client.auth"):
            yield replace(key, display_name=key.name)
    for name, reason in TLS.items():
        yield from options_without_effect(f"Has no effect: {reason}.", [f"{prefix}{name}"])
    for name, reason in REFUSED.items():
        yield from _refused(f"Is refused: {reason}.", [f"{prefix}{name}"])


@dataclass(frozen=True, slots=True)
class SchemaCacheOptions:
    """How many schemas a task keeps."""

    size: int = _option(
        "schemas.cache.config", "Maximum number of cached schemas of a task.", Type.INT, 1000, at_least(1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfluentOptions:
    """The connection to a registry with Confluent's API."""

    urls: tuple[str, ...] = _option(
        "schema.registry.url", "URLs of the registry, separated by commas; queried in turn.", Type.LIST, REQUIRED
    )
    credentials_source: str = _option(
        "basic.auth.credentials.source",
        "Source of user and password: URL (in schema.registry.url) or USER_INFO.",
        default="URL",
        validator=any_case("URL", "USER_INFO"),
        read=str.upper,
    )
    user_info: str | None = _option("basic.auth.user.info", "user:password for USER_INFO.", Type.PASSWORD)
    registry_user_info: str | None = _option(
        "schema.registry.basic.auth.user.info", "The same as basic.auth.user.info.", Type.PASSWORD
    )
    token_source: str | None = _option(
        "bearer.auth.credentials.source",
        "STATIC_TOKEN sends bearer.auth.token. OAUTHBEARER fetches tokens with the client's credentials.",
        validator=any_case("STATIC_TOKEN", OAUTHBEARER),
        read=str.upper,
    )
    token: str | None = _option("bearer.auth.token", "Bearer token.", Type.PASSWORD)
    logical_cluster: str | None = _option(
        "bearer.auth.logical.cluster", "Id of the registry's cluster, which is sent with the token."
    )
    identity_pool: str | None = _option(
        "bearer.auth.identity.pool.id", "Id of the identity pool, which is sent with the token."
    )
    issuer_url: str | None = _option(
        "bearer.auth.issuer.endpoint.url",
        "URL of the OAuth provider's token endpoint, for OAUTHBEARER. schema.registry.ssl.* apply to it as well.",
    )
    client_id: str | None = _option("bearer.auth.client.id", "Id of the client at the OAuth provider.")
    client_secret: str | None = _option("bearer.auth.client.secret", "Secret of that client.", Type.PASSWORD)
    scope: str | None = _option("bearer.auth.scope", "Scopes of the token, separated by spaces.")
    expiry_buffer: int = _option(
        "bearer.auth.cache.expiry.buffer.seconds",
        "Time before the end of a token at which the next one is fetched.",
        Type.SHORT,
        300,
        at_least(0),
    )
    proxy_host: str | None = _option("proxy.host", "Host of an HTTP proxy for the registry.")
    proxy_port: int | None = _option("proxy.port", "Port of that proxy.", Type.INT)


def _strategy(side: str) -> Any:
    return _option(
        f"{side}.subject.name.strategy",
        f"With this strategy, schemas of {side}s are queried within the subject of the topic's name and -{side}, "
        "so that contexts and roles apply. With any other, ids are queried without a subject.",
        default=TOPIC_NAME_STRATEGY,
    )


@dataclass(frozen=True, slots=True)
class SubjectOptions:
    """Within which subject the ids of schemas are queried."""

    key_strategy: str = _strategy("key")
    value_strategy: str = _strategy("value")
    context_strategy: str = _option(
        "context.name.strategy",
        "Contexts by topic need a Java class and are refused. Put a context at the end of schema.registry.url.",
        default=NO_CONTEXTS,
        validator=_check_no_contexts,
    )

    def by_topic(self, side: str) -> bool:
        """Whether the subject of a ``key`` or ``value`` follows from the topic's name."""
        return (self.key_strategy if side == "key" else self.value_strategy) in ("", TOPIC_NAME_STRATEGY)


_CONFLUENT = (
    *definition(ConfluentOptions).keys,
    *_tls("schema.registry.ssl."),
    *definition(SchemaCacheOptions).keys,
    *definition(SubjectOptions).keys,
    *options_without_effect(_OPAQUE, ("bearer.auth.scope.claim.name", "bearer.auth.sub.claim.name")),
    *_refused("It is a Java class; set bearer.auth.credentials.source.", ("bearer.auth.custom.provider.class",)),
    *options_without_effect(
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
_AVRO = options_without_effect(
    _OF_READING,
    (
        "enhanced.avro.schema.support",
        "allow.optional.map.keys",
        "flatten.singleton.unions",
        "discard.type.doc.default",
        "generalized.sum.type.support",
    ),
)
_JSON_SCHEMA = options_without_effect(
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


def _check_no_structs_for_nulls(name: str, value: Any) -> None:
    if value:
        raise InvalidValue(
            f"Invalid value true for configuration {name}: a null would become a struct of defaults, and the table "
            "would differ from its source; set it to false"
        )


_PROTOBUF = (
    *definition(ProtobufOptions).keys,
    ConfigKey(
        "generate.struct.for.nulls",
        Type.BOOLEAN,
        "false",
        Importance.LOW,
        "Only false is accepted: a table that equals its source keeps its nulls.",
        display_name="generate.struct.for.nulls",
        validator=_check_no_structs_for_nulls,
    ),
    *options_without_effect(_OF_READING, ("generalized.sum.type.support",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApicurioOptions:
    """The connection to Apicurio's own API, and which of its ids documents begin with."""

    urls: tuple[str, ...] = _option(
        "apicurio.registry.url", "URL of the registry with …/apis/registry/v2 or v3.", default=REQUIRED, read=parse_list
    )
    user: str | None = _option("apicurio.registry.auth.username", "User for basic authentication.")
    password: str | None = _option(
        "apicurio.registry.auth.password", "Password for basic authentication.", Type.PASSWORD
    )
    use_id: str | None = _option(
        "apicurio.registry.use-id",
        "Kind of the ids before documents: contentId or globalId. If not set, ids of eight bytes are global ids, "
        "and ids of four bytes are content ids.",
        validator=any_case("contentId", "globalId"),
    )

    @property
    def id_kind(self) -> IdKind | None:
        """The type of the ids; None if their length determines it."""
        return None if self.use_id is None else IdKind(self.use_id)


_APICURIO = (
    *definition(ApicurioOptions).keys,
    *_tls("apicurio.registry.request.ssl."),
    *definition(SchemaCacheOptions).keys,
    *options_without_effect(
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
    *options_without_effect(
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
