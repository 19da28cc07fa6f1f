"""Contract of every SignalChannel. A subclass provides ``channel``, and ``foreign``, which sends as another one."""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.resnapshot.signals import Signal, end_of, open_request, snapshot_request
from headrace.ports import SignalChannel

OTHERS = Signal("9b2c5d0e-a-close", "snapshot-window-close", {})


class SignalChannelSuite:
    """Inherit from it and provide the fixtures ``channel`` and ``foreign``."""

    def test_a_channel_keeps_what_was_sent(self, channel: SignalChannel, foreign: Callable[[Signal], None]) -> None:
        """Another reader of the channel finds the request open, and not after its end. Others' signals are omitted."""
        assert list(channel.signals()) == []
        foreign(OTHERS)
        request = snapshot_request("headrace-1700000000000-abcdefgh", "public.Größen & 'Maße'", "shop")
        channel.send(request)
        assert list(channel.signals()) == [request]
        assert open_request(channel.signals(), "public.Größen & 'Maße'", "shop") == request
        end = end_of("headrace-1700000000001-abcdefgh", "public.Größen & 'Maße'", request.id)
        channel.send(end)
        assert sorted(channel.signals(), key=lambda signal: signal.id) == [request, end]
        assert open_request(channel.signals(), "public.Größen & 'Maße'", "shop") is None
