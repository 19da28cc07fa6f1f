"""Registers the fixture families: one file each, ``fix_<what it starts>.py``."""

pytest_plugins = [
    "fix_asyncio",
    "fix_spark",
    "fix_stack",
]
