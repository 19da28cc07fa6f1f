"""How often Python's collector looks for cycles while a worker runs."""

from __future__ import annotations

import gc


def look_for_cycles_seldom() -> None:
    """A record becomes a few short-lived objects, none of them in a cycle: looking for cycles after every 700 of them
    costs a tenth of the decoding. What has been imported stays for good and need not be looked at again."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
