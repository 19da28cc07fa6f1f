"""The frames of Headrace between two points, for tests of the ways that docs/architecture.md lists step by step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).parents[3]
OURS = (ROOT / "service", ROOT / "connectors")
PAGE = ROOT / "docs" / "architecture.md"

Frame = tuple[str, str]
"""A module's path in its package root, and the qualified name of a function."""


def ours(code: CodeType) -> list[Frame]:
    """Return the frame of a function of Headrace, nothing for any other."""
    path = Path(code.co_filename)
    return [(str(path.relative_to(root)), code.co_qualname) for root in OURS if path.is_relative_to(root)]


def stack(frame: FrameType | None, begin: Frame | None = None) -> list[Frame]:
    """Return the frames of Headrace from the innermost one on, up to ``begin``."""
    frames: list[Frame] = []
    while frame is not None:
        frames += ours(frame.f_code)
        if begin is not None and frames[-1:] == [begin]:
            break
        frame = frame.f_back
    return frames


def check_page(heading: str, frames: Sequence[Frame], most_frames: int, most_modules: int) -> None:
    """Compare frames, outermost first, with the section of the page: its modules in order, each function named."""
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index(f"## {heading}") :].partition("\n## ")[0]
    modules = list(dict.fromkeys(module for module, _ in frames))
    assert modules == re.findall(r"^\d+\. \[`[^`]+`\]\(\.\./(?:service|connectors)/([^)]+)\)", section, re.MULTILINE)
    for _, function in frames:
        name = function.rpartition(".")[2]
        assert f"`{name}`" in section, f"{name} is on the way, but not on the page"
    assert len(frames) <= most_frames, frames
    assert len(modules) <= most_modules, modules
