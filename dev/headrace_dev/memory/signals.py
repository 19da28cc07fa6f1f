"""A channel of signals in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.resnapshot.signals import PREFIX
from headrace.ports import Signal


class MemorySignals:
    """All signals that were sent, also those that a test adds as another sender."""

    def __init__(self) -> None:
        self.sent: list[Signal] = []

    def signals(self) -> Sequence[Signal]:
        """Return the signals of Headrace."""
        return [signal for signal in self.sent if signal.id.startswith(PREFIX)]

    def send(self, signal: Signal) -> None:
        """Append the signal."""
        self.sent.append(signal)
