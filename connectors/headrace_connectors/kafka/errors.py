"""aiokafka's errors as ours, by what to do about them: the one place where the Kafka edge translates."""

from __future__ import annotations

from aiokafka import errors as kafka

from headrace.core.model.errors import ConfigError, Fatal, Fenced, HeadraceError, Retriable

FENCED = (kafka.CommitFailedError, kafka.IllegalStateError, kafka.IllegalGenerationError, kafka.UnknownMemberIdError)
AUTHORIZATION = (
    kafka.TopicAuthorizationFailedError,
    kafka.GroupAuthorizationFailedError,
    kafka.ClusterAuthorizationFailedError,
)
CONFIGURATION = (
    kafka.InvalidSessionTimeoutError,
    kafka.InvalidGroupIdError,
    kafka.InconsistentGroupProtocolError,
    kafka.UnsupportedSaslMechanismError,
    kafka.AuthenticationFailedError,
    kafka.SaslAuthenticationFailed,
)

PASSING = (kafka.KafkaTimeoutError, kafka.KafkaUnavailableError, kafka.BrokerNotAvailableError)
"""Retriable errors in addition to those that aiokafka marks as retriable."""


def passes(error: BaseException) -> bool:
    """Whether the brokers are away or busy just now, so that the same request may succeed later."""
    if isinstance(error, kafka.KafkaError):
        return error.retriable or isinstance(error, PASSING)
    return isinstance(error, OSError)  # TimeoutError is one


def translated(error: BaseException, doing: str) -> HeadraceError:
    """Our error for ``error``, which happened while ``doing``; raise it ``from error``.

    What is not known to be permanent is Retriable: a task that restarts loses nothing, since offsets are committed only
    after the table commit.
    """
    if isinstance(error, HeadraceError):
        return error
    text = f"Kafka failed while {doing}: {type(error).__name__}: {error}"
    if isinstance(error, FENCED):
        return Fenced(text)
    if isinstance(error, AUTHORIZATION):
        return Fatal(f"{text}; grant the client's user this access, then restart the task")
    if isinstance(error, CONFIGURATION):
        return ConfigError(f"{text}; correct the client's properties")
    if isinstance(error, kafka.OffsetOutOfRangeError | kafka.NoOffsetForPartitionError):
        return Fatal(
            f"{text}; the group's offset is not in the topic any more and auto.offset.reset=none: "
            "set the offsets through the REST API, or choose earliest"
        )
    return Retriable(text)
