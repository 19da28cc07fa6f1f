"""The Dockerfile: hadolint reports nothing, and the image is built from locked packages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text()
LAST_STAGE = TEXT.rpartition("\nFROM ")[2]


def test_hadolint_finds_nothing() -> None:
    """hadolint applies every rule; a comment gives the reason for the one that is ignored."""
    answer = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout


def test_the_image_runs_as_a_user() -> None:
    """The user is a number, so that Kubernetes can check that it is not root."""
    assert re.search(r"^USER [1-9]\d+:[1-9]\d+$", LAST_STAGE, re.MULTILINE)


def test_no_build_tools_stay() -> None:
    """The last stage installs nothing and copies two folders from the build stage."""
    assert re.findall(r"^COPY --from=(\S+) (\S+)", LAST_STAGE, re.MULTILINE) == [
        ("build", "/opt/venv"),
        ("build", "/opt/jars"),
    ]
    assert not re.search(r"\bpip\b|apt-get", LAST_STAGE)


def test_packages_come_with_their_hashes() -> None:
    """All packages that pip downloads are locked."""
    for command in re.findall(r"pip\S* (?:--python \S+ )?install[^&\n]*", TEXT):
        assert "--require-hashes" in command or "--no-index" in command


def test_the_build_stage_is_locked_as_development_is() -> None:
    """'make lock' writes both lock files; the test names one that is out of date."""

    def locked(name: str) -> dict[str, str]:
        text = (ROOT / "requirements" / name).read_text()
        return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))

    development = locked("dev.txt")
    assert {name: development.get(name) for name in locked("image.txt")} == locked("image.txt")


@pytest.mark.parametrize(
    "path", ["pyproject.toml", "README.md", "LICENSE", "NOTICE", "requirements", "service", "connectors", "dev"]
)
def test_what_the_build_copies_is_sent_to_it(path: str) -> None:
    """.dockerignore excludes everything that it does not name."""
    assert f"!{path}" in (ROOT / ".dockerignore").read_text().splitlines()
    assert re.search(rf"^COPY .*\b{re.escape(path)}", TEXT, re.MULTILINE)
