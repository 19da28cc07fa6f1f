"""How long properties look: a little in every run, with the same examples; long when a search for new ones is on."""

from __future__ import annotations

import os

from hypothesis import Phase, settings

_MORE = 5 if os.environ.get("HYPOTHESIS_PROFILE") == "search" else 1


def examples(count: int) -> settings:
    """Settings of a law: ``count`` examples, and several times as many in a search."""
    return settings(max_examples=count * _MORE, deadline=None)


def deliveries(count: int) -> settings:
    """The same for laws that shrink deliveries by themselves (``counterexamples.py``)."""
    return settings(examples(count), phases=[phase for phase in Phase if phase is not Phase.shrink])
