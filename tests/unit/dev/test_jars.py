"""The jar cache contains complete bundles of pinned files only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace_dev import jars
from headrace_dev.versions import BUNDLES, Artifact


@pytest.fixture
def fetches() -> list[str]:
    """The bundles that were fetched, one entry per fetch."""
    return []


@pytest.fixture
def delivery(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fetches: list[str]) -> dict[str, bytes]:
    """The files that the repository delivers for every bundle."""
    files = {"a.jar": b"a", "b.jar": b"b"}
    pins = tmp_path / "jars.sha256"
    pins.write_text("".join(f"{hashlib.sha256(body).hexdigest()}  kafka/{name}\n" for name, body in files.items()))
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "PINS", pins)

    def fetch(bundle: str, artifacts: Sequence[Artifact], target: Path, expected: int = 0) -> None:
        fetches.append(bundle)
        for name, body in files.items():
            (target / name).write_bytes(body)

    monkeypatch.setattr(jars, "fetch", fetch)
    return files


def test_pinned_files_are_published(delivery: dict[str, bytes]) -> None:
    """A file that matches its pin is published to the cache."""
    assert [path.name for path in jars.resolve("kafka")] == ["a.jar", "b.jar"]


def test_a_bundle_is_fetched_once(delivery: dict[str, bytes], fetches: list[str]) -> None:
    """The second call returns the cached bundle, although the repository now delivers other bytes."""
    first = jars.resolve("kafka")
    delivery["a.jar"] = b"rubbish"
    assert jars.resolve("kafka") == first
    assert fetches == ["kafka"]


@pytest.mark.parametrize("change", [{"a.jar": b"rubbish"}, {"c.jar": b"one too many"}])
def test_other_files_than_pinned_are_refused(delivery: dict[str, bytes], change: dict[str, bytes]) -> None:
    """The error names a changed or additional file, and the cache contains nothing of the bundle."""
    delivery |= change
    with pytest.raises(jars.FetchError, match=next(iter(change))):
        jars.folder("kafka")
    assert list((jars.cache_folder() / "jars").iterdir()) == []


@pytest.mark.parametrize("bundle", BUNDLES)
def test_every_bundle_is_pinned(bundle: str) -> None:
    """This test fails after a change of a version without 'make lock'."""
    pinned = jars.pinned(bundle)
    for artifact in BUNDLES[bundle]:
        assert any(name.startswith(f"{artifact.name}-{artifact.revision}") for name in pinned), artifact
