"""Counts of the objects that commits write."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.scale.objects import files_of, kind_of, written


def test_only_files_that_were_written_in_between_are_counted(tmp_path: Path) -> None:
    """New and replaced files count, by kind and with their bytes; a checksum or a hint is no object of a store."""
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
