"""Register the fixture families: one file each, ``fix_<what it starts>.py``."""

import os
import signal

import pytest
from hypothesis import settings

# Every run has the same examples, so that a failure is caused by the change, and few, so that the unit tests take
# seconds (the tests in properties/ set their own numbers). HYPOTHESIS_PROFILE=brief (make unit) runs a few of them;
# search generates new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("brief", derandomize=True, deadline=None, max_examples=5)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# A shell lets what it runs in the background ignore Ctrl-C, and children would inherit that. Tests interrupt some.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A failed assertion of a helper shows its values, as that of a test does.
pytest.register_assert_rewrite("support")

pytest_plugins = [
    "support.fix_asyncio",
    "support.fix_browser",
    "support.fix_cache",
    "support.fix_direct_commits",
    "support.fix_lanes",
    "support.fix_nessie",
    "support.fix_rest",
    "support.fix_secured_kafka",
    "support.fix_spark",
    "support.fix_stack",
]
