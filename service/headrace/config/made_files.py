"""Write documents that are made from the code into a source tree."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path


def write(module: str, files: Mapping[str, str]) -> None:
    """Write ``files``, by their paths, below the folder that the command line names, or below the current one."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=f"Write the files that are made from the code: {', '.join(files)}."
    )
    parser.add_argument("root", nargs="?", default=".", type=Path, help="the source tree (default: this folder)")
    root: Path = parser.parse_args().root
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
