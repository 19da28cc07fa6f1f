"""``headrace resnapshot``: wrong calls, and the line that shows the progress."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.core.resnapshot.source_connector import SignalSettings
from headrace.runtime.resnapshot.table_snapshot import Progress
from headrace_app.command import main
from headrace_app.resnapshot import Report, progress_text

SINK = {"connector.class": "LakehouseSink", "topics": "shop.public.item", "tasks.max": "1"}


def called(
    folder: Path, capsys: pytest.CaptureFixture[str], *more: str, source: Sequence[str] = ("--source", "shop-source")
) -> tuple[int, str]:
    """Return the exit status and the error output."""
    worker, connector = folder / "worker.properties", folder / "connector.json"
    worker.write_text(f"bootstrap.servers=127.0.0.1:1\nwarehouse={folder / 'warehouse'}\n")
    connector.write_text(json.dumps({"name": "shop", "config": SINK}))
    arguments = ["resnapshot", str(worker), str(connector), "public.item", *source, *more]
    return main(arguments), capsys.readouterr().err


def test_the_source_connectors_worker_is_required(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the argument."""
    monkeypatch.delenv("HEADRACE_SOURCE_URL", raising=False)
    status, error = called(tmp_path, capsys)
    assert (status, "--source-url: is missing" in error) == (2, True)


def test_the_connector_file_may_name_the_source_connector(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the command needs no arguments for it."""
    monkeypatch.delenv("HEADRACE_SOURCE_URL", raising=False)
    monkeypatch.setitem(SINK, "source.connector.url", "http://127.0.0.1:1/connectors/shop-source")
    status, error = called(tmp_path, capsys, source=())
    assert (status, "set reselect.database.*" in error) == (2, True)
    status, error = called(tmp_path, capsys, "--source-url", "http://127.0.0.1:1", source=())
    assert (status, "--source: is missing" in error) == (2, True)


def test_the_source_database_is_required(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last step compares with it."""
    status, error = called(tmp_path, capsys, "--source-url", "http://127.0.0.1:1")
    assert (status, "set reselect.database.*" in error) == (2, True)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress("requested"), "requested"),
        (
            Progress("source reads", 1_500, 4_000, None, 150.0),
            "source reads, 1,500 of about 4,000 rows in the lake (chunk 2 of about 4), about 2 min left",
        ),
        (Progress("sink applies", 10, left=7), "sink applies, 10 rows in the lake (chunk 1), 7 records left"),
        (Progress("waits", waits_for="source connector x is FAILED"), "waits, source connector x is FAILED"),
    ],
)
def test_the_progress_is_a_line(progress: Progress, text: str) -> None:
    """Only what is known is shown."""
    assert progress_text(progress, 1024) == text


def test_without_a_terminal_only_notices_are_printed() -> None:
    """A log gets a line for each step, and none for each second."""
    out, err = io.StringIO(), io.StringIO()
    report = Report("public.item", out, err)
    report.progress(SignalSettings("shop", "public.signals"), Progress("requested"))
    report.notice("snapshot requested")
    assert (out.getvalue(), err.getvalue()) == ("public.item: snapshot requested\n", "")
