"""Errors of aiokafka are classified as transient or permanent."""

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
def test_transient_errors(error: type[Exception], passing: bool) -> None:
    """Errors of unavailable or busy brokers are transient; refusals by configuration or authorization are not."""
    assert is_transient(error()) is passing
