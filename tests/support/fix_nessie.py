"""A REST catalog of its own for a test, which keeps its tables in the test's object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace_dev.java import java_home_of_servers
from headrace_dev.nessie import Nessie
from headrace_dev.object_store import ObjectStore
from headrace_dev.versions import JAVA_OF_SERVERS


@pytest.fixture
def nessie(tmp_path: Path, store: ObjectStore) -> Iterator[Nessie]:
    """A running catalog, whose transactions are atomic. ``store`` is a fixture of the test's file."""
    java = java_home_of_servers()
    if java is None:
        pytest.skip(f"needs Java {JAVA_OF_SERVERS} or newer: set JAVA21_HOME")
    nessie = Nessie(tmp_path, java, store)
    nessie.start()
    yield nessie
    nessie.stop()
