"""Looks at the replication slots of a connector's databases now and then, for its metrics.

A slot that nothing reads is the first sign that the source connector has ended: the sink shows no error, because events
only cease to arrive.

Tests: ``tests/unit/runtime/task/test_slot_watch.py``, ``tests/integration/test_doctor_postgres.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from headrace.core.model.errors import HeadraceError
from headrace.ports import ReplicationSlot
from headrace.runtime.observation import Observer
from headrace.runtime.threads import run_in

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 60.0
"""One query of a catalog view per connector and minute."""


async def watch_slots(
    connector: str,
    slots: Callable[[], Sequence[ReplicationSlot] | None],
    observer: Observer,
    interval: float = INTERVAL_SECONDS,
) -> None:
    """Report the slots until this is cancelled, or at once end if there is no database (None).

    A database that does not answer is logged once, and has no slots in the meantime.
    """
    has_failed = False
    while True:
        try:
            found = await run_in(None, slots)
            if found is None:
                return
            has_failed = False
        except HeadraceError as error:
            found = ()
            if not has_failed:
                log.warning("%s: replication slots of its database are not known: %s", connector, error)
            has_failed = True
        observer.on_slots(found)
        await asyncio.sleep(interval)
