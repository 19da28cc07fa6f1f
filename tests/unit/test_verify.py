"""``headrace verify`` before it reaches anything: wrong calls end with status 2 and say what to correct."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.__main__ import main

SINK = {"connector.class": "LakehouseSink", "topics": "shop.public.item", "tasks.max": "1"}


def called(folder: Path, config: dict[str, str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit status, and what was said to the operator."""
    worker, connector = folder / "worker.properties", folder / "connector.json"
    worker.write_text(f"bootstrap.servers=127.0.0.1:1\nwarehouse={folder / 'warehouse'}\n")
    connector.write_text(json.dumps({"name": "shop", "config": config}))
    return main(["verify", str(worker), str(connector)]), capsys.readouterr().err


def test_a_connector_without_a_database_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to compare with."""
    status, said = called(tmp_path, SINK, capsys)
    assert status == 2
    assert "set reselect.database.*" in said


def test_a_wrong_configuration_is_refused_as_by_the_worker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the worker's own words."""
    status, said = called(tmp_path, {**SINK, "batch.linger.ms": "soon"}, capsys)
    assert status == 2
    assert "batch.linger.ms" in said


def test_another_connectors_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A source connector's, for instance."""
    status, said = called(tmp_path, {"connector.class": "PostgresConnector"}, capsys)
    assert status == 2
    assert "connector.class" in said


def test_a_history_is_no_copy_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has more rows by design."""
    database = {
        "reselect.database.hostname": "127.0.0.1",
        "reselect.database.dbname": "shop",
        "reselect.database.user": "u",
    }
    status, said = called(tmp_path, {**SINK, **database, "insert.mode": "insert"}, capsys)
    assert status == 2
    assert "a row for every event" in said


def test_a_call_without_files_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """argparse's own status."""
    with pytest.raises(SystemExit) as ended:
        main(["verify"])
    assert ended.value.code == 2
    assert "CONNECTOR.json" in capsys.readouterr().err
