"""Keys of a Kafka Connect worker that are no options here: passed on, without effect, or refused with a reason."""

from __future__ import annotations

from headrace.config.tls import NO_EFFECT

PASS_THROUGH = ("consumer.", "producer.", "admin.", "spark.", "key.converter.", "value.converter.", "header.converter.")
"""Keys that go on as they are to Kafka's clients, to Spark and to converters."""

CLIENT_SECURITY = ("security.", "sasl.", "ssl.")
"""Top-level client keys: they hold for the worker's own clients, and for consumers that say nothing else."""

CREATED_TOPICS = ("config.storage.", "status.storage.")
"""Behind these, settings of the topics that the worker creates."""

_OFFSETS = "a sink's offsets are stored in its consumer group and in the table commits"
_CLIENTS = "the worker's own clients use fixed values; consumer.* and producer.* configure those of tasks"
_SYSTEM = "the operating system's value applies"
_METRICS = "metrics are served on /metrics"
_FLUSH = "offsets are committed after every table commit"
_MEMBERS = "workers use their own protocol, and read the config topic continuously"

WITHOUT_EFFECT = {
    "plugin.path": "connectors are Python entry points",
    "plugin.discovery": "connectors are Python entry points",
    "offset.storage.*": _OFFSETS,
    "config.storage.partitions": "the config topic always has one partition",
    "offset.flush.interval.ms": _FLUSH,
    "offset.flush.timeout.ms": _FLUSH,
    "internal.topics.automatic.creation.enable": "missing storage topics are created",
    "internal.key.converter*": "Kafka Connect has removed it; the worker stores JSON",
    "internal.value.converter*": "Kafka Connect has removed it; the worker stores JSON",
    "scheduled.rebalance.max.delay.ms": "the tasks of a worker that has left the group move at once",
    "connect.protocol": _MEMBERS,
    "worker.sync.timeout.ms": _MEMBERS,
    "worker.unsync.backoff.ms": _MEMBERS,
    "inter.worker.*": "workers forward requests with the credentials of their callers, and sign none",
    "exactly.once.source.support": "there are no source connectors",
    "topic.creation.enable": "there are no source connectors",
    **{f"listeners.https.ssl.{name}": reason for name, reason in NO_EFFECT.items()},
    "metric.reporters": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "enable.metrics.push": _METRICS,
    "metrics.*": _METRICS,
    "client.dns.lookup": "the clients try every address of a host",
    "send.buffer.bytes": _SYSTEM,
    "receive.buffer.bytes": _SYSTEM,
    "security.providers": "it names Java classes",
    "request.timeout.ms": _CLIENTS,
    "retry.backoff.ms": _CLIENTS,
    "retry.backoff.max.ms": _CLIENTS,
    "reconnect.backoff.ms": _CLIENTS,
    "reconnect.backoff.max.ms": _CLIENTS,
    "metadata.max.age.ms": _CLIENTS,
    "metadata.recovery.*": _CLIENTS,
    "connections.max.idle.ms": _CLIENTS,
    "socket.connection.setup.timeout.*": _CLIENTS,
}
"""Keys that mean nothing here, * for any that begin so: accepted with a warning, so that a file can be moved over."""

TOPIC_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "compression.type",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""Kafka's settings of topics."""


def without_effect(name: str) -> str | None:
    """Why a key has no effect, None for one that has, or that nobody knows."""
    if name in WITHOUT_EFFECT:
        return WITHOUT_EFFECT[name]
    begins = (reason for key, reason in WITHOUT_EFFECT.items() if key.endswith("*") and name.startswith(key[:-1]))
    return next(begins, None)


def of_a_created_topic(name: str) -> bool:
    """Whether a key is a setting of a storage topic."""
    return any(name.startswith(prefix) and name[len(prefix) :] in TOPIC_SETTINGS for prefix in CREATED_TOPICS)
