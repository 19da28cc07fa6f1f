"""The performance page is made from measured results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.scale.charts import Axis, Series, bar_chart, line_chart
from benchmarks.scale.cost import RESULTS, main, usages
from benchmarks.scale.page import BEGIN, END, PAGE, pictures, with_results

TABLES: dict[str, Any] = {
    "name": "Headrace",
    "contestant": "headrace",
    "tables": 50,
    "rate": 400,
    "changes": 20_000,
    "commits": 1_000,
    "cpu_ms_per_commit": 36,
    "objects_per_commit": 5.0,
}


def parsed(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)  # noqa: S314 - made by the module under test


def test_page_and_pictures_are_those_of_the_results() -> None:
    """Run ``python -m benchmarks.scale.page``, and look at the pictures."""
    results = json.loads(RESULTS.read_text())
    assert PAGE.read_text() == with_results(PAGE.read_text(), results)
    assert {path.name: path.read_text() for path in RESULTS.parent.glob("*.svg")} == pictures(results)


def test_only_the_generated_part_of_the_page_is_replaced() -> None:
    """Text before and after the marks stays."""
    page = with_results(f"# Title\n\n{BEGIN}\n\nold\n\n{END}\n\nmore\n", {})
    assert page == f"# Title\n\n{BEGIN}\n\n{END}\n\nmore\n"


def test_points_are_placed_on_logarithmic_and_linear_axes() -> None:
    """Ten times as much is one step on a logarithmic axis; a linear axis begins at 0."""
    axes = Axis("rows", logarithmic=True, ticks=(1, 10, 100)), Axis("ms")
    picture = parsed(line_chart("A < B", *axes, [Series("line", [(1, 0), (10, 5), (100, 10)])]))
    places = [(float(mark.get("cx", 0)), float(mark.get("cy", 0))) for mark in picture.iter() if "circle" in mark.tag]
    assert places[1][0] - places[0][0] == pytest.approx(places[2][0] - places[1][0])
    assert places[0][1] - places[1][1] == pytest.approx(places[1][1] - places[2][1], abs=0.2)
    texts = [text.text for text in picture.iter() if text.tag.endswith("text")]
    assert {"A < B", "rows", "ms", "line", "1", "10", "100", "0", "2", "8"} <= set(texts)


def test_points_of_dashed_lines_are_hollow() -> None:
    """A line with one point, as a contestant that is measured once, is identified by this point."""
    lines = [Series("p50", [(1, 1)]), Series("p95", [(1, 2)], dash=1)]
    picture = parsed(line_chart("", Axis("x", ticks=(0, 1)), Axis("y"), lines))
    fills = [mark.get("fill") for mark in picture.iter() if "circle" in mark.tag]
    assert [fill == "#ffffff" for fill in fills] == [False, True, False, True]  # in the picture, in the legend


@pytest.mark.parametrize(
    ("low", "high", "ticks"), [(23, 1600, ["20", "50", "100", "200", "500", "1,000", "2,000"]), (5, 5, ["5"])]
)
def test_ticks_of_a_logarithmic_axis(low: float, high: float, ticks: list[str]) -> None:
    """They are round, and around the values."""
    axis = Axis("x", ticks=(0, 1))
    picture = parsed(line_chart("", axis, Axis("y", logarithmic=True), [Series("", [(0, low), (1, high)])]))
    ends = [text.text for text in picture.iter() if text.get("text-anchor") == "end"]
    assert ends == ticks


def test_bars_are_as_long_as_their_values() -> None:
    """The longest bar fits the picture."""
    picture = parsed(bar_chart("title", "s", [("a", 10.0), ("b", 5.0)]))
    first, second = [float(bar.get("width", 0)) for bar in picture.iter() if bar.tag.endswith("rect")][1:]
    assert first == pytest.approx(2 * second)
    assert first < float(picture.get("width", 0))


def test_cost_of_a_million_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """20 changes a commit are 50,000 commits: half an hour of CPU and 250,000 requests."""
    results = {"tables": {"results": [TABLES]}}
    [usage] = usages(results)
    assert (usage.changes, usage.cpu_seconds, usage.requests) == (20, 1800, 250_000)
    assert usage.cost(core_hour=0.06, thousand_requests=0.004) == pytest.approx((0.03, 1.0))
    file = tmp_path / "scale.json"
    file.write_text(json.dumps(results))
    assert main(["--core-hour", "0.06", "--thousand-puts", "0.004", "--json", str(file)]) == 0
    assert "1.0300" in capsys.readouterr().out


def test_prices_have_no_default(capsys: pytest.CaptureFixture[str]) -> None:
    """A price that nobody gave would look like a fact."""
    with pytest.raises(SystemExit):
        main([])
    assert "--core-hour, --thousand-puts" in capsys.readouterr().err


def test_a_result_that_does_not_exist_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says how to get one."""
    assert main(["--core-hour", "1", "--thousand-puts", "1", "--json", str(tmp_path / "none.json")]) == 1
    assert "run make scale" in capsys.readouterr().err
