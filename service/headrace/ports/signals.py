"""What ``headrace resnapshot`` needs: the channel by which a source connector receives signals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.core.resnapshot.signals import Signal as Signal


class SignalChannel(Protocol):
    """A signal table of the source, or a topic. It keeps the signals that were sent.

    Every call blocks, and raises Retriable when the system does not answer, and Fatal or ConfigError when it refuses.
    """

    def signals(self) -> Sequence[Signal]:
        """The signals of Headrace that the channel has, in any order; those of others are left out."""

    def send(self, signal: Signal) -> None:
        """Send a signal. When this returns, the channel has it durably."""
