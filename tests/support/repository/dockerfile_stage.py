"""Read a Dockerfile, and execute the instructions of one stage below a folder instead of in a container."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

Instruction = tuple[str, str]
"""The name and the arguments of an instruction, such as ``("RUN", "apt-get update")``."""

_ROOT_OF_THE_IMAGE = re.compile(r"(?<![\w./*-])/(?=(?:opt|src)\b)")
"""The start of a path of the image, below one of the folders that the stages write to."""


def stage(text: str, name: str | None = None) -> list[Instruction]:
    """Return the instructions of the stage that ``FROM … AS name`` begins, or of the last stage."""
    stages: list[list[Instruction]] = []
    without_comments = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    for line in filter(None, without_comments.replace("\\\n", "").splitlines()):
        keyword, _, arguments = line.partition(" ")
        if keyword == "FROM":
            stages.append([])
        if stages:  # an ARG before the first FROM belongs to no stage
            stages[-1].append((keyword, arguments))
    return next(each for each in reversed(stages) if name is None or each[0][1].endswith(f" AS {name}"))


def variables(instructions: Iterable[Instruction]) -> dict[str, str]:
    """Return the variables that the ENV instructions set."""
    settings = " ".join(arguments for keyword, arguments in instructions if keyword == "ENV")
    return dict(re.findall(r"(\w+)=(\S+)", settings))


class Build:
    """Execute a stage: ``/opt`` and ``/src`` of the image are folders below ``root``, the rest is this machine."""

    def __init__(self, context: Path, root: Path, environment: Mapping[str, str]) -> None:
        self._context = context
        self._root = root
        self._folder = root
        self._environment = environment

    def execute(self, instructions: Iterable[Instruction]) -> None:
        """Execute WORKDIR, COPY from the context, and RUN. Raises AssertionError with the output of a failed RUN."""
        for keyword, arguments in instructions:
            if keyword == "WORKDIR":
                self._folder = Path(self.here(arguments))
                self._folder.mkdir(parents=True)
            elif keyword == "COPY":
                *sources, target = arguments.split()
                for source in sources:
                    self._copy(self._context / source, self._folder / target)
            elif keyword == "RUN":
                self.run(arguments)

    def run(self, command: str, **environment: str) -> str:
        """Execute a command as RUN does and return its output. Raises AssertionError with it if the command fails."""
        answer = subprocess.run(
            ["/bin/sh", "-c", self.here(command)],
            cwd=self._folder,
            env={**self._environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert answer.returncode == 0, f"RUN {command}\n{answer.stdout}"
        return answer.stdout

    def here(self, text: str) -> str:
        """Return the text with each path of the image replaced by its path below ``root``."""
        return _ROOT_OF_THE_IMAGE.sub(f"{self._root}/", text)

    def _copy(self, source: Path, target: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
