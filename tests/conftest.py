"""Registers the fixture families: one file each, ``fix_<what it starts>.py``."""

import os

from hypothesis import settings

# The same examples in every run, so that a red run is the change's own, and few, so that the unit tests take seconds
# (the laws in properties/ say how many they need). HYPOTHESIS_PROFILE=brief (make unit) tries a few of them only;
# search looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("brief", derandomize=True, deadline=None, max_examples=5)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

pytest_plugins = [
    "fix_asyncio",
    "fix_cache",
    "fix_lanes",
    "fix_spark",
    "fix_stack",
]
