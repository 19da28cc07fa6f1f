"""Spark ends, hangs or waits without end: the engine names the cause and starts it again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_STEPS = ("refused", "start", "large", "statement", "driver", "memory", "committing", "earlier", "stopped", "close")


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, Any]]:
    """The results of all steps, by name."""
    script = Path(__file__).with_name("engine_trial.py")
    command = [sys.executable, str(script), str(tmp_path_factory.mktemp("engine")), *_STEPS]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800)
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr
    return {result["step"]: result for result in results}


def test_a_start_that_fails_names_the_cause(trial: Mapping[str, Mapping[str, Any]]) -> None:
    """The last one of Java's trace, and Spark can still start with other settings."""
    assert trial["refused"]["error"] == "Retriable"
    assert "Spark: did not start: SparkException: " in trial["refused"]["message"]
    assert "Could not parse Master URL: 'local[none]'" in trial["refused"]["message"]


def test_no_secret_is_visible_to_other_processes(trial: Mapping[str, Mapping[str, Any]]) -> None:
    """The JVM has received the secrets, and its arguments and environment contain none."""
    assert "secret-of" not in trial["start"]["seen"]
    assert trial["start"]["storage"] == "secret-of-storage"
    assert trial["start"]["aws"] == "secret-of-aws"


def test_a_row_group_may_be_larger_than_the_direct_memory(trial: Mapping[str, Mapping[str, Any]]) -> None:
    """Local files are not read by threads with direct buffers of that size: one without memory lets its reader wait."""
    assert trial["large"]["all"]


def test_a_statement_without_progress_is_cancelled(trial: Mapping[str, Mapping[str, Any]]) -> None:
    """The JVM stays, because a cancellation is enough. The error can be retried."""
    result = trial["statement"]
    assert (result["error"], result["new"], result["works"]) == ("TimedOut", False, True)
    assert "trial.item: a statement of Spark made no progress for 3 s (statement.timeout.ms)" in result["message"]


def test_a_statement_that_cannot_be_cancelled_ends_the_jvm(trial: Mapping[str, Mapping[str, Any]]) -> None:
    """A commit that waits for a storage is no job of Spark."""
    result = trial["driver"]
    assert (result["error"], result["new"], result["works"]) == ("TimedOut", True, True)


def test_a_jvm_without_memory_is_replaced(trial: Mapping[str, Mapping[str, Any]]) -> None:
    """It ends at the first lack of memory, and the error names the options."""
    result = trial["memory"]
    assert (result["error"], result["new"], result["works"]) == ("EngineOutOfMemory", True, True)
    assert "out of memory (exit code 3); raise spark.driver.memory" in result["message"]


def test_a_jvm_that_ends_in_a_commit_is_replaced(trial: Mapping[str, Mapping[str, Any]]) -> None:
    """The error can be retried, also that of the settings of the commit."""
    result = trial["committing"]
    assert (result["error"], result["new"], result["works"]) == ("EngineFailed", True, True)
    assert "it was killed (SIGKILL)" in result["message"]


def test_a_session_of_an_earlier_jvm_fails_at_once(trial: Mapping[str, Mapping[str, Any]]) -> None:
    """The error is not taken for one of the running JVM, for whose end nobody has to wait."""
    result = trial["earlier"]
    assert (result["error"], result["new"], result["works"]) == ("EngineFailed", False, True)
    assert "trial.item: Spark's JVM has ended, and is started again" in result["message"]


def test_a_jvm_that_does_not_answer_is_replaced(trial: Mapping[str, Mapping[str, Any]]) -> None:
    """The call in progress ends with the cause."""
    result = trial["stopped"]
    assert (result["error"], result["new"], result["works"]) == ("EngineFailed", True, True)
    assert "(jvm.hang.timeout.ms) and was killed" in result["message"]


def test_no_process_is_left_by_a_jvm_that_does_not_answer(trial: Mapping[str, Mapping[str, Any]]) -> None:
    """It is killed after a deadline."""
    assert trial["close"]["left"] is False
    assert trial["close"]["seconds"] < 30
