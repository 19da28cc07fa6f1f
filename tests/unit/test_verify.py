"""``headrace verify``: wrong calls exit with status 2 and name the option to correct; and its report."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.core.verify.verification import Verdict, Where
from headrace.runtime.verify.table_comparison import Compared
from headrace.runtime.verify.table_verifier import Difference
from headrace_app.command import main
from headrace_app.verify import Report

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


def test_a_history_of_transformed_records_cannot_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command refuses it before it connects to the database."""
    database = {
        "reselect.database.hostname": "127.0.0.1",
        "reselect.database.dbname": "shop",
        "reselect.database.user": "u",
    }
    hoist = {"transforms": "t", "transforms.t.type": "HoistField$Value", "transforms.t.field": "f"}
    status, error = called(tmp_path, {**SINK, **database, **hoist, "insert.mode": "insert"}, capsys)
    assert status == 2
    assert "a history of transformed records" in error


def test_a_call_without_files_prints_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """A call without files exits with status 2 and prints the usage."""
    with pytest.raises(SystemExit) as ended:
        main(["verify"])
    assert ended.value.code == 2
    assert "CONNECTOR.json" in capsys.readouterr().err


def difference(
    verdict: Verdict = Verdict.DIFFERENT,
    where: Where = Where.BOTH,
    columns: tuple[str, ...] = ("name",),
    values: Mapping[str, tuple[str, str]] | None = None,
) -> Difference:
    key = pa.table({"id": [7], "part": [b"\x01"]})
    return Difference(verdict, where, key, columns, values or {"name": ("'secret'", "null")})


def printed(
    *found: Difference,
    show: bool = False,
    repaired: bool = False,
    compared: Compared = Compared(1200, ("old",)),  # noqa: B008 - a value
) -> tuple[list[str], int]:
    """Return the lines for one table, and the exit status."""
    out = io.StringIO()
    report = Report(out, io.StringIO(), show_values=show)
    report.begin("public.item")
    for each in found:
        report.on_difference(each)
        if repaired:
            report.on_repair(each)
    report.end(compared)
    return out.getvalue().splitlines(), report.finish()


def test_a_difference_is_named_by_key_and_column() -> None:
    """The report contains keys and columns of a difference, but no values."""
    lines, status = printed(difference(columns=("name", "qty")))
    assert lines == [
        "public.item id=7, part=01: name, qty differ",
        "public.item: 1,200 rows, 1 differ (not compared, because the source lacks them: old)",
    ]
    assert status == 1


def test_columns_that_transforms_change_are_named() -> None:
    """The report says which columns were not compared, and which rows a repair leaves out because of them."""
    compared = Compared(1200, (), ("name", "made"), 1)
    lines, status = printed(difference(where=Where.SOURCE), compared=compared)
    assert lines[1:] == [
        "public.item: 1 row(s) that only the source has are not repaired, because the connector's transforms make "
        "name, made; resnapshot the table (headrace resnapshot)",
        "public.item: 1,200 rows, 1 differ (not compared, because transforms change them: name, made)",
    ]
    assert status == 1


def test_values_are_printed_on_request() -> None:
    """The report prints the values of source and lake below the row."""
    assert printed(difference(), show=True)[0][1] == "    name: source 'secret', lake null"


@pytest.mark.parametrize(
    ("where", "words"),
    [(Where.SOURCE, "only in the source"), (Where.LAKE, "only in the lake"), (Where.TWICE, "stored twice in the lake")],
)
def test_a_row_of_one_side_is_reported_with_the_side(where: Where, words: str) -> None:
    """The report contains whether the row is only in the source, only in the lake, or twice in the lake."""
    assert words in printed(difference(where=where))[0][0]


def test_an_unproven_difference_is_reported_as_such() -> None:
    """The report marks a difference that is not proven, and counts it as a difference."""
    lines, status = printed(difference(Verdict.UNPROVEN))
    assert "did not pass" in lines[0]
    assert status == 1


def test_rows_that_a_later_change_explains_are_counted_only() -> None:
    """The report counts rows that a later change explains, but not as differences."""
    lines, status = printed(difference(Verdict.EXPLAINED))
    assert lines[0].startswith("public.item: 1,200 rows, equal (1 explained")
    assert status == 0


def test_repaired_rows_are_equal_again() -> None:
    """The exit status is 0 if all differences were repaired."""
    lines, status = printed(difference(), repaired=True)
    assert lines[1] == "public.item id=7, part=01: repaired"
    assert "equal (1 repaired" in lines[2]
    assert status == 0


def test_a_table_that_cannot_be_compared_is_an_error() -> None:
    """The exit status is 2 if a table cannot be compared, and if a connector has no tables."""
    report = Report(io.StringIO(), io.StringIO())
    assert report.finish() == 2
    report.begin("public.item")
    report.failed("no key")
    assert report.finish() == 2
