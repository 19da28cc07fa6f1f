"""Creation of the topics of a worker or a task."""

from __future__ import annotations

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import NotControllerError, RequestTimedOutError, TopicAlreadyExistsError, for_code


async def create_topic(admin: AIOKafkaAdminClient, topic: NewTopic) -> None:
    """Create ``topic`` unless it exists. Raises KafkaError."""
    try:
        answer = await admin.create_topics([topic])
    except AttributeError as error:  # aiokafka sends the request to the controller, which is None if there is none
        raise NotControllerError("the cluster has no controller at the moment") from error
    except TimeoutError as error:
        raise RequestTimedOutError("the cluster's controller does not answer") from error
    for _, code, *message in answer.topic_errors:  # aiokafka does not raise them
        topic_error = for_code(code)
        if code != 0 and topic_error is not TopicAlreadyExistsError:
            raise topic_error(*filter(None, message))
