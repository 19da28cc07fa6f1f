"""Prometheus and promtool, as ``make system`` unpacks them from Debian's package."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from headrace_dev.jars import cache_folder


@cache
def promtool() -> str:
    """Prometheus' tool for rule files; skips if it is not there."""
    return str(_unpacked("promtool"))


@cache
def prometheus() -> str:
    """The server; skips if it is not there."""
    return str(_unpacked("prometheus"))


def _unpacked(program: str) -> Path:
    path = cache_folder() / "bin" / program
    if not path.exists():
        pytest.skip(f"no {program} in {path.parent}: 'make system' unpacks it where there is apt-get")
    return path
