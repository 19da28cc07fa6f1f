"""The format of the log: lines of text or JSON objects, with the connector and task of each line.

The context is that of the asyncio task that logs, also in the threads that it uses. In text it has Kafka Connect's
form, ``[shop|task-0]``.
"""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime

_TEXT = "%(asctime)s %(levelname)s %(context)s%(message)s (%(name)s)"
_about: ContextVar[tuple[str, int | None] | None] = ContextVar("log_context", default=None)


def enter(connector: str, task: int | None = None) -> None:
    """Set the connector and task in the context of the current asyncio task and of the tasks that it starts."""
    _about.set((connector, task))


def use(style: str) -> None:
    """Format the root logger's lines as ``json``, or as text for any other value.

    Handlers of another class belong to the program that runs the worker, and keep their format.
    """
    for handler in logging.getLogger().handlers:
        if type(handler) is not logging.StreamHandler:
            continue
        handler.setFormatter(JsonFormatter() if style.strip().lower() == "json" else TextFormatter(_TEXT))


class TextFormatter(logging.Formatter):
    """Formats a record as a line of text."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record with the context of the asyncio task that logs."""
        about = _about.get()
        record.context = (
            "" if about is None else f"[{about[0]}|{'worker' if about[1] is None else f'task-{about[1]}'}] "
        )
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object, with ``connector`` and ``task`` if the context has them."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record in one line, also if the message has several."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "timestamp": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        about = _about.get()
        if about is not None:
            line["connector"] = about[0]
            if about[1] is not None:
                line["task"] = about[1]
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
