"""What the lanes of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_dev.object_store import ObjectStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    """A running object store."""
    store = ObjectStore(tmp_path)
    store.start()
    yield store
    store.stop()
