"""The back-off of all retries: 0.3 s at first, as in Kafka Connect, doubled each time up to a maximum, with jitter."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_exponential_jitter

from headrace.core.model.errors import remedy

_INITIAL_SECONDS = 0.3


def pause_after(attempts: int, maximum_seconds: float) -> float:
    """Return the seconds to wait after so many attempts that failed, from 1 on."""
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.attempt_number = attempts
    return _waits(maximum_seconds)(state)


def _waits(maximum_seconds: float) -> wait_exponential_jitter:
    return wait_exponential_jitter(multiplier=_INITIAL_SECONDS, max=maximum_seconds, jitter=_INITIAL_SECONDS)


def retrying(maximum_seconds: float, failed: Callable[[BaseException, float], None]) -> AsyncRetrying:
    """Return a controller that repeats a call after errors that POLICY declares retriable, and raises other errors.

    ``failed`` receives each error and the pause that follows it, at most ``maximum_seconds``.
    """

    def before_sleep(state: RetryCallState) -> None:
        if state.outcome is not None and (error := state.outcome.exception()) is not None:
            failed(error, state.next_action.sleep if state.next_action is not None else 0.0)

    return AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, Exception) and remedy(error).retry),
        wait=_waits(maximum_seconds),
        before_sleep=before_sleep,
        reraise=True,
    )
