"""Fetches the bundles of ``versions.py`` from Maven Central with the Ivy that PySpark ships.

Ivy checks each file against the repository's checksum; ``jars.sha256`` then pins it to what this repository was tested
with. A bundle is fetched once into ``~/.cache/headrace`` (or ``$HEADRACE_CACHE``) and appears there in one rename, so a
folder that exists is complete. A file lock keeps two processes from fetching at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as Xml

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tenacity import retry, stop_after_attempt, wait_exponential

from headrace_dev.java import java, jvm_options
from headrace_dev.versions import BUNDLES, Artifact

PINS = Path(__file__).with_name("jars.sha256")
_MAVEN = "http://ant.apache.org/ivy/maven"
_FILE_NAME = "[artifact]-[revision](-[classifier]).[ext]"
_SUFFIXES = (".jar", ".tar.gz")


class FetchError(RuntimeError):
    """A bundle could not be fetched, or a file is not the pinned one."""


def cache_folder() -> Path:
    """Return the folder of downloads, outside of the repository: ``$HEADRACE_CACHE``, else ``~/.cache/headrace``."""
    return Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace")


def resolve(bundle: str) -> list[Path]:
    """Return the files of ``bundle``, sorted by name. Fetch and check them if they are missing. Raises FetchError."""
    return sorted(folder(bundle).iterdir())


def folder(bundle: str) -> Path:
    """Return the folder that contains exactly the files of ``bundle``. Fetch it if needed. Raises FetchError."""
    pins = pinned(bundle)
    home = cache_folder() / "jars" / f"{bundle}-{_fingerprint(bundle, pins)}"
    if not home.exists():
        with _locked():
            if not home.exists():
                _publish(lambda target: _fetch_checked(bundle, pins, target), home)
    return home


def unpacked(bundle: str) -> Path:
    """The folder that holds the unpacked archive of ``bundle`` (a Connect plugin)."""
    archive = resolve(bundle)[0]
    home = cache_folder() / "plugins" / archive.parent.name
    if not home.exists():
        with _locked():
            if not home.exists():
                _publish(lambda target: _unpack(archive, target), home)
    return home


def pinned(bundle: str) -> dict[str, str]:
    """Return the committed SHA-256 of each file name."""
    pins = {}
    for line in PINS.read_text().splitlines():
        digest, path = line.split("  ")
        owner, name = path.split("/")
        if owner == bundle:
            pins[name] = digest
    return pins


def pin() -> None:
    """Fetch every bundle again and write ``jars.sha256`` from the files (``make lock``)."""
    lines = []
    for bundle in sorted(BUNDLES):
        with _locked(), tempfile.TemporaryDirectory() as target:
            fetch(bundle, BUNDLES[bundle], Path(target))
            lines += [f"{_sha256(path)}  {bundle}/{path.name}" for path in sorted(Path(target).iterdir())]
    PINS.write_text("\n".join(lines) + "\n")


@retry(stop=stop_after_attempt(3), wait=wait_exponential(max=10), reraise=True)
def fetch(name: str, artifacts: Sequence[Artifact], target: Path, expected: int = 0) -> None:
    """Let Ivy copy artifacts and their dependencies into ``target``, with at most three attempts."""
    with tempfile.TemporaryDirectory() as scratch:
        module = Path(scratch, "ivy.xml")
        module.write_bytes(_ivy_module(name, artifacts))
        command = [java(), "-Xmx256m", *jvm_options(), "-jar", str(_ivy_jar()), "-cache", str(cache_folder() / "ivy")]
        command += ["-ivy", str(module), "-confs", "default", "-retrieve", f"{target}/{_FILE_NAME}"]
        output = _run_with_progress(command, f"fetching {name}", expected)
    if not any(target.iterdir()):
        raise FetchError(f"Ivy could not fetch {name} from Maven Central:\n{''.join(output[-15:])}")


def _fetch_checked(bundle: str, pins: Mapping[str, str], target: Path) -> None:
    fetch(bundle, BUNDLES[bundle], target, len(pins))
    got = {path.name: _sha256(path) for path in target.iterdir()}
    wrong = sorted(name for name in got.keys() | pins.keys() if got.get(name) != pins.get(name))
    if wrong:
        raise FetchError(f"{bundle}: {', '.join(wrong)} not as pinned in {PINS.name}; 'make lock' pins anew")


def _run_with_progress(command: Sequence[str], title: str, expected: int) -> list[str]:
    """Run Ivy and show a progress bar from its output on stderr (one line at the end if that is no terminal)."""
    output = []
    with (
        _progress() as progress,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
    ):
        task = progress.add_task(title, total=expected or None)
        assert ivy.stdout is not None
        for line in ivy.stdout:
            output.append(line)
            if "[SUCCESSFUL ]" in line and any(f"{suffix} " in line for suffix in _SUFFIXES):
                progress.advance(task)
        if ivy.wait() == 0:
            progress.update(task, completed=expected or progress.tasks[task].completed)
            return output
    raise FetchError(f"{title} failed:\n{''.join(output[-15:])}")


def _progress() -> Progress:
    count = (MofNCompleteColumn(), TextColumn("files"), TimeElapsedColumn())
    return Progress(TextColumn("{task.description}"), BarColumn(), *count, console=Console(stderr=True))


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("jars/ivy-*.jar"))


def _ivy_module(bundle: str, artifacts: Sequence[Artifact]) -> bytes:
    Xml.register_namespace("m", _MAVEN)
    module = Xml.Element("ivy-module", version="2.0")
    Xml.SubElement(module, "info", organisation="headrace", module=bundle)
    Xml.SubElement(Xml.SubElement(module, "configurations"), "conf", name="default")
    dependencies = Xml.SubElement(module, "dependencies")
    for artifact in artifacts:
        dependencies.append(_ivy_dependency(artifact))
    return Xml.tostring(module)


def _ivy_dependency(artifact: Artifact) -> Xml.Element:
    attributes = {"org": artifact.organisation, "name": artifact.name, "rev": artifact.revision}
    transitive = str(artifact.transitive).lower()
    dependency = Xml.Element("dependency", attributes, transitive=transitive, conf="default->default")
    if artifact.extension != "jar" or artifact.classifier:
        kind = {"name": artifact.name, "type": artifact.extension, "ext": artifact.extension}
        Xml.SubElement(dependency, "artifact", kind, **{f"{{{_MAVEN}}}classifier": artifact.classifier or ""})
    return dependency


def _unpack(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as files:
        files.extractall(target, filter="data")


def _publish(make: Callable[[Path], None], home: Path) -> None:
    """Let ``make`` fill a folder beside ``home``, then rename it: no reader finds an incomplete bundle."""
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=home.parent, prefix=".draft-"))
    try:
        make(draft)
        draft.chmod(0o755)
        draft.rename(home)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _fingerprint(bundle: str, pins: Mapping[str, str]) -> str:
    return hashlib.sha256(repr((BUNDLES[bundle], sorted(pins.items()))).encode()).hexdigest()[:12]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked() -> Iterator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
