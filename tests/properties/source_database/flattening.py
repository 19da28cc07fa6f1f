"""Records of a simulated connector with Debezium's ``ExtractNewRecordState``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from properties.source_database.scenario import Scenario

DELETES = ("tombstone", "delete-to-tombstone", "rewrite", "rewrite-with-tombstone")
NAMES = ("name", "db", "schema", "table")
POSITIONS: Mapping[str, Sequence[str]] = {
    "postgresql": ("lsn", "txId"),
    "mysql": ("file", "pos", "row", "server_id", "gtid"),
    "mariadb": ("file", "pos", "row", "server_id", "gtid"),
    "oracle": ("commit_scn", "txSeq"),
    "sqlserver": ("commit_lsn", "change_lsn", "event_serial_no"),
}


@dataclass(frozen=True)
class Flattening:
    """``delete.tombstone.handling.mode``, and whether headers name the table as the fields of rows do."""

    deletes: str
    named: bool

    def record(
        self, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, source: Mapping[str, Any]
    ) -> tuple[dict[str, Any] | None, list[tuple[str, bytes]]] | None:
        """The row (None: a null) and the headers of a record; None if the transform drops it."""
        if not op:
            return (None, []) if self.deletes == "rewrite-with-tombstone" else None
        if op == "t":
            return None
        positions = [name for name in POSITIONS[source["connector"]] if name in source]
        added = {"__op": op} | {f"__source_{name}": source[name] for name in (*positions, "ts_ms", "snapshot")}
        names = {f"__source_{name}": source[name] for name in NAMES if name in source}
        in_headers = added | (names if self.named else {})
        headers = [(name, json.dumps(value).encode()) for name, value in in_headers.items()]
        rewrites = self.deletes.startswith("rewrite")
        if op == "d" and not rewrites:
            return None, headers
        deleted = {"__deleted": "true" if op == "d" else "false"} if rewrites else {}
        row = before if op == "d" else after
        return dict(row or {}) | deleted | added | names, headers


def with_flattening(scenario: Scenario) -> Scenario:
    """Flatten the records of some scenarios.

    They have no truncates, which the transform drops; without metadata in each record nothing is read from a database.
    """
    choose = Random(f"flattening {scenario.seed}")
    if choose.randrange(100) >= 20 or scenario.setup.dialect not in POSITIONS or scenario.setup.arrays:
        return scenario
    flattened = Flattening(choose.choice(DELETES), choose.randrange(2) == 1 or scenario.setup.shared_topic)
    return replace(
        scenario,
        setup=replace(scenario.setup, flattened=flattened),
        features=replace(scenario.features, truncates=False),
        sink=replace(scenario.sink, database=False),
    )
