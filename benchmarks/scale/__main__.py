"""``make scale``: what Headrace costs, in curves.

Lanes:
  commit   one commit of 100 to 150,000 rows: without a Spark job, and by MERGE
  sizes    the same commits into 100,000 and 5,000,000 rows, by turns
  load     the first load of 5,000,000 rows, beside an append of the same rows by Spark
  start    from the start of a worker to the first rows of an existing table
  bulk     300,000 events of 100,000 keys for 1,000,000 rows in one go, beside Flink and a hand-written stream
  bursts   the same events in 20 bursts, each visible before the next one, beside Flink
  tables   50 and 200 tables with 400 changes a second in all, 50 beside Flink

Each lane prints its progress and figures, and compares each row of each table. --json writes the figures with the
machine, the commit and the command. From docs/performance/scale.json, `python -m benchmarks.scale.page` makes
docs/performance.md and its pictures, and `python -m benchmarks.scale.cost` calculates the cost of a million changes.

Examples:
  make scale                                       all lanes, below 30 minutes on two cores, and the page
  make scale LANES="commit bursts"                 two lanes; the results of the others stay
  python -m benchmarks.scale commit --rows 5000000 --batches 100 15000
  python -m benchmarks.scale tables --tables 200 --seconds 600 --contestants headrace
  python -m benchmarks.scale tables --tables 20 --rate 22400 --keys 10000 --contestants headrace
  python -m benchmarks.scale bursts --property write.index.memory.bytes=0    MERGE for all batches
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.lake import FLINK, HEADRACE, STREAM
from benchmarks.scale import bulk, bursts, commits, load, sizes, start, tables
from benchmarks.scale.machine import QUIET_CORES, Observation
from headrace_dev.stack import Stack

CONTESTANTS = (HEADRACE, FLINK, STREAM)
Beside = TypeVar("Beside", bulk.Plan, bursts.Plan, tables.Plan)

LANES = ("commit", "sizes", "load", "start", "bulk", "bursts", "tables")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run lanes. Return 1 if a table does not contain the expected rows."""
    chosen = _parser().parse_args(arguments)
    command = _command(sys.argv[1:] if arguments is None else arguments)
    results: dict[str, Any] = json.loads(chosen.json.read_text()) if chosen.json and chosen.json.exists() else {}
    wrong = 0
    for lane in chosen.lanes or LANES:
        say = _Progress(lane)
        root = Path(tempfile.mkdtemp(prefix="headrace-scale-"))
        observation = Observation()
        try:
            figures = _run(lane, chosen, root, say)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        results[lane] = {"command": command, **observation.result(), **figures}
        if (others := results[lane]["other_cores"]) > QUIET_CORES:
            say(f"preliminary: other processes used {others} cores")
        wrong += figures["wrong_rows"]
        if chosen.json:
            chosen.json.write_text(json.dumps(results, indent=1) + "\n")
    print(f"scale: {wrong} wrong rows" if wrong else "scale: every table contains the expected rows")
    return 1 if wrong else 0


def _command(arguments: Sequence[str]) -> str:
    """Return the command of a run, without the options that say where its output goes."""
    kept = argparse.ArgumentParser(add_help=False)
    kept.add_argument("--json")
    kept.add_argument("--logs")
    return shlex.join(["python", "-m", "benchmarks.scale", *kept.parse_known_args(arguments)[1]])


def _run(lane: str, chosen: argparse.Namespace, root: Path, say: _Progress) -> dict[str, Any]:
    """Run a lane and return its figures."""
    if lane == "commit":
        return commits.run(_commit_plan(chosen), root, say)
    if lane == "sizes":
        return sizes.run(sizes.QUICK if chosen.quick else sizes.FULL, root, say)
    if lane == "load":
        return load.run(_load_plan(chosen), root, say)
    properties = dict(chosen.property)
    if lane == "tables":
        tables_plan = _with_contestants(tables.QUICK if chosen.quick else tables.FULL, chosen)
        for name in ("tables", "rate", "seconds", "keys"):
            if (value := getattr(chosen, name)) is not None:
                tables_plan = replace(tables_plan, **{name: value})
        return {"properties": properties, **tables.run(tables_plan, root, properties, say, chosen.logs)}
    with Stack("kafka", logs=chosen.logs, sustained=not chosen.quick) as stack:
        if lane == "start":
            start_plan = start.QUICK if chosen.quick else start.FULL
            return {"properties": properties, **start.run(start_plan, stack, root, properties, say)}
        if lane == "bulk":
            plan = _with_contestants(bulk.QUICK if chosen.quick else bulk.FULL, chosen)
            return {"properties": properties, **bulk.run(plan, stack, root, properties, say)}
        bursts_plan = _with_contestants(bursts.QUICK if chosen.quick else bursts.FULL, chosen)
        return {"properties": properties, **bursts.run(bursts_plan, stack, root, properties, say)}


def _with_contestants(plan: Beside, chosen: argparse.Namespace) -> Beside:
    """Return the plan with those of its contestants that are chosen."""
    wanted = chosen.contestants or ((HEADRACE,) if chosen.quick else CONTESTANTS)
    return replace(plan, contestants=[name for name in plan.contestants if name in wanted])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lanes", nargs="*", type=_lane, metavar="lane", help="default: all of them")
    parser.add_argument("--quick", action="store_true", help="a small load that only checks that a lane works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the results go; those of other lanes stay")
    parser.add_argument("--logs", type=Path, default=Path(".logs"), help="where logs go if something fails")
    group = parser.add_argument_group("start, bulk, bursts, tables")
    group.add_argument(
        "--property",
        action="append",
        type=_property,
        default=[("write.index.memory.bytes", str(2**28))],
        metavar="NAME=VALUE",
        help="a property of Headrace's worker (default: write.index.memory.bytes=268435456; the last one counts)",
    )
    group = parser.add_argument_group("bulk, bursts, tables")
    group.add_argument(
        "--contestants", nargs="+", choices=CONTESTANTS, help="default: all that a lane has; with --quick, Headrace"
    )
    group = parser.add_argument_group("tables")
    group.add_argument("--tables", type=int, nargs="+", metavar="N", help="numbers of tables (default: 50 200)")
    group.add_argument("--rate", type=int, metavar="N", help="changes a second in all tables together (default: 400)")
    group.add_argument("--seconds", type=int, metavar="N", help="how long changes are sent (default: 45)")
    group.add_argument("--keys", type=int, metavar="N", help="rows of each table (default: 100)")
    group = parser.add_argument_group("commit, load")
    group.add_argument("--rows", type=int, metavar="N", help="one table of N rows instead of those of the default")
    group = parser.add_argument_group("commit")
    group.add_argument("--columns", type=int, metavar="N", help="one table with N columns")
    group.add_argument("--batches", type=int, nargs="+", metavar="N", help="the same, with commits of N rows")
    group.add_argument("--history", type=int, metavar="N", help="the same, with N commits before the measured ones")
    group.add_argument("--rounds", type=int, metavar="N", help="blocks of commits of each path and size (default: 2)")
    return parser


def _lane(name: str) -> str:
    if name not in LANES:
        raise argparse.ArgumentTypeError(f"no lane {name!r}; the lanes are {', '.join(LANES)}")
    return name


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _commit_plan(chosen: argparse.Namespace) -> commits.Plan:
    plan = commits.QUICK if chosen.quick else commits.FULL
    options = {name: value for name in ("rows", "columns", "batches", "history") if (value := getattr(chosen, name))}
    if options:
        plan = replace(plan, tables=[replace(plan.tables[0], **options)])
    return replace(plan, rounds=chosen.rounds or plan.rounds)


def _load_plan(chosen: argparse.Namespace) -> load.Plan:
    plan = load.QUICK if chosen.quick else load.FULL
    return replace(plan, rows=chosen.rows or plan.rows)


class _Progress:
    """Prints what a lane does, with the seconds since its begin."""

    def __init__(self, lane: str) -> None:
        self._lane = lane
        self._begin = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"[{self._lane} {time.monotonic() - self._begin:4.0f} s] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
