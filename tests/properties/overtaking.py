"""Two workers of one delivery: one pauses, the other takes its partitions, and the first resumes as a fenced worker."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from threading import Event as Signal
from threading import Thread
from typing import Any

from properties.deliveries import Delivery
from properties.reference_model import Rows
from properties.workers import Killed, Warehouse, Worker, came_to_the_end, tables_of

from headrace.core.model.errors import HeadraceError
from headrace.ports import Lakehouse, LakeTable, TableOptions

NAME = "law"


class Halting:
    """A ``ports.LakeTable`` that calls a function before some of its calls."""

    def __init__(self, table: LakeTable, before: Callable[[], None]) -> None:
        self._table = table
        self._before = before

    def __getattr__(self, name: str) -> Any:
        """Count every call of a method of the table."""
        self._before()
        return getattr(self._table, name)


class Half(Warehouse):
    """The warehouse for one of the two workers: it pauses once, before its ``call``-th call of a table."""

    def __init__(
        self, lakehouse: Lakehouse, delivery: Delivery, options: TableOptions, call: int, halt: Callable[[], Any]
    ) -> None:
        super().__init__(lakehouse, NAME, delivery, options)
        self._calls = count(1)
        self._call = call
        self._halt = halt
        self.overtaken = False

    def open(self, table: int) -> Any:
        """A handle whose calls are counted together with those of all tables."""
        return Halting(self.table(table), self._before)

    def _before(self) -> None:
        if next(self._calls) == self._call:
            self._halt()

    def confirm(self) -> None:
        """Raise Killed if the worker paused, because the group has removed it."""
        if self.overtaken:
            raise Killed

    def commit(self, offsets: Any) -> None:
        """Raise Killed in the same case, else commit."""
        self.confirm()
        super().commit(offsets)


def written_by_two(
    delivery: Delivery, lakehouse: Lakehouse, options: TableOptions, still: int, again: int
) -> dict[int, Rows]:
    """The tables by index, after a worker paused before its ``still``-th call and its successor wrote the rest.

    The first worker resumes before the ``again``-th call of the successor, or at the end, until it learns that it is
    fenced.
    """
    halted, released = Signal(), Signal()

    def stand_still() -> None:
        halted.set()
        released.wait()

    slow = Half(lakehouse, delivery, options, still, stand_still)
    thread = Thread(target=_run, args=(slow, delivery, halted))
    thread.start()
    halted.wait()
    slow.overtaken = True

    def go_on() -> None:
        released.set()
        thread.join()

    successor = Half(lakehouse, delivery, options, again, go_on)
    successor.offsets = dict(slow.offsets)
    try:
        came_to_the_end(Worker(successor), delivery, 1, set(), successor.offsets)
    finally:
        go_on()
    return tables_of(delivery, successor)


def _run(slow: Half, delivery: Delivery, halted: Signal) -> None:
    """Run to the end, or until the worker is fenced or stops by itself."""
    try:
        came_to_the_end(Worker(slow), delivery, 0, set(), slow.offsets)
    except (Killed, HeadraceError):
        pass
    finally:
        halted.set()
