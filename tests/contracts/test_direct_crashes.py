"""The JVM ends within a commit that needs no Spark job: before each of its files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace_connectors.lakehouse.direct.row_index import SMALL_BYTES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.parametrize("small", [0, pytest.param(SMALL_BYTES, marks=pytest.mark.long)], ids=["vectors", "small"])
@pytest.mark.parametrize("first", [6, pytest.param(1, marks=pytest.mark.long)])
def test_a_jvm_that_ends_before_a_file_of_a_commit(tmp_path: Path, first: int, small: int) -> None:
    """The batch is repeated, and each change is in the table once, whether the commit had become visible or not.

    Before the repetition, readers without a catalog find the rows before or after the commit. The short form begins
    with the last files: the list of manifests, the metadata, its name, the version's hint.
    """
    script = Path(__file__).with_name("direct_crash_trial.py")
    command = [sys.executable, str(script), str(tmp_path / "warehouse"), str(first), str(small)]
    (tmp_path / "warehouse").mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=880)
    *steps, last, path = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr
    assert path["direct"]
    assert not last["halted"]
    assert all(step["halted"] for step in steps)
    assert len(steps) + first > 6
    assert all(step["readable"] for step in steps)
    assert all(step["equal"] for step in [*steps, last])
