"""Kafka's Java client properties: their names in aiokafka, and those that are rejected or have no effect.

Tests: ``tests/unit/kafka/test_settings.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

Argument = tuple[str, Callable[[str], Any]]


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.strip().lower() == "true"


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None  # int() shows the text, which may be a secret


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip() not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return text.strip()

    return parse


def _mechanism(text: str) -> str:
    """Return the mechanism for aiokafka: MSK accepts tokens for AWS_MSK_IAM as OAUTHBEARER."""
    name = _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")(text)
    return "OAUTHBEARER" if name == "AWS_MSK_IAM" else name


CLIENT: Mapping[str, Argument] = {
    "bootstrap.servers": ("bootstrap_servers", str.strip),
    "client.id": ("client_id", str),
    "security.protocol": ("security_protocol", _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    "sasl.mechanism": ("sasl_mechanism", _mechanism),
    "sasl.kerberos.service.name": ("sasl_kerberos_service_name", str.strip),
    "request.timeout.ms": ("request_timeout_ms", _integer),
    "retry.backoff.ms": ("retry_backoff_ms", _integer),
    "metadata.max.age.ms": ("metadata_max_age_ms", _integer),
    "connections.max.idle.ms": ("connections_max_idle_ms", _integer),
}
CONSUMER: Mapping[str, Argument] = {
    **CLIENT,
    "group.id": ("group_id", str),
    "group.instance.id": ("group_instance_id", str),
    "session.timeout.ms": ("session_timeout_ms", _integer),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", _integer),
    "rebalance.timeout.ms": ("rebalance_timeout_ms", _integer),
    "auto.offset.reset": ("auto_offset_reset", _one_of("earliest", "latest", "none")),
    "isolation.level": ("isolation_level", _one_of("read_committed", "read_uncommitted")),
    "fetch.min.bytes": ("fetch_min_bytes", _integer),
    "fetch.max.bytes": ("fetch_max_bytes", _integer),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", _integer),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", _integer),
    "max.poll.records": ("max_poll_records", _integer),
    "check.crcs": ("check_crcs", _boolean),
    "exclude.internal.topics": ("exclude_internal_topics", _boolean),
    "client.rack": ("client_rack", str),
}
PRODUCER: Mapping[str, Argument] = {
    **CLIENT,
    "compression.type": ("compression_type", lambda text: None if text == "none" else text),
    "linger.ms": ("linger_ms", _integer),
    "batch.size": ("max_batch_size", _integer),
    "max.request.size": ("max_request_size", _integer),
}
"""``acks`` and ``enable.idempotence`` are not here: a dead letter must be durable, so they are fixed."""

_BYTES = "org.apache.kafka.common.serialization.ByteArray"
DONE_ANYWAY: Mapping[str, Collection[str]] = {
    "enable.auto.commit": ("false",),
    "key.deserializer": (f"{_BYTES}Deserializer",),
    "value.deserializer": (f"{_BYTES}Deserializer",),
    "group.protocol": ("classic",),
    "acks": ("all", "-1"),
    "enable.idempotence": ("true",),
    "key.serializer": (f"{_BYTES}Serializer",),
    "value.serializer": (f"{_BYTES}Serializer",),
    "sasl.client.callback.handler.class": ("software.amazon.msk.auth.iam.IAMClientCallbackHandler",),
}
"""Accepted values of properties that are otherwise rejected: they equal the fixed behaviour."""

_KERBEROS = (
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
)
_OF_BROKERS = (
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
)
_ASSERTIONS = tuple(
    f"sasl.oauthbearer.assertion.{name}"
    for name in (
        "algorithm",
        "claim.aud",
        "claim.exp.seconds",
        "claim.iss",
        "claim.jti.include",
        "claim.nbf.seconds",
        "claim.sub",
        "file",
        "private.key.file",
        "private.key.passphrase",
        "template.file",
    )
)

REFUSED: Mapping[str, str] = {
    "enable.auto.commit": "offsets are committed after the table commit, never by the consumer on its own",
    "key.deserializer": "records are decoded by key.converter",
    "value.deserializer": "records are decoded by value.converter",
    "interceptor.classes": "interceptors are Java classes",
    "partition.assignment.strategy": "a topic must belong to one task, which Headrace's own strategy ensures",
    "group.protocol": "the client speaks the classic group protocol",
    "sasl.client.callback.handler.class": "it is a Java class; use SCRAM, PLAIN or OAUTHBEARER",
    "sasl.login.class": "it is a Java class; use SCRAM, PLAIN or OAUTHBEARER",
    **dict.fromkeys(_ASSERTIONS, "signed assertions are not supported; use a client secret, or a file with the token"),
    "acks": "a dead letter is acknowledged by all replicas",
    "enable.idempotence": "dead letters are always written idempotently",
    "key.serializer": "dead letters are written as they came",
    "value.serializer": "dead letters are written as they came",
    "transactional.id": "dead letters are written without transactions",
    "partitioner.class": "it is a Java class",
    "security.providers": "they are Java classes",
}

_UNTIL_WRITTEN = "a task waits until its dead letters are written"
_LEVEL = "each codec's own level is used"
_PARTITIONS = "dead letters are spread by key, those without one at random"
_METRICS = "metrics are served at /metrics"
IGNORED: Mapping[str, str] = {
    "max.poll.interval.ms": "a slow write never costs the membership here",
    "default.api.timeout.ms": "the client has no such timeout",
    "allow.auto.create.topics": "topics are subscribed by pattern, which never creates one",
    "receive.buffer.bytes": "left to the operating system",
    "send.buffer.bytes": "left to the operating system",
    "reconnect.backoff.ms": "the client uses retry.backoff.ms",
    "reconnect.backoff.max.ms": "the client uses retry.backoff.ms",
    "retry.backoff.max.ms": "the client uses retry.backoff.ms",
    "client.dns.lookup": "every address of a host is tried",
    "socket.connection.setup.timeout.ms": "request.timeout.ms bounds it",
    "socket.connection.setup.timeout.max.ms": "request.timeout.ms bounds it",
    "metadata.max.idle.ms": "the client knows its own topics only",
    "metadata.recovery.strategy": "the client keeps to the brokers that it knows",
    "metadata.recovery.rebootstrap.trigger.ms": "the client keeps to the brokers that it knows",
    "retries": "the client tries for as long as it takes, or until request.timeout.ms",
    "delivery.timeout.ms": _UNTIL_WRITTEN,
    "max.block.ms": _UNTIL_WRITTEN,
    "buffer.memory": _UNTIL_WRITTEN,
    "max.in.flight.requests.per.connection": "the client keeps dead letters in order, with one request at a time",
    "transaction.timeout.ms": "dead letters are written without transactions",
    "compression.gzip.level": _LEVEL,
    "compression.lz4.level": _LEVEL,
    "compression.zstd.level": _LEVEL,
    "partitioner.ignore.keys": _PARTITIONS,
    "partitioner.adaptive.partitioning.enable": _PARTITIONS,
    "partitioner.availability.timeout.ms": _PARTITIONS,
    **dict.fromkeys(_KERBEROS, "the Kerberos library gets and renews tickets by its own configuration"),
    **dict.fromkeys(_OF_BROKERS, "the broker verifies the token"),
    "metric.reporters": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "enable.metrics.push": _METRICS,
}
"""Properties that only Kafka's Java client has. They are accepted with a warning."""
