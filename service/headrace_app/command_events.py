"""What a command adds to the timeline of the cluster: the repairs that it made, beside the workers.

The events are records of the status topic (``core/connect/timeline.py``). A command has the worker file, so it writes
them with the rights of the worker. A standalone worker has its timeline in its memory, where no command reaches it.

Tests: ``tests/unit/app/test_command_events.py``, ``tests/integration/test_verify.py``, ``test_resnapshot.py``,
``test_dead_letters_over_rest.py``.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TextIO

from headrace.core.connect.timeline import Kind, TimelineEvent, Trigger, TriggerType, short
from headrace.core.model.errors import HeadraceError
from headrace.ports import CompactedLog
from headrace.runtime.worker.timeline import append_events


class CommandEvents:
    """The events of one run of ``command``, about ``connector``. They are written together when the command ends."""

    def __init__(self, connector: str, command: str) -> None:
        self._connector = connector
        self._trigger = Trigger(TriggerType.COMMAND, path=command)
        self._process = f"{socket.gethostname()}, process {os.getpid()}"
        self._events: list[TimelineEvent] = []

    def add(self, kind: Kind, text: str, table: str | None = None) -> None:
        """Add an event of now. ``text`` has no value of a cell."""
        now, text = int(time.time() * 1000), short(text)
        self._events.append(TimelineEvent(kind, now, self._process, self._connector, None, table, text, self._trigger))

    def write(self, open_statuses: Callable[[], CompactedLog | None], err: TextIO) -> None:
        """Write the events to the status topic, if there is one: that of a standalone worker is in its memory.

        What the events report is done. A failure to write them is a line on ``err``, and no error.
        """
        if not self._events:
            return
        # No two events of a process have the same time, which is a part of their keys.
        last, events = 0, []
        for event in self._events:
            last = max(event.time, last + 1)
            events.append(replace(event, time=last))
        try:
            statuses = open_statuses()
            if statuses is not None:
                asyncio.run(append_events(statuses, events))
        except HeadraceError as error:
            print(f"timeline: does not contain what the command has changed: {error}", file=err)
