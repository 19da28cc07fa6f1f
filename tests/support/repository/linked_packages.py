"""A pip that links locked packages from the environment of the tests, which takes seconds instead of a minute.

``make setup`` has installed them there, with the same versions and hashes. ``pip … install -r FILE`` links each package
of the file, and raises if the environment has another version of it; any other command goes to the real pip.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement


def link(requirements: Path, site_packages: Path) -> None:
    """Put links to the files of every package that the file requires on this platform into ``site_packages``."""
    for line in re.findall(r"^[\w.-]+==[^\\\n]+", requirements.read_text(), re.MULTILINE):
        requirement = Requirement(line.strip())
        if requirement.marker is None or requirement.marker.evaluate():
            distribution = metadata.distribution(requirement.name)
            assert distribution.version in requirement.specifier, f"{line}: is {distribution.version}; make setup"
            _link_files(distribution, site_packages)


def _link_files(distribution: metadata.Distribution, site_packages: Path) -> None:
    """Link the files except commands, which would start the interpreter of the tests."""
    for file in distribution.files or ():
        target = site_packages / file
        if ".." not in file.parts:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file.locate())


def main() -> int:
    """Run as pip does and return the exit status."""
    arguments = sys.argv[1:]
    if "-r" not in arguments:
        return subprocess.run([sys.executable, "-m", "pip", *arguments], check=False).returncode
    python = Path(arguments[arguments.index("--python") + 1])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    link(Path(arguments[arguments.index("-r") + 1]), python.parents[1] / "lib" / version / "site-packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
