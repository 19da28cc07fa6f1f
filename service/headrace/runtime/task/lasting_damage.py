"""When a damaged file of a table counts as permanent: no error of Spark distinguishes it from a fault that passes."""

from __future__ import annotations

from headrace.core.model.errors import DamagedFile

ATTEMPTS = 6
SECONDS = 30.0
"""A table fails if so many attempts in sequence, over at least this time, have met a damaged or missing file.

Object stores show a new file within seconds, and a folder that is mounted again has its files. Until then nothing is
lost: the batch waits. Later, only an operator can help, and has to see a failed table.
"""


class LastingDamage:
    """Follows the attempts to write one batch."""

    def __init__(self) -> None:
        self._attempts = 0
        self._since = 0.0

    def begin(self) -> None:
        """Begin a batch."""
        self._attempts = 0

    def lasts(self, error: BaseException | None, now: float) -> bool:
        """Count an attempt that ended with ``error`` at ``now`` (seconds), and return whether the damage is permanent.

        An attempt with another error proves nothing, and the count begins anew.
        """
        if not isinstance(error, DamagedFile):
            self._attempts = 0
            return False
        if not self._attempts:
            self._since = now
        self._attempts += 1
        return self._attempts >= ATTEMPTS and now - self._since >= SECONDS
