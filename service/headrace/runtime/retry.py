"""The back-off of all retries, and when a damaged file counts as permanent.

The pause is 0.3 s at first, as in Kafka Connect, doubled each time up to a maximum, with jitter.
"""

from __future__ import annotations

from collections.abc import Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_exponential_jitter

from headrace.core.model.errors import DamagedFile, remedy

_INITIAL_SECONDS = 0.3


def pause_after(attempts: int, maximum_seconds: float) -> float:
    """Return the seconds to wait after so many attempts that failed, from 1 on."""
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempts
    return _waits(maximum_seconds)(state)


def _waits(maximum_seconds: float) -> wait_exponential_jitter:
    return wait_exponential_jitter(multiplier=_INITIAL_SECONDS, max=maximum_seconds, jitter=_INITIAL_SECONDS)


def retrying(maximum_seconds: float, on_failure: Callable[[BaseException, float], None]) -> AsyncRetrying:
    """Return a controller that repeats a call after errors that POLICY declares retriable, and raises other errors.

    ``on_failure`` receives each error and the pause that follows it, at most ``maximum_seconds``.
    """

    def before_sleep(state: RetryCallState) -> None:
        if state.outcome is not None and (error := state.outcome.exception()) is not None:
            on_failure(error, state.next_action.sleep if state.next_action is not None else 0.0)

    return AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, Exception) and remedy(error).retry),
        wait=_waits(maximum_seconds),
        before_sleep=before_sleep,
        reraise=True,
    )


DAMAGE_ATTEMPTS = 6
DAMAGE_SECONDS = 30.0
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
        return self._attempts >= DAMAGE_ATTEMPTS and now - self._since >= DAMAGE_SECONDS
