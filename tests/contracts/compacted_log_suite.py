"""Contract of every CompactedLog. A test class provides ``open``, which opens a log on the same storage each time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.fix_asyncio import eventually

from headrace.ports import CompactedLog

Open = Callable[[], CompactedLog]
Records = list[tuple[str, bytes | None]]


class CompactedLogSuite:
    """Run by a subclass per implementation, which provides the fixture ``open_log``."""

    pytestmark = pytest.mark.anyio

    async def test_append_returns_once_the_records_have_been_applied(self, open_log: Open) -> None:
        """A caller that continues after append sees its own change."""
        log, seen = open_log(), Records()
        await log.start(lambda key, value: seen.append((key, value)))
        await log.append([("a", b"1"), ("b", b"2"), ("a", None)])
        await log.close()
        assert [record for record in seen if record[0] == "a"] == [("a", b"1"), ("a", None)]
        assert ("b", b"2") in seen

    async def test_a_later_start_gives_the_last_value_of_every_key(self, open_log: Open) -> None:
        """Another log on the same storage reads what a closed log wrote."""
        log = open_log()
        await log.start(lambda key, value: None)
        await log.append([("a", b"1"), ("a", b"2"), ("b", b"3")])
        await log.close()
        again, state = open_log(), dict[str, bytes | None]()
        await again.start(state.__setitem__)
        await again.close()
        assert state == {"a": b"2", "b": b"3"}

    async def test_two_readers_see_each_other(self, open_log: Open) -> None:
        """Workers that share a log read each other's changes."""
        first, second, seen = open_log(), open_log(), dict[str, bytes | None]()
        await first.start(lambda key, value: None)
        await second.start(seen.__setitem__)
        await first.append([("from-first", b"1")])
        await second.append([("own", b"2")])
        await eventually(lambda: "from-first" in seen)
        await first.close()
        await second.close()
        assert seen == {"own": b"2", "from-first": b"1"}

    async def test_close_can_be_repeated(self, open_log: Open) -> None:
        """Close may be called again, and without a start."""
        log = open_log()
        await log.close()
        await log.start(lambda key, value: None)
        await log.close()
        await log.close()
