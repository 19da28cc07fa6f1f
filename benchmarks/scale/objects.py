"""The objects that commits write: files of a table's folder, by kind, with their bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

METADATA = "metadata"
_ONLY_IN_FOLDERS = ("checksum", "hint")
"""What an object store does not have: Hadoop's checksums of local files, and the version hint of the folder catalog."""
_IN_PROGRESS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}((\.gz)?\.metadata\.json|-version-hint\.temp)")
"""The names of metadata and hint until Iceberg's HadoopTableOperations renames them."""

Files = Mapping[Path, tuple[int, int, int]]
"""Inode, time of the last change, and bytes of each file."""


@dataclass(frozen=True, slots=True)
class Written:
    """Number and bytes of the written objects by kind."""

    count: Mapping[str, int]
    size: Mapping[str, int]

    @property
    def objects(self) -> int:
        """Return the objects that an object store would have: each is a PUT request."""
        return sum(count for kind, count in self.count.items() if kind not in _ONLY_IN_FOLDERS)

    @property
    def bytes(self) -> int:
        return sum(size for kind, size in self.size.items() if kind not in _ONLY_IN_FOLDERS)


def files_of(folder: Path) -> Files:
    """Return the files of a folder as they are now, without those that a commit in progress will rename."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not _IN_PROGRESS.fullmatch(path.name):
            with suppress(FileNotFoundError):  # a commit removes old metadata
                status = path.stat()
                found[path] = status.st_ino, status.st_mtime_ns, status.st_size
    return found


def written(before: Files, after: Files) -> Written:
    """Return what was written between two states. A file that was written and removed in between is not counted."""
    count: dict[str, int] = {}
    size: dict[str, int] = {}
    for path, status in after.items():
        if before.get(path) != status:
            kind = kind_of(path.name)
            count[kind] = count.get(kind, 0) + 1
            size[kind] = size.get(kind, 0) + status[2]
    return Written(dict(sorted(count.items())), dict(sorted(size.items())))


def written_by_commits(before: Files, after: Files) -> Written:
    """Return what many commits wrote between two states, for tables whose snapshots have not expired in between.

    Old metadata is removed by later commits, so its objects are counted by their versions, with the mean of the bytes
    of those that are left.
    """
    found = written(before, after)
    count, size = dict(found.count), dict(found.size)
    if left := count.get(METADATA, 0):
        versions = sum(version - _versions(before).get(folder, 0) for folder, version in _versions(after).items())
        count[METADATA], size[METADATA] = versions, size[METADATA] * versions // left
    return Written(count, size)


def _versions(files: Files) -> Mapping[Path, int]:
    """Return the newest version of the metadata in each folder."""
    newest: dict[Path, int] = {}
    for path in files:
        if kind_of(path.name) == METADATA:
            newest[path.parent] = max(newest.get(path.parent, 0), int(path.name[1:].partition(".")[0]))
    return newest


def kind_of(name: str) -> str:
    """Return what a file of an Iceberg table contains."""
    if name.endswith(".crc"):
        return "checksum"
    if name == "version-hint.text":
        return "hint"
    if name.endswith(".metadata.json"):
        return METADATA
    if name.endswith(".avro"):
        return "manifest list" if name.startswith("snap-") else "manifest"
    if name.endswith(".puffin"):
        return "deletion vectors"
    return "data"
