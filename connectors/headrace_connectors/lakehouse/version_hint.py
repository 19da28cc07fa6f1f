"""The file by which readers without a catalog find the newest version of an Iceberg table in a folder.

Test: ``tests/unit/lakehouse/test_version_hint.py``.
"""

from __future__ import annotations

import logging
import re
import uuid
from pathlib import Path

log = logging.getLogger(__name__)

VERSION_HINT = "version-hint.text"
_METADATA_FILE = re.compile(r"v(\d+)\.(?:gz\.)?metadata\.json")


def correct_version_hint(metadata: Path) -> None:
    """Name the newest version in a folder of metadata, if a writer ended between its commit and the hint.

    Iceberg itself finds a version without the hint. PyIceberg and DuckDB would read the one before, or find no table,
    until the next commit. A hint is never set back: if the metadata of its version is lost, the table is damaged, and
    Iceberg reports that. Tables of other catalogs are left alone: their metadata files have other names. Logs a warning
    if the folder cannot be read or written.
    """
    hint = metadata / VERSION_HINT
    try:
        while (newest := _newest_version(metadata)) > _version_in(hint):  # again after a commit of another writer
            draft = metadata / f"{uuid.uuid4()}-version-hint.temp"
            draft.write_text(str(newest))
            (metadata / f".{VERSION_HINT}.crc").unlink(missing_ok=True)  # Hadoop's checksum of the former hint
            draft.replace(hint)
    except OSError as error:
        log.warning(
            "%s: readers without a catalog may find an older version: %s; check the rights of the worker's user",
            hint,
            error.strerror,
        )


def _newest_version(metadata: Path) -> int:
    """The highest version of which there is metadata, 0 if there is none."""
    if not metadata.is_dir():
        return 0
    names = (_METADATA_FILE.fullmatch(file.name) for file in metadata.iterdir())
    return max((int(name[1]) for name in names if name), default=0)


def _version_in(hint: Path) -> int:
    """The version that a hint names, 0 if there is no hint or it contains no number."""
    try:
        return int(hint.read_text())
    except (FileNotFoundError, ValueError):
        return 0
