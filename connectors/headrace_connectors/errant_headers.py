"""Kafka Connect's context headers of a dead letter: where the record came from and why it could not be used.

``connect.md`` section 9. Texts are UTF-8. They are appended: a record that already has such headers keeps them.
"""

from __future__ import annotations

import traceback

from headrace.ports import ErrantRecord

PREFIX = "__connect.errors."

Headers = list[tuple[str, bytes | None]]


def context_headers(errant: ErrantRecord, connector: str, task: int) -> Headers:
    """The ten headers in Connect's order. The message is null when the error has none."""
    record, error = errant.record, errant.error
    texts = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "connector.name": connector,
        "task.id": str(task),
        "stage": errant.stage.value,
        "class.name": errant.class_name,
        "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": str(error) or None,
        "exception.stacktrace": "".join(traceback.format_exception(error)),
    }
    return [(PREFIX + name, None if text is None else text.encode()) for name, text in texts.items()]
