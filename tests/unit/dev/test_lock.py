"""The lock files match pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = PROJECT["project"]["dependencies"]
GROUPS = PROJECT["dependency-groups"]
DEVELOPMENT = [each for each in GROUPS["dev"] if isinstance(each, str)]
LOCKS = {
    "runtime.txt": RUNTIME,
    "demo.txt": [*RUNTIME, *GROUPS["demo"]],
    "dev.txt": [*RUNTIME, *GROUPS["demo"], *DEVELOPMENT],
    "readers.txt": GROUPS["readers"],
}


@pytest.mark.parametrize(("lock", "wanted"), LOCKS.items())
def test_locked_versions_satisfy_the_project(lock: str, wanted: list[str]) -> None:
    """The message names a dependency that was added or changed without 'make lock'."""
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements" / lock).read_text(), re.MULTILINE))
    for requirement in map(Requirement, wanted):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{lock} lacks {requirement}: run 'make lock'"
        assert requirement.specifier.contains(version), f"{requirement} but {lock} has {version}: run 'make lock'"
