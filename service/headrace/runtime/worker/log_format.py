"""The form of the log: a line of text, or a JSON object per line, each with the connector and task that it is about.

The context follows asyncio's tasks and what they run in threads. Text has it in Connect's form, ``[shop|task-0]``.
"""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime

_TEXT = "%(asctime)s %(levelname)s %(context)s%(message)s (%(name)s)"
_about: ContextVar[tuple[str, int | None] | None] = ContextVar("log_context", default=None)


def enter(connector: str, task: int | None = None) -> None:
    """From here on this asyncio task, and what it starts, logs about a connector or one of its tasks."""
    _about.set((connector, task))


def use(style: str) -> None:
    """Write the root logger's lines as ``text`` or ``json``; anything else is text."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter() if style.strip().lower() == "json" else TextFormatter(_TEXT))


class TextFormatter(logging.Formatter):
    """Lines for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Add the context of the asyncio task that logs."""
        about = _about.get()
        record.context = (
            "" if about is None else f"[{about[0]}|{'worker' if about[1] is None else f'task-{about[1]}'}] "
        )
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """Objects for log stores. ``connector`` and ``task`` are there where the line is about them."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message holds."""
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
