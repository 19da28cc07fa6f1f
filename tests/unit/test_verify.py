"""Tests of wrong calls of ``headrace verify``, which exit with status 2 and name the option to correct."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace_app.command import main

SINK = {"connector.class": "LakehouseSink", "topics": "shop.public.item", "tasks.max": "1"}


def called(folder: Path, config: dict[str, str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Return the exit status and the error output."""
    worker, connector = folder / "worker.properties", folder / "connector.json"
    worker.write_text(f"bootstrap.servers=127.0.0.1:1\nwarehouse={folder / 'warehouse'}\n")
    connector.write_text(json.dumps({"name": "shop", "config": config}))
    return main(["verify", str(worker), str(connector)]), capsys.readouterr().err


def test_a_connector_without_a_database_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command refuses a connector without ``reselect.database.*``, because it needs the source."""
    status, error = called(tmp_path, SINK, capsys)
    assert status == 2
    assert "set reselect.database.*" in error


def test_a_wrong_configuration_is_refused_as_by_the_worker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command reports an invalid option as the worker does."""
    status, error = called(tmp_path, {**SINK, "batch.linger.ms": "soon"}, capsys)
    assert status == 2
    assert "batch.linger.ms" in error


def test_another_connectors_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command refuses the file of another connector class, for example of a source connector."""
    status, error = called(tmp_path, {"connector.class": "PostgresConnector"}, capsys)
    assert status == 2
    assert "connector.class" in error


def test_a_history_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command refuses ``insert.mode=insert``, because a history has a row for every event."""
    database = {
        "reselect.database.hostname": "127.0.0.1",
        "reselect.database.dbname": "shop",
        "reselect.database.user": "u",
    }
    status, error = called(tmp_path, {**SINK, **database, "insert.mode": "insert"}, capsys)
    assert status == 2
    assert "a row for every event" in error


def test_a_call_without_files_prints_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """A call without files exits with status 2 and prints the usage."""
    with pytest.raises(SystemExit) as ended:
        main(["verify"])
    assert ended.value.code == 2
    assert "CONNECTOR.json" in capsys.readouterr().err
