"""An event loop whose clock jumps to the next timer when nothing is ready, so that minutes take milliseconds.

Calls on an executor run at once, on the loop's thread. Their results arrive after a delay that the caller chooses, so
that anything else can happen in between.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import base_events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.runtime.task import assignment, committed_offsets, flow_control, table_lane, task_tables

START = 1_000.0
_current = threading.local()


class Killed(BaseException):
    """The process is killed: no code of the product may handle this."""


class NothingLeft(Exception):
    """All coroutines wait and there is no timer."""


class _Selector:
    """A selector that only waits for timers, by advancing the clock."""

    def __init__(self) -> None:
        self.now = START

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise NothingLeft
        self.now += timeout
        return []


class VirtualLoop(base_events.BaseEventLoop):
    """``delay`` returns the virtual seconds after which the result of an executor's call arrives."""

    def __init__(self, delay: Callable[[], float], begin: float = START) -> None:
        super().__init__()
        self._selector = _Selector()
        self._selector.now = begin
        self._delay = delay
        self.set_exception_handler(lambda loop, context: None)  # a killed worker leaves its coroutines behind

    def time(self) -> float:
        return self._selector.now

    def _process_events(self, event_list: Any) -> None:
        """Do nothing: there are no files."""

    def _check_closed(self) -> None:
        """Raise nothing: what waits in an asynchronous generator of a killed process is cancelled when it is freed."""

    def _write_to_self(self) -> None:
        """Do nothing: no thread waits in ``select``."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Call now, return the result later. A killed process returns nothing and runs nothing more."""
        future = self.create_future()
        try:
            result = func(*args)
        except Killed:
            self.stop()
        except Exception as error:
            self.call_later(self._delay(), _set, future.set_exception, future, error)
        else:
            self.call_later(self._delay(), _set, future.set_result, future, result)
        return future

    def run(self, main: Coroutine[Any, Any, None]) -> bool:
        """Run to the end; return False if the process was killed."""
        outer, _current.loop = getattr(_current, "loop", None), self
        try:
            self.run_until_complete(main)
        except RuntimeError as error:
            if "stopped before Future" not in str(error):
                raise
            return False
        else:
            return True
        finally:
            self._drop_coroutines()
            _current.loop = outer
            self.close()

    def _drop_coroutines(self) -> None:
        """Drop the coroutines of a killed process, so that they never resume."""
        for task in asyncio.all_tasks(self):
            coroutine = task.get_coro()
            with suppress(RuntimeError):  # otherwise it would wait in its cleanup
                coroutine.close()


def _set(setter: Callable[[Any], None], future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        setter(value)


def _now() -> float:
    loop = getattr(_current, "loop", None)
    return loop.time() if loop is not None else START


@contextmanager
def virtual_time() -> Iterator[None]:
    """Replace the clock of the modules that read the time by that of the loop in their thread."""
    clock = SimpleNamespace(monotonic=_now, time=_now)
    with pytest.MonkeyPatch.context() as patched:
        for module in (assignment, flow_control, table_lane, task_tables, committed_offsets):
            patched.setattr(module, "time", clock)
        yield
