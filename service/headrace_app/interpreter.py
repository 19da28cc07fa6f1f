"""Settings of the Python interpreter that suit a worker: many threads, and many short-lived objects without cycles."""

from __future__ import annotations

import gc
import sys

SWITCH_SECONDS = 0.001
"""After how long a thread that computes has to give Python's lock to one that waits for it; the default is 5 ms.

A small commit asks the JVM and the catalog dozens of questions, and waits for the lock after each answer. While a large
batch is folded, a commit of one row took 15 ms a question with the default, and 2 ms with this.
"""


def tune_interpreter() -> None:
    """Exclude the objects that exist now from the cyclic collector, which runs more rarely, and share the lock fairly.

    Decoding creates a few short-lived objects per record, none of them in a cycle. With Python's default thresholds the
    collector takes a tenth of the decoding time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    sys.setswitchinterval(SWITCH_SECONDS)
