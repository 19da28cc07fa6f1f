"""Contract of every FencedLog. A test class provides ``open_log``, which opens a log on the same storage each time."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from headrace.core.model.errors import Fenced
from headrace.ports import FencedLog

OpenLog = Callable[[], FencedLog]
Seen = list[tuple[str, bytes | None]]


class FencedLogSuite:
    """Run by a subclass per implementation."""

    pytestmark = pytest.mark.anyio

    async def test_the_leaders_records_are_read_by_all(self, open_log: OpenLog) -> None:
        """All readers see several records of the leader; a higher position means that the log has read more."""
        leader, reader, seen = open_log(), open_log(), Seen()
        await leader.start(lambda key, value: None)
        await reader.start(lambda key, value: seen.append((key, value)))
        before = leader.position()
        await leader.lead()
        await leader.append([("a", b"1"), ("b", None)])
        await reader.refresh()
        assert seen == [("a", b"1"), ("b", None)]
        assert reader.position() >= before + 2
        await leader.close()
        await reader.close()

    async def test_a_later_leader_shuts_an_earlier_one_out(self, open_log: OpenLog) -> None:
        """An earlier leader cannot write after a later one has begun its term, although it does not know of it yet."""
        stale, leader, seen = open_log(), open_log(), Seen()
        await stale.start(lambda key, value: seen.append((key, value)))
        await leader.start(lambda key, value: None)
        await stale.lead()
        await stale.append([("first", b"1")])
        await leader.lead()
        with pytest.raises(Fenced):
            await stale.append([("stale", b"2")])
        await leader.append([("second", b"3")])
        await stale.refresh()
        assert seen == [("first", b"1"), ("second", b"3")]
        await stale.lead()
        await stale.append([("third", b"4")])
        with pytest.raises(Fenced):
            await leader.append([("stale", b"5")])
        await stale.close()
        await leader.close()
        gc.collect()  # retrieve the error of the future, otherwise asyncio logs it and this test fails
