"""Report topics of a connector that do not exist: a warning, and a note in the task's status until they appear."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headrace.ports import Feed
from headrace.runtime.observation import Observer

log = logging.getLogger(__name__)

ABSENT = (
    "no such topic exists, or the connector's user may not describe it, so nothing is read; correct topics or "
    "topics.regex (which has to match complete names), or check the source connector"
)


class AbsentTopics:
    """Reports the absent topics of one task."""

    def __init__(self, connector: str, feed: Feed, observer: Observer) -> None:
        self._connector = connector
        self._feed = feed
        self._observer = observer
        self._reported: Sequence[str] | None = None

    def report(self) -> None:
        """Report what has changed since the last call; the first call removes an outdated note as well."""
        absent = self._feed.absent()
        if absent is None or absent == self._reported:
            return
        known = self._reported or ()
        self._reported = absent
        for name in absent:
            if name not in known:
                log.warning("%s: %s: %s", self._connector, name, ABSENT)
        for name in known:
            if name not in absent:
                log.info("%s: %s: the topic exists now", self._connector, name)
        self._observer.set_note(ABSENT, absent)
