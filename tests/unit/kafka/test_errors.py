"""aiokafka's errors, sorted by what to do about them."""

from __future__ import annotations

import pytest
from aiokafka import errors as kafka

from headrace_connectors.kafka.errors import is_transient


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (kafka.KafkaConnectionError, True),
        (kafka.NodeNotReadyError, True),
        (kafka.NotControllerError, True),
        (kafka.RequestTimedOutError, True),
        (kafka.KafkaTimeoutError, True),
        (kafka.BrokerNotAvailableError, True),
        (ConnectionResetError, True),
        (TimeoutError, True),
        (kafka.InvalidReplicationFactorError, False),
        (kafka.TopicAuthorizationFailedError, False),
        (kafka.InvalidTopicError, False),
        (kafka.PolicyViolationError, False),
        (kafka.SaslAuthenticationFailed, False),
        (ValueError, False),
    ],
)
def test_what_passes_by_itself(error: type[Exception], passing: bool) -> None:
    """Brokers that are away or busy are asked again; what they refuse for good is not."""
    assert is_transient(error()) is passing
