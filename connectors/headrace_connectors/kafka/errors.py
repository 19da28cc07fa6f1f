"""Translate aiokafka's errors to Headrace's, by remedy. All modules of this package use these functions."""

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

TRANSIENT = (kafka.KafkaTimeoutError, kafka.KafkaUnavailableError, kafka.BrokerNotAvailableError)
"""Retriable errors in addition to those that aiokafka marks as retriable."""


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed later, because brokers are unavailable or busy."""
    if isinstance(error, kafka.KafkaError):
        return error.retriable or isinstance(error, TRANSIENT)
    return isinstance(error, OSError)  # TimeoutError is one


def headrace_error(error: BaseException, operation: str) -> HeadraceError:
    """Return the HeadraceError for an error during ``operation``, to be raised ``from error``.

    An error that is not known to be permanent is Retriable. A restarted task loses nothing, because offsets are
    committed only after the table commit.
    """
    if isinstance(error, HeadraceError):
        return error
    text = f"Kafka failed while {operation}: {type(error).__name__}: {error}"
    if isinstance(error, FENCED):
        return Fenced(text)
    if isinstance(error, AUTHORIZATION):
        return Fatal(f"{text}; grant the client's user this access, then restart the task")
    if isinstance(error, CONFIGURATION):
        return ConfigError(f"{text}; correct the client's properties")
    if isinstance(error, kafka.OffsetOutOfRangeError | kafka.NoOffsetForPartitionError):
        return Fatal(
            f"{text}: the topic no longer contains the group's offset, and auto.offset.reset=none; set the offsets "
            "through the REST API, or choose auto.offset.reset=earliest"
        )
    return Retriable(text)
