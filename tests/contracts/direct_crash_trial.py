"""Commits without a Spark job, each in a JVM that ends before its first, second, … file.

``test_direct_crashes.py`` runs it. Prints a JSON object for each commit; the last is that of a JVM that did not end.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from pyiceberg.table import StaticTable
from support.lake.lake_actions import delete
from support.lake.lake_harness import ITEM, apply, item

from headrace.core.model.errors import HeadraceError
from headrace.ports import EngineState, TableOptions
from headrace_connectors.lakehouse import SparkLakehouse
from headrace_connectors.lakehouse.direct import row_index
from headrace_connectors.lakehouse.direct.direct_table import DirectTable
from headrace_connectors.lakehouse.spark_jars import LOCAL_FILES_JAR
from headrace_dev import java_classes
from headrace_dev.jars import resolve
from headrace_dev.server import wait_until
from headrace_dev.worker import SHORT_LIVED

ROWS = 20


def main() -> None:
    """Run in the warehouse that the first argument names. The second is the first file before which a JVM ends.

    The third is the size of small tables.
    """
    logging.basicConfig(level=logging.WARNING)
    row_index.SMALL_BYTES = int(sys.argv[3])
    warehouse, first = Path(sys.argv[1]), int(sys.argv[2])
    jar = Path(tempfile.mkdtemp(dir=warehouse.parent)) / "halting-files.jar"
    jar.write_bytes(java_classes.build([Path(__file__).with_name("HaltingFiles.java")]))
    settings = {**SHORT_LIVED, "spark.master": "local[2]", "spark.driver.memory": "600m"}
    settings["spark.hadoop.fs.file.impl"] = "headrace.HaltingFiles"
    settings["spark.driver.extraClassPath"] = f"{jar}:{LOCAL_FILES_JAR}"
    lakehouse = SparkLakehouse(str(warehouse), settings, resolve("lakehouse"))
    table: Any = lakehouse.table("trial", "item", TableOptions())
    table.evolve(ITEM, ["id"])
    apply(table, *(item(key, "old", position=1) for key in range(ROWS)))
    names = dict.fromkeys(range(ROWS), "old")
    for step in count(first):
        before = dict(names)
        name, gone = f"step {step}", step % ROWS
        batch = [item(key, name, position=step + 1) for key in (ROWS, ROWS + step, (step + 1) % ROWS)]
        batch.append(delete({"id": gone}, position=step + 1))
        names |= dict.fromkeys((ROWS, ROWS + step, (step + 1) % ROWS), name)
        names.pop(gone, None)
        session = table._session
        session._spark._jvm.headrace.HaltingFiles.haltBefore(step)
        halted, readable = False, True
        try:
            apply(table, *batch)
            session._spark._jvm.headrace.HaltingFiles.haltBefore(0)
        except HeadraceError:
            halted, readable = True, _names(warehouse / "trial" / "item") in (before, names)
            wait_until(lambda: lakehouse.engine.state is EngineState.RUNNING, "a running Spark", 120)
            table = lakehouse.table("trial", "item", TableOptions())  # as the worker does, or the next one
            apply(table, *batch)
        made = sum(1 for _ in table._history())
        rows = table._session.rows("SELECT id, name FROM lake.trial.item")
        equal = {row.id: row.name for row in rows} == names and len(rows) == len(names)
        equal &= _names(warehouse / "trial" / "item") == names
        result = {"step": step, "halted": halted, "readable": readable, "equal": equal, "commits": made}
        print(json.dumps(result), flush=True)
        if not halted:
            break
    print(json.dumps({"direct": isinstance(table._direct._table, DirectTable)}), flush=True)
    lakehouse.close()


def _names(table: Path) -> dict[int, str]:
    """What a reader without a catalog finds, empty if it finds no table."""
    try:
        rows = StaticTable.from_metadata(str(table)).scan().to_arrow()
    except FileNotFoundError:
        return {}
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


if __name__ == "__main__":
    main()
