"""The Dockerfile: hadolint reports nothing, and the image is built from locked packages."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headrace_dev.image_jars import copy_jars
from headrace_dev.jars import pinned
from headrace_dev.versions import IMAGE_VARIANTS

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


def test_jlink_starts_no_other_program() -> None:
    """The stage has no objcopy, which removes debug symbols from native libraries; Debian's have none."""
    assert not re.search(r"--strip-(debug|native-debug-symbols)\b", TEXT)


def test_no_build_tools_stay() -> None:
    """The last stage installs nothing and copies Java's runtime, packages and jars from stages that have the tools."""
    assert re.findall(r"^COPY --from=(\S+) (\S+)", LAST_STAGE, re.MULTILINE) == [
        ("java", "/opt/java"),
        ("build", "/opt/venv"),
        ("build", "/opt/headrace/jars"),
        ("build", "/opt/headrace.cdx.json"),
    ]
    assert not re.search(r"\bpip\b|apt-get", LAST_STAGE)


def java_modules() -> list[str]:
    """The modules of the Java runtime of the image."""
    [listed] = re.findall(r"--add-modules\s+([\w.,]+)", TEXT.replace("\\\n", ""))
    return str(listed).split(",")


def test_the_image_has_every_module_of_spark() -> None:
    """Spark adds modules by name, and opens packages of others; a JVM without one of them ends when it starts."""
    options = jdk_17_options()
    assert set(re.findall(r"--add-modules=([\w.]+)", options)) <= set(java_modules())
    assert {"java.base", "java.naming", "jdk.crypto.ec", "jdk.unsupported"} <= set(java_modules())


def jdk_17_options() -> str:
    """The options with which Spark starts a JVM, as its launcher has them in its class."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    [launcher] = Path(spec.origin).parent.glob("jars/spark-launcher_*.jar")
    with zipfile.ZipFile(launcher) as jar:
        return jar.read("org/apache/spark/launcher/JavaModuleOptions.class").decode("latin-1")


@pytest.mark.parametrize("variant", IMAGE_VARIANTS)
def test_a_variant_has_pinned_jars(variant: str) -> None:
    """Each variant has the jars of the formats, and each of its jars has a checksum."""
    names = [name for bundle in IMAGE_VARIANTS[variant] for name in pinned(bundle)]
    assert set(pinned("lakehouse")) <= set(names)
    assert ("iceberg-aws-bundle" in "".join(names)) is (variant == "aws")


def test_an_unknown_variant_is_refused(tmp_path: Path) -> None:
    """The build ends with the names of the variants."""
    with pytest.raises(SystemExit, match="gcp is not a variant of the image; use one of core, aws"):
        copy_jars("gcp", tmp_path / "jars")


def test_the_variant_reaches_the_build() -> None:
    """A global argument has to be declared again in the stage that uses it."""
    build = TEXT.partition(" AS build\n")[2].partition("\nFROM ")[0]
    assert re.search(r"^ARG VARIANT=core$", TEXT.partition("\nFROM ")[0], re.MULTILINE)
    assert re.search(r"^ARG VARIANT$", build, re.MULTILINE)
    assert 'image_jars "${VARIANT:-core}" /opt/headrace/jars' in build


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
