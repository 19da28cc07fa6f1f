"""The version hint of a table whose writer has ended before it wrote one."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from headrace_connectors.lakehouse.version_hint import correct_version_hint


@pytest.mark.parametrize("hint", ["9", "", None])
@pytest.mark.parametrize("newest", ["v10.metadata.json", "v10.gz.metadata.json"])
def test_the_newest_version_is_named(tmp_path: Path, hint: str | None, newest: str) -> None:
    for name in ("v8.metadata.json", "v9.metadata.json", newest, "0b1c.metadata.json", "v11.metadata.json.tmp"):
        (tmp_path / name).touch()
    (tmp_path / ".version-hint.text.crc").write_text("that of the former hint")
    if hint is not None:
        (tmp_path / "version-hint.text").write_text(hint)
    before = set(tmp_path.iterdir())
    correct_version_hint(tmp_path)
    assert (tmp_path / "version-hint.text").read_text() == "10"
    assert set(tmp_path.iterdir()) == before - {tmp_path / ".version-hint.text.crc"} | {tmp_path / "version-hint.text"}


@pytest.mark.parametrize("hint", ["2\n", "3"])
def test_a_hint_of_the_newest_version_stays(tmp_path: Path, hint: str) -> None:
    """With its checksum, and also if the metadata of that version is lost: an older version is not the table."""
    for name, text in (("v2.metadata.json", ""), ("version-hint.text", hint), (".version-hint.text.crc", "checksum")):
        (tmp_path / name).write_text(text)
    correct_version_hint(tmp_path)
    assert (tmp_path / "version-hint.text").read_text() == hint
    assert (tmp_path / ".version-hint.text.crc").exists()


def test_other_folders_get_none(tmp_path: Path) -> None:
    """A table that does not exist, and one of a catalog with a server."""
    correct_version_hint(tmp_path / "missing")
    (tmp_path / "00010-5d0c6f5e.metadata.json").touch()
    correct_version_hint(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["00010-5d0c6f5e.metadata.json"]


def test_a_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers need no hint."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refuse)  # root may write each folder
    (tmp_path / "v2.metadata.json").touch()
    correct_version_hint(tmp_path)
    assert "version-hint.text: readers without a catalog may find an older version: Permission denied" in caplog.text
