"""What the pages show, from the documents of the REST API. Pure.

Tests: ``tests/rest/test_console.py``, ``tests/rest/test_stages.py``.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from headrace.config.validation import is_secret
from headrace.core.connect.config_def import ConfigDef, Importance, Type
from headrace.core.connect.connector_plan import without_secrets
from headrace.core.connect.problems import age_text, parts, problems
from headrace.core.connect.status import worst_first
from headrace.runtime.worker.memory_plan import MEBIBYTE

Json = Mapping[str, Any]

MOST_SHOWN = 50
"""Of a list: a page of 500 tables would be sent again whenever one of them changes."""
_STALEST = 5
_ORDER = ("FAILED", "RETRYING", "UNASSIGNED", "RESTARTING", "DESTROYED", "STOPPED", "PAUSED", "RUNNING")


def age(seconds: float | None) -> str:
    return "unknown" if seconds is None else age_text(seconds)


def moment(time: str) -> str:
    """Return a time of ISO 8601 in UTC as date and time, in seconds."""
    return time[:19].replace("T", " ")


def phrase(kind: str) -> str:
    """Return the name of a kind of event as words: ``Connector paused``."""
    return kind.replace("_", " ").capitalize()


def overview(connectors: Mapping[str, Json], tables: Sequence[Json], workers: Sequence[Json]) -> Json:
    """Return counts by state (failed ones first), problems, the stalest tables, and the connectors, worst first.

    ``workers`` have their memory in mebibytes.
    """
    every = list(problems(connectors, tables))
    troubled = Counter(problem.connector for problem in every)
    tables_of = Counter(table["connector"] for table in tables)
    of_parts = list(parts(connectors))
    known = [table for table in tables if table["freshness_seconds"] is not None]
    stalest = sorted(known, key=lambda table: -table["freshness_seconds"])[:_STALEST]
    listed = [
        {
            "name": name,
            "state": status["connector"]["state"],
            "tasks": _counts(task["state"] for task in status["tasks"]),
            "tables": tables_of[name],
            "problems": troubled[name],
        }
        for name, status in connectors.items()
    ]
    listed.sort(key=lambda entry: (-entry["problems"], _ORDER.index(entry["state"]), entry["name"]))
    return {
        "counts": {
            "connectors": _counts(part["state"] for (_, task), part in of_parts if not task),
            "tasks": _counts(part["state"] for (_, task), part in of_parts if task),
            "tables": _counts(table["state"] for table in tables),
        },
        "waiting": sum(table["waiting"]["events"] for table in tables),
        "proof": proof(tables),
        "problems": every[:MOST_SHOWN],
        "more_problems": max(0, len(every) - MOST_SHOWN),
        "stalest": stalest,
        "connectors": listed[:MOST_SHOWN],
        "more_connectors": max(0, len(listed) - MOST_SHOWN),
        "workers": [
            {**worker, "memory": {name: size // MEBIBYTE for name, size in worker["memory"].items()}}
            for worker in workers
        ],
    }


def proof(tables: Sequence[Json]) -> Json:
    """Return the tables that are verified: different ones first, then those without a result, then the oldest proofs.

    ``oldest`` is the greatest age of a proof in seconds, None if a table was never proven equal.
    """
    verified = [table for table in tables if "verification" in table]

    def order(table: Json) -> tuple[int, float]:
        report = table["verification"]
        rank = 0 if report["differing"] else 1 if report["equal"] is not True else 2
        return rank, -(report["age_seconds"] or 0.0)

    ages = [table["verification"]["age_seconds"] for table in verified]
    verified.sort(key=order)
    return {
        "tables": verified[:MOST_SHOWN],
        "more": max(0, len(verified) - MOST_SHOWN),
        "verified": len(verified),
        "different": sum(table["verification"]["differing"] > 0 for table in verified),
        "equal": sum(table["verification"]["equal"] is True for table in verified),
        "oldest": None if None in ages else max(ages, default=None),
        "all": len(tables),
    }


def connector(status: Json) -> Json:
    """Return a connector's status with its problems, those of tables excepted."""
    return {**status, "problems": list(problems({status["name"]: status}, ()))}


def tables_of_connector(name: str, tables: Sequence[Json], wanted: str) -> Json:
    """Return those tables whose name contains ``wanted``, worst first, and the problems of those that are shown."""
    chosen = [{"connector": name, **table} for table in tables if wanted.lower() in table["table"].lower()]
    shown = worst_first(chosen)[:MOST_SHOWN]
    return {
        "connector": name,
        "tables": shown,
        "problems": list(problems({}, shown)),
        "chosen": len(chosen),
        "all": len(tables),
        "counts": _counts(table["state"] for table in tables),
        "wanted": wanted,
    }


_LOOKS = {"FAILED": "failed", "STARTED": "running", "RESTARTED": "restarting", "CHANGED": "retrying"}
"""Colors of kinds of events, by their last word; the words carry the meaning."""


def timeline(events: Sequence[Json], connector: str | None) -> Json:
    """Return the events that are shown, newest first, and the resource that has all of them."""
    shown = [{**event, "look": _LOOKS.get(event["kind"].rpartition("_")[2], "")} for event in events[:MOST_SHOWN]]
    resource = "/timeline" if connector is None else f"/connectors/{quote(connector, safe='')}/timeline"
    return {"events": shown, "more": len(events) > MOST_SHOWN, "resource": resource}


_CLOSED_BY = {
    "rows": "full: batch.max.records",
    "bytes": "full: batch.max.bytes",
    "age": "age: batch.linger.ms, freshness.target.ms",
    "barrier": "a truncate or a new column",
    "flush": "memory, or a pause",
}
"""The values of the label ``trigger`` of ``headrace_batches_total``, in words."""
_RESOLVED_BY = {
    "fold": "by other changes of the batch",
    "cache": "by the column cache",
    "source": "by the source database",
    "target": "by the stored row",
    "carry": "by the row under the old key",
    "unresolved": "by nothing",
    "unreadable": "by nothing: the column cannot hold the value",
}
"""The values of the label ``step`` of ``reselect_resolved_total``, in words."""


def table(document: Json) -> dict[str, Json]:
    """Return the parts of a table's page beside its state, by their names: batches, lake and columns.

    They are parts of their own because they change seldom. A worker of an earlier release sends no details.
    """
    operations = document.get("operations", {})
    events = sum(operations.values())
    reselect = document.get("reselect")
    return {
        "batches": {
            "batches": [
                {
                    **batch,
                    "closed_by": _CLOSED_BY.get(batch["closed_by"], batch["closed_by"]),
                    "operations": [(_words(name), count) for name, count in batch["operations"].items() if count],
                }
                for batch in document.get("batches", ())
            ],
            "operations": [
                (_words(name), count, round(100 * count / events)) for name, count in operations.items() if count
            ],
            "events": events,
            "reselect": None if reselect is None else _reselect(reselect),
        },
        "lake": {
            "files": document.get("files"),
            "last_compaction": document.get("last_compaction"),
            "watermark": document.get("watermark"),
        },
        "columns": {"columns": document.get("columns"), "changes": document.get("schema_changes", ())},
    }


def _reselect(use: Json) -> Json:
    """Return the use of reselect with the shares of the cache: of the lookups that it was asked for."""
    lookups = sum(count for result, count in use["cache_requests"].items() if result != "bypassed")
    return {
        **use,
        "selects": sum(use["queries"].values()),
        "failed": sum(count for result, count in use["queries"].items() if result not in ("ok", "not_found")),
        "lookups": lookups,
        "hits": use["cache_requests"].get("hit", 0),
        "cells": [(_RESOLVED_BY.get(step, step), count) for step, count in use["cells"].items() if count],
    }


def _words(name: str) -> str:
    return name.replace("_", " ")


_BREAKS = re.compile(r"(?<=\w[._,:;/=-])(?=\w)")


def pieces(text: str) -> list[str]:
    """Return the pieces of a name or a reason between which a line may end: behind punctuation, not inside of words."""
    return _BREAKS.split(text)


def size(number: int) -> str:
    """Return a number of bytes with two or three digits and its unit."""
    value, unit = float(number), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if value < 1000 or unit == "TiB":
            break
        value /= 1024
    return f"{number:,} bytes" if unit == "bytes" else f"{value:,.{1 if value < 10 else 0}f} {unit}"


_STEPS: Mapping[str, Sequence[str]] = {
    "Decode": ("decode",),
    "Reselect": ("reselect",),
    "Merge": ("fold", "ledger", "merge", "reconcile"),
}
"""The steps between Kafka and the lake, with their stages (``runtime/observation.py``)."""
_BUSY = 0.05
"""The least busy threads of a bottleneck: an idle connector has none."""


def flow(tasks: Sequence[Json]) -> Json:
    """Return the steps of a connector's records with rates and busy threads, the sums of all tasks.

    ``bottleneck`` is the step with the most busy threads, None if there is little to do.
    """
    stages = Counter[str]()
    for task in tasks:
        stages.update(task["busy_threads"])
    steps = [
        {
            "name": name,
            "busy": sum(stages[stage] for stage in of_step),
            "stages": [(stage, stages[stage]) for stage in of_step if stages[stage]] if len(of_step) > 1 else [],
        }
        for name, of_step in _STEPS.items()
    ]
    busiest = max(steps, key=lambda step: float(str(step["busy"])))
    return {
        "tasks": len(tasks),
        "lag": sum(task["lag_records"] for task in tasks),
        "read": sum(task["records_read_per_second"] for task in tasks),
        "reselected": sum(task["rows_reselected_per_second"] for task in tasks),
        "written": sum(task["changes_written_per_second"] for task in tasks),
        "steps": steps,
        "bottleneck": busiest["name"] if float(str(busiest["busy"])) >= _BUSY else None,
        "upkeep": stages["maintain"],
    }


def form(infos: Json) -> list[Json]:
    """Return the groups of a validation's answer with their options: important ones, and the others.

    ``connector.class`` is left out: a worker has one.
    """
    groups: dict[str, Json] = {
        group: {"name": group, "important": [], "others": [], "id": f"group-{number}"}
        for number, group in enumerate(infos["groups"])
    }
    for config in infos["configs"]:
        option, value = config["definition"], config["value"]
        if option["name"] == "connector.class" or option["group"] not in groups:
            continue
        listed = "important" if option["importance"] == Importance.HIGH else "others"
        groups[option["group"]][listed].append({**option, "recommended_values": value["recommended_values"]})
    return [group for group in groups.values() if group["important"] or group["others"]]


def configuration(config: Mapping[str, str], definition: ConfigDef) -> dict[str, str]:
    """Return a configuration without its secrets."""

    def is_hidden(name: str) -> bool:
        return is_secret(name) or (name in definition and definition[name].type is Type.PASSWORD)

    return {name: without_secrets(value, hidden=is_hidden(name)) for name, value in sorted(config.items())}


def options(shown: Mapping[str, str], definition: ConfigDef) -> list[Json]:
    """Return the options of a configuration without secrets, with their documentation."""
    return [
        {"name": name, "value": value, "doc": definition[name].doc if name in definition else ""}
        for name, value in shown.items()
    ]


def curl_of_config(url: str, name: str, shown: Mapping[str, str]) -> str:
    """Return a command that writes this configuration again, once its secrets are filled in."""
    body = json.dumps(shown, indent=2, ensure_ascii=False)
    target = f"{url}/connectors/{quote(name, safe='')}/config"
    return f"curl -X PUT -H 'Content-Type: application/json' {shlex.quote(target)} -d {shlex.quote(body)}"


def _counts(states: Iterable[str]) -> list[tuple[str, int]]:
    """Return how many have each state, failed ones first."""
    counts = Counter(states)
    return [(state, counts[state]) for state in _ORDER if counts[state]]
