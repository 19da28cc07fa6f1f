"""Counts of the objects that commits write."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.scale.objects import files_of, kind_of, written, written_by_commits


def test_only_files_that_were_written_in_between_are_counted(tmp_path: Path) -> None:
    """New and replaced files count, by kind and with their bytes; a checksum or a hint is no object of a store.

    Files that a commit has not renamed yet do not count.
    """
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_bytes(b"old")
    (tmp_path / "metadata" / "version-hint.text").write_bytes(b"1")
    before = files_of(tmp_path)
    for name, content in {
        "metadata/v2.metadata.json": b"12345",
        "metadata/snap-1.avro": b"123",
        "metadata/1-m0.avro": b"1",
        "data.parquet": b"1234567",
        ".data.parquet.crc": b"12",
        "metadata/hint": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
    for suffix in (".metadata.json", ".gz.metadata.json", "-version-hint.temp"):
        (tmp_path / "metadata" / f"0dd2e68b-369d-4525-a8ae-cd03b14a2346{suffix}").write_bytes(b"not yet")
    (tmp_path / "metadata" / "hint").replace(tmp_path / "metadata" / "version-hint.text")
    found = written(before, files_of(tmp_path))
    assert found.count == {"checksum": 1, "data": 1, "hint": 1, "manifest": 1, "manifest list": 1, "metadata": 1}
    assert (found.objects, found.bytes) == (4, 16)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("00000-0-a.parquet", "data"),
        ("x.puffin", "deletion vectors"),
        ("v12.gz.metadata.json", "metadata"),
        ("snap-7-1-a.avro", "manifest list"),
        ("a-m0.avro", "manifest"),
        (".v1.metadata.json.crc", "checksum"),
    ],
)
def test_kinds_of_files(name: str, kind: str) -> None:
    """A file's name says what it contains."""
    assert kind_of(name) == kind


def test_metadata_that_later_commits_have_removed_counts(tmp_path: Path) -> None:
    """The versions tell how many objects were written, for each table of a warehouse; their bytes are estimated."""
    for table in ("a", "b"):
        (tmp_path / table).mkdir()
        (tmp_path / table / "v3.metadata.json").write_bytes(b"old")
    before = files_of(tmp_path)
    (tmp_path / "a" / "v3.metadata.json").unlink()
    for version in (9, 10):
        (tmp_path / "a" / f"v{version}.metadata.json").write_bytes(b"1234")
    (tmp_path / "b" / "x.parquet").write_bytes(b"12")
    found = written_by_commits(before, files_of(tmp_path))
    assert found.count == {"data": 1, "metadata": 7}
    assert (found.objects, found.bytes) == (8, 2 + 7 * 4)
