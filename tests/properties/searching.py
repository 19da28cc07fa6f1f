"""The number of examples of properties: few and fixed in every run, many and new ones in a search."""

from __future__ import annotations

import os

from hypothesis import Phase, settings

_MORE = 5 if os.environ.get("HYPOTHESIS_PROFILE") == "search" else 1


def examples(count: int) -> settings:
    """Settings of a property: ``count`` examples, and several times as many in a search."""
    return settings(max_examples=count * _MORE, deadline=None)


def deliveries(count: int) -> settings:
    """The same for properties that reduce failing deliveries themselves (``counterexamples.py``)."""
    return settings(examples(count), phases=[phase for phase in Phase if phase is not Phase.shrink])
