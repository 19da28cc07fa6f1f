"""Draw the packages and their allowed imports as ``docs/packages.svg``: ``python -m headrace_dev.packages``.

The rows come from the ``layers`` contracts of import-linter in ``pyproject.toml``, so the picture shows the rules that
``make check`` enforces. ``tests/test_architecture.py`` fails if the picture is out of date.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "packages.svg"

_WIDTH, _BOX, _TITLE, _GAP, _PADDING = 940, 32, 28, 8, 12
"""Sizes in pixels: the picture, a box without rows, the title of a box with rows, and the spaces."""
_FILLS = ("#f3f6fa", "#ffffff", "#e3edf8")
"""The colours of boxes, by depth of nesting."""

Layers = Mapping[str, Sequence[Sequence[str]]]
"""The rows of each package from top to bottom, each with the names of its modules."""


def packages_svg(root: Path = ROOT) -> str:
    """Return the picture of the packages of a working copy."""
    layers = _layers(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")))
    connectors = root / "connectors" / "headrace_connectors"
    edges = "headrace_connectors"
    layers = {edges: [sorted(each.parent.name for each in connectors.glob("*/__init__.py"))], **layers}
    titles = {
        "headrace_app": "headrace_app: the command; composition constructs the connectors and the worker",
        edges: f"{edges}: imports {', '.join(sorted(_imported(connectors)))} of the service",
        "headrace": "headrace: a box imports only from rows below its own; boxes side by side are independent",
    }
    shapes: list[str] = []
    y = float(_PADDING)
    for package, title in titles.items():
        shapes += _drawn(layers, package, title, (_PADDING, y, _WIDTH - 2 * _PADDING), 0)
        y += _height(layers, package) + _PADDING
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y:g}" viewBox="0 0 {_WIDTH} {y:g}" '
            'font-family="sans-serif" font-size="13" fill="#1b2733">',
            f'<rect width="{_WIDTH}" height="{y:g}" fill="#ffffff"/>',
            *shapes,
            "</svg>\n",
        ]
    )


def _layers(pyproject: Mapping[str, dict[str, dict[str, list[dict[str, list[str]]]]]]) -> Layers:
    """Return the rows of the ``layers`` contracts, by package."""
    found: dict[str, Sequence[Sequence[str]]] = {}
    for contract in pyproject["tool"]["importlinter"]["contracts"]:
        rows = [[name.strip(" ()") for name in row.split("|")] for row in contract.get("layers", ())]
        within = contract.get("containers", ["headrace"] if rows and rows[0][0].startswith("headrace.") else [])
        for container in within if rows else ():
            found[container] = [[name.removeprefix(f"{container}.") for name in row] for row in rows]
    return found


def _imported(folder: Path) -> set[str]:
    """Return the packages of the service that the modules of a folder import."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace."):
                found.add((node.module or "").split(".")[1])
    return found


def _height(layers: Layers, package: str) -> float:
    rows = layers.get(package)
    if rows is None:
        return _BOX
    return _TITLE + sum(_row_height(layers, package, row) + _GAP for row in rows) + _PADDING - _GAP


def _row_height(layers: Layers, package: str, row: Sequence[str]) -> float:
    return max(_height(layers, f"{package}.{name}") for name in row)


def _drawn(layers: Layers, package: str, title: str, area: tuple[float, float, float], depth: int) -> Iterator[str]:
    """Draw a package with its rows into an area: the left and upper edges, and the width."""
    left, top, width = area
    rows = layers.get(package, ())
    height = _height(layers, package)
    yield (
        f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="5" '
        f'fill="{_FILLS[depth % len(_FILLS)]}" stroke="#6b84a3"/>'
    )
    weight = ' font-weight="bold"' if rows else ""
    yield f'<text x="{left + width / 2:g}" y="{top + 20:g}" text-anchor="middle"{weight}>{escape(title)}</text>'
    y = top + _TITLE
    for row in rows:
        part = (width - 2 * _PADDING - _GAP * (len(row) - 1)) / len(row)
        for index, name in enumerate(row):
            x = left + _PADDING + index * (part + _GAP)
            yield from _drawn(layers, f"{package}.{name}", name, (x, y, part), depth + 1)
        y += _row_height(layers, package, row) + _GAP


if __name__ == "__main__":
    PICTURE.write_text(packages_svg(), encoding="utf-8")
