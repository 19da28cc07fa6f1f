"""Write the generated part of ``docs/performance.md``, and its pictures, from the results of ``make scale``.

Nobody types a figure: ``tests/unit/benchmarks/test_page.py`` fails if the page differs from the results.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.scale.charts import Axis, Series, bar_chart, line_chart
from benchmarks.scale.cost import RESULTS, usages
from benchmarks.scale.load import times_the_append
from benchmarks.scale.machine import QUIET_CORES

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
BEGIN, END = "<!-- generated from the results of make scale: begin -->", "<!-- generated: end -->"

Figures = Mapping[str, Any]


def main() -> None:
    """Write the page and the pictures."""
    results = json.loads(RESULTS.read_text())
    PAGE.write_text(with_results(PAGE.read_text(), results))
    for name, picture in pictures(results).items():
        (RESULTS.parent / name).write_text(picture)


def with_results(page: str, results: Figures) -> str:
    """Return the page with the results between its two marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return "\n\n".join([head + BEGIN, *_sections(results), END + tail])


def pictures(results: Figures) -> dict[str, str]:
    """Return the pictures by file name."""
    found = {}
    if lane := results.get("commit"):
        tables: dict[tuple[int, int], list[Figures]] = {}
        for each in lane["commits"]:
            tables.setdefault((each["rows"], each["columns"]), []).append(each)
        if sized := [commits for commits in tables.values() if len(_sizes(commits)) > 1]:
            found["commit.svg"] = _commit_picture(lane, sized)
        if wide := [each for commits in tables.values() if len(_sizes(commits)) == 1 for each in commits]:
            found["columns.svg"] = _columns_picture(lane, wide)
        found["history.svg"] = _history_picture(lane)
    if lane := results.get("load"):
        found["load.svg"] = _load_picture(lane)
    if lane := results.get("bulk"):
        found["bulk.svg"] = _bulk_picture(lane)
    if lane := results.get("bursts"):
        found["bursts.svg"] = _bursts_picture(lane)
    if lane := results.get("tables"):
        found["tables.svg"] = _tables_picture(lane)
        found["tables-cpu.svg"] = _tables_cpu_picture(lane)
    return found


# -- pictures ---------------------------------------------------------------------------------------------------------


_PATHS = {"merge": "MERGE", "direct": "without a Spark job"}


def _titled(lane: Figures, title: str) -> str:
    return f"{title} (preliminary)" if lane["other_cores"] > QUIET_CORES else title


def _sizes(commits: Sequence[Figures]) -> list[int]:
    return sorted({each["batch"] for each in commits})


def _commit_picture(lane: Figures, tables: Sequence[Sequence[Figures]]) -> str:
    series = [
        Series(
            f"{name}, table of {commits[0]['rows']:,} rows",
            [(each["batch"], each["cpu_ms"]) for each in commits if each["path"] == path],
            color,
            dash,
        )
        for dash, commits in enumerate(tables)
        for color, (path, name) in enumerate(_PATHS.items())
    ]
    x = Axis("rows of a commit", logarithmic=True, ticks=_sizes([each for commits in tables for each in commits]))
    return line_chart(
        _titled(lane, "CPU time of a commit"), x, Axis("CPU ms, Python and JVM", logarithmic=True), series
    )


def _columns_picture(lane: Figures, commits: Sequence[Figures]) -> str:
    series = [
        Series(name, [(each["columns"], each["cpu_ms"]) for each in commits if each["path"] == path], color)
        for color, (path, name) in enumerate(_PATHS.items())
    ]
    title = f"CPU time of a commit of {commits[0]['batch']:,} rows into {commits[0]['rows']:,}"
    ticks = sorted({each["columns"] for each in commits})
    x = Axis("columns", logarithmic=len(ticks) > 1, ticks=ticks)
    return line_chart(_titled(lane, title), x, Axis("CPU ms, Python and JVM", logarithmic=True), series)


def _history_picture(lane: Figures) -> str:
    histories = [found for found in lane["histories"] if len(found["blocks"]) > 1]
    series = [
        Series(
            f"table of {found['rows']:,} rows{'' if color else ', from a cold JVM'}",
            [(block["commits"], block["cpu_ms"]) for block in found["blocks"]],
            color,
        )
        for color, found in enumerate(histories)
    ]
    title = f"Commits of {histories[0]['batch']} rows in a row, with their upkeep"
    return line_chart(_titled(lane, title), Axis("commits so far"), Axis("CPU ms a commit, mean of a hundred"), series)


def _load_picture(lane: Figures) -> str:
    series = [
        Series(name, [(part["rows"], part[f"{side}_us"]) for part in lane["parts"]], color)
        for color, (side, name) in enumerate(
            (("load", "first load with upkeep"), ("write", "without upkeep"), ("append", "append by Spark"))
        )
    ]
    title = f"First load in batches of {lane['batch']:,} rows"
    return line_chart(_titled(lane, title), Axis("rows so far"), Axis("CPU us a row"), series)


def _bulk_picture(lane: Figures) -> str:
    bars = [(result["name"], result["events_per_cpu_s"]) for result in lane["results"]]
    title = f"{lane['results'][0]['events']:,} events into {lane['rows']:,} rows in one go"
    return bar_chart(_titled(lane, title), "events per CPU s", bars)


def _bursts_picture(lane: Figures) -> str:
    series = [
        Series(result["name"], list(enumerate(result["cpu_s_by_burst"], 1)), color)
        for color, result in enumerate(lane["results"])
    ]
    title = f"Bursts of {lane['results'][0]['burst']:,} events into {lane['rows']:,} rows, from cold JVMs"
    return line_chart(_titled(lane, title), Axis("burst"), Axis("CPU s of a burst"), series)


def _tables_picture(lane: Figures) -> str:
    results = lane["results"]
    series = [
        Series(f"{name}, {label}", [(each["tables"], each[key]) for each in chosen], color, dash)
        for color, (name, chosen) in enumerate(_by_contestant(results).items())
        for dash, (key, label) in enumerate((("p50_s", "p50"), ("p95_s", "p95")))
    ]
    title = f"Age of a change at its commit, {results[0]['rate']} changes a second in all tables"
    ticks = sorted({each["tables"] for each in results})
    x = Axis("tables", logarithmic=len(ticks) > 1, ticks=ticks)
    return line_chart(_titled(lane, title), x, Axis("seconds"), series)


def _tables_cpu_picture(lane: Figures) -> str:
    bars = [(f"{each['name']}: {each['tables']} tables", each["cpu_ms_per_commit"]) for each in lane["results"]]
    return bar_chart(_titled(lane, "CPU time of all processes for each commit"), "ms", bars)


def _by_contestant(results: Sequence[Figures]) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {}
    for each in results:
        found.setdefault("Headrace" if each["contestant"] == "headrace" else "Flink", []).append(each)
    return found


# -- text -------------------------------------------------------------------------------------------------------------


def _sections(results: Figures) -> Iterator[str]:
    sections = {
        "commit": _commit,
        "sizes": _sizes_of_tables,
        "load": _load,
        "start": _start,
        "bulk": _bulk,
        "bursts": _bursts,
        "tables": _tables,
    }
    for lane, section in sections.items():
        if lane in results:
            yield from section(results[lane])
            yield from _origin(results[lane])
    if "tables" in results or "commit" in results:
        yield from _usage(results)


def _origin(lane: Figures) -> Iterator[str]:
    """Say how the figures came about, and whether the machine was quiet."""
    if lane["other_cores"] > QUIET_CORES:
        yield f"**Preliminary**: other processes used {lane['other_cores']} cores of the machine during this run."
    properties = ", ".join(f"`{name}={value}`" for name, value in lane.get("properties", {}).items())
    worker = f" Worker: {properties}." if properties else ""
    yield _paragraph(
        f"Measured by `{lane['command']}` in {lane['seconds']} s on {lane['at']}, commit {lane['commit']}; "
        f"{lane['machine']}.{worker}"
    )


def _commit(lane: Figures) -> Iterator[str]:
    yield "## One commit"
    yield "![CPU time of a commit by its rows, without a Spark job and by MERGE](performance/commit.svg)"
    yield _paragraph(
        "Random updates, alternately without a Spark job (`write.index.memory.bytes`) and by MERGE, in one process "
        "after a warm-up. CPU time is that of Python and the JVM, with JIT compiler and garbage collector. Upkeep is "
        "counted apart. Objects are what an object store would have: no checksum files, no version hint."
    )
    columns = [
        "table",
        "columns",
        "snapshots",
        "rows of a commit",
        "path",
        "CPU ms",
        "Python",
        "JVM",
        "of it JIT",
        "wall ms",
    ]
    yield _table(
        [*columns, "upkeep, CPU ms", "objects", "kB"],
        [
            [
                *(f"{each[name]:,}" for name in ("rows", "columns", "snapshots", "batch")),
                "direct" if each["path"] == "direct" else "MERGE",
                *(f"{each[name]:.1f}" for name in ("cpu_ms", "python_ms", "jvm_ms", "jit_ms")),
                *(f"{each['wall_ms']:.0f}", f"{each['upkeep_cpu_ms']:.1f}"),
                *(f"{each['objects']}", f"{each['bytes'] / 1000:,.0f}"),
            ]
            for each in lane["commits"]
        ],
    )
    if len({each["columns"] for each in lane["commits"]}) > 1:
        yield "![CPU time of a commit by the columns of the table](performance/columns.svg)"
    yield "![CPU time of a commit while the history grows](performance/history.svg)"


def _sizes_of_tables(lane: Figures) -> Iterator[str]:
    yield "## Larger tables"
    yield _paragraph("Commits without a Spark job into tables that take turns in blocks of commits, in one process.")
    columns = ["table", "rows of a commit", "CPU ms", "Python", "JVM", "wall ms", "times the smallest table"]
    smallest = {each["batch"]: each["cpu_ms"] for each in reversed(lane["commits"])}
    yield _table(
        columns,
        [
            [
                *(f"{each['rows']:,}", f"{each['batch']:,}"),
                *(f"{each[name]:.1f}" for name in ("cpu_ms", "python_ms", "jvm_ms")),
                *(f"{each['wall_ms']:.0f}", f"{each['cpu_ms'] / smallest[each['batch']]:.2f}"),
            ]
            for each in lane["commits"]
        ],
    )


def _load(lane: Figures) -> Iterator[str]:
    last = lane["parts"][-1]
    writes, appends = (sum(part[name] for part in lane["parts"]) for name in ("write_us", "append_us"))
    yield "## First load"
    yield "![CPU time of a row while a table is loaded, beside an append](performance/load.svg)"
    yield _paragraph(
        f"{last['rows']:,} rows of a snapshot in batches of {lane['batch']:,}, upkeep included, beside an append of "
        f"the same batches by Spark, in one process. The load costs {lane['ratio']:.2f} times the CPU time of the "
        f"append, {writes / appends:.2f} times without upkeep, which combines files, as the append does not. The last "
        f"fifth costs {times_the_append(lane['parts'][-2:]):.2f} times the append. Upkeep does not run in each tenth. "
        "A snapshot that is repeated after a failure leaves one row for each key; an append would leave two."
    )


def _start(lane: Figures) -> Iterator[str]:
    yield "## Start"
    yield _paragraph(
        f"From the start of a worker's process until a table of {lane['rows']:,} rows contains {lane['events']} events "
        "that waited in the topic. After `kill -9` the next process removes the members of the killed one from the "
        "consumer groups, whose sessions would last 10 s. With an empty page cache, all files are read from the disk, "
        "as on a new node."
    )
    yield _table(
        ["", "REST answers after s", "first rows after s", "CPU s until then"],
        [
            [each["start"], *(f"{each[name]:.1f}" for name in ("answers_s", "first_rows_s", "cpu_s"))]
            for each in lane["results"]
        ],
    )


def _bulk(lane: Figures) -> Iterator[str]:
    events = lane["results"][0]["events"]
    yield "## Many updates in one go"
    yield "![Events per CPU second of each contestant](performance/bulk.svg)"
    yield _paragraph(
        f"{events:,} events for a table of {lane['rows']:,} rows, read from Kafka by warm processes. Flink's seconds "
        "include the wait for a checkpoint."
    )
    yield _table(
        ["", "s", "CPU s", "of it JIT", "GC", "events per CPU s"],
        [
            [
                each["name"],
                *(f"{each[name]:.1f}" for name in ("seconds", "cpu_s", "jit_s", "gc_s")),
                f"{each['events_per_cpu_s']:,}",
            ]
            for each in lane["results"]
        ],
    )
    yield from _scans(lane)


def _bursts(lane: Figures) -> Iterator[str]:
    first = lane["results"][0]
    yield "## Bursts"
    yield "![CPU time of each burst](performance/bursts.svg)"
    yield _paragraph(
        f"{first['bursts']} bursts of {first['burst']:,} events for a table of {lane['rows']:,} rows, each visible in "
        "the table before the next one is sent. All processes start cold. CPU time counts from their start until they "
        "are idle after the last burst. The contestants take turns with each burst, and the processes of the others "
        "are stopped meanwhile."
    )
    columns = ("cpu_s", "start_cpu_s", "jit_s", "gc_s", "visible_s_p50", "visible_s_max")
    yield _table(
        ["", "CPU s", "of it start", "of it JIT", "GC", "a burst is visible after s: p50", "most"],
        [[each["name"], *(f"{each[name]:.1f}" for name in columns)] for each in lane["results"]],
    )
    yield from _scans(lane)


def _scans(lane: Figures) -> Iterator[str]:
    timed = [each for each in lane["results"] if each["scan_s"]]
    if not timed:
        return
    yield "Seconds of a read of all rows and columns afterwards, of the table as it was written and compacted:"
    places = [(reader, state) for reader in timed[0]["scan_s"]["as written"] for state in ("as written", "compacted")]
    yield _table(
        ["", *(f"{reader}, {state}" for reader, state in places)],
        [[each["name"], *(_seconds(each["scan_s"][state][reader]) for reader, state in places)] for each in timed],
    )


def _seconds(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.2f}"


def _tables(lane: Figures) -> Iterator[str]:
    yield "## Many tables"
    yield "![Age of a change at its commit by the number of tables](performance/tables.svg)"
    yield _paragraph(
        f"{lane['results'][0]['rate']} changes a second in all tables together, for {lane['seconds_of_load']} s. The "
        "age is the time from the sending of a change to the commit that contains it."
    )
    columns = ["", "tables", "p50 s", "p95 s", "cores", "commits", "CPU ms a commit", "objects a commit", "kB a commit"]
    yield _table(
        columns,
        [
            [
                *(each["name"], f"{each['tables']:,}", f"{each['p50_s']:.1f}", f"{each['p95_s']:.1f}"),
                *(f"{each['cores']:.2f}", f"{each['commits']:,}", f"{each['cpu_ms_per_commit']:,}"),
                *(f"{each['objects_per_commit']:.1f}", f"{each['bytes_per_commit'] / 1000:,.0f}"),
            ]
            for each in lane["results"]
        ],
    )
    yield "![CPU time of all processes for each commit](performance/tables-cpu.svg)"


def _usage(results: Figures) -> Iterator[str]:
    yield "## A million changes"
    yield _paragraph(
        "CPU time and PUT requests of a million changes in the cases above. `python -m benchmarks.scale.cost` "
        "multiplies them with your prices; its `--help` has the formula."
    )
    yield _table(
        ["", "changes a commit", "CPU s", "PUT requests"],
        [
            [usage.name, f"{usage.changes:,.0f}", f"{usage.cpu_seconds:,.0f}", f"{usage.requests:,.0f}"]
            for usage in usages(results)
        ],
    )


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 120, break_on_hyphens=False)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table: the first column to the left, the others to the right."""
    head = [f"| {' | '.join(columns)} |", f"|---|{'--:|' * (len(columns) - 1)}"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


if __name__ == "__main__":
    sys.exit(main())
