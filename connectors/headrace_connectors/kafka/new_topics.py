"""Topics that a worker or a task makes where they are missing."""

from __future__ import annotations

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import NotControllerError, RequestTimedOutError, TopicAlreadyExistsError, for_code


async def create_topic(admin: AIOKafkaAdminClient, topic: NewTopic) -> None:
    """Create ``topic`` unless it exists. Raises KafkaError."""
    try:
        answer = await admin.create_topics([topic])
    except AttributeError as error:  # it asks the cluster's controller, which is None where there is none
        raise NotControllerError("the cluster has no controller just now") from error
    except TimeoutError as error:
        raise RequestTimedOutError("the cluster's controller does not answer") from error
    for _, code, *message in answer.topic_errors:  # it does not raise
        refusal = for_code(code)
        if code != 0 and refusal is not TopicAlreadyExistsError:
            raise refusal(*filter(None, message))
