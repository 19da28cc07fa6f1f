"""How long properties look: a little in every run, with the same examples; long when a search for new ones is on."""

from __future__ import annotations

import os

from hypothesis import settings

_MORE = 5 if os.environ.get("HYPOTHESIS_PROFILE") == "search" else 1


def examples(count: int) -> settings:
    """Settings of a law: ``count`` examples, and several times as many in a search."""
    return settings(max_examples=count * _MORE, deadline=None)
