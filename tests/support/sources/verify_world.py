"""A source, its log, Kafka and the lake in memory, which change while the verifier compares them.

At each query and each wait of the verifier the world executes a step of its script: it changes a row, leaves a
transaction open, publishes events, or applies some to the lake through real lake tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from support.lake.lake_actions import SOURCE, TOPIC, Row, actions, commit, delete

from headrace.core.merge.history import History
from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn, SqlType
from headrace.core.model.events import Column, Versions
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.rows import RowAnswer, RowRequest
from headrace.core.verify.verification import comparison
from headrace.ports import LogPosition, TableOptions, TablePart, TopicPartition
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.verify.paced_source import Pace, PacedSource
from headrace.runtime.verify.table_repair import Sink, TableRepair
from headrace.runtime.verify.table_verifier import (
    Clock,
    Difference,
    LakeProgress,
    TableVerifier,
    VerifyOptions,
)
from headrace.runtime.verify.verified_table import VerifiedTable
from headrace_connectors.lakehouse.schema import HISTORY_COLUMNS
from headrace_dev.memory import MemoryLakehouse, MemoryRowSource

INT, TEXT = SqlType(20, "pg_catalog", "int8"), SqlType(25, "pg_catalog", "text")
CATALOG = CatalogTable(
    SOURCE,
    "r",
    "d",
    (CatalogColumn("id", 1, INT, not_null=True), CatalogColumn("name", 2, TEXT)),
    (KeyColumn("id", INT),),
)
SCHEMA = Schema("struct", fields=(Field("id", Schema("int64")), Field("name", Schema("string", True))))
LAKE = pa.schema([("id", pa.int64()), ("name", pa.string())])
PLACE = TopicPartition(TOPIC, 0)
OPERATION, UNAVAILABLE = HISTORY_COLUMNS.names[-2:]


@dataclass
class Event:
    """A change of one row; ``name`` is None for a delete."""

    position: int
    key: int
    name: str | None


@dataclass
class World:
    """``script`` contains the steps; after the last one, the world publishes and applies all changes.

    ``plan`` contains changes before certain calls of the lake table, in their order: the call, a key, its new name.
    """

    script: list[int] = field(default_factory=list)
    plan: list[tuple[str, int, str | None]] = field(default_factory=list)
    keys: int = 4
    confirms: bool = True
    rows: dict[int, str | None] = field(default_factory=dict)
    log: list[Event] = field(default_factory=list)
    open: list[Event] = field(default_factory=list)
    published: int = 0
    confirmed: int = 0
    applied: int = 0
    end: int = 1
    time: float = 0.0
    options: TableOptions = field(default_factory=TableOptions)

    def __post_init__(self) -> None:
        self.source = WorldSource(self)
        self.lake = MemoryLakehouse().table("shop", "item", self.options)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Execute the next step of the script."""
        if not self.script:
            self.settle()
            return
        choice = self.script.pop(0)
        kind, key = choice % 8, choice // 8 % self.keys
        if kind in (1, 2):
            self.change(key, f"n{choice // 32 % 3}" if kind == 1 else None)
        elif kind == 3:
            self.begin(key, f"n{choice // 32 % 3}")
        elif kind == 4:
            self.commit()
        elif kind == 5:
            self.publish()
        elif kind == 6:
            self.apply()

    def before(self, call: str) -> None:
        """Execute the change that is planned before a call of the lake table, or the next step."""
        if not self.plan or self.plan[0][0] != call:
            self.step()
            return
        _, key, name = self.plan.pop(0)
        self.change(key, name)
        self.settle()

    def change(self, key: int, name: str | None) -> None:
        """Commit a transaction of one change."""
        if any(event.key == key for event in self.open) or (name is None and key not in self.rows):
            return
        self.begin(key, name)
        self.commit()

    def begin(self, key: int, name: str | None) -> None:
        """Start a transaction of one change; its position is below those of transactions that commit before it."""
        if all(event.key != key for event in self.open):
            self.open.append(Event(self._position(), key, name))

    def commit(self) -> None:
        """Commit the transaction that was opened last."""
        if self.open:
            event = self.open.pop()
            self._position()
            self.log.append(event)
            if event.name is None:
                self.rows.pop(event.key, None)
            else:
                self.rows[event.key] = event.name

    def publish(self) -> None:
        """Publish all committed changes to Kafka, and confirm them to the source."""
        self.published, self.confirmed = len(self.log), self.end

    def apply(self, count: int = 1) -> None:
        """Apply some of the published events to the lake."""
        for event in self.log[self.applied : min(self.applied + count, self.published)]:
            if self.lake.schema() is None:
                self.lake.evolve(LAKE, () if self.options.history else ["id"])
            cells = {"id": event.key, "name": event.name}
            how: dict[str, Any] = {"position": event.position, "at": self.applied}
            row = delete(cells, **how) if event.name is None else Row(cells, **how)
            if self.options.history:
                self.lake.append(_appended(row), commit())
                self.applied += 1
                continue
            if event.name is None:
                self.lake.record_tombstones({f"={event.key}": row.last_version}, now=0)
            self.lake.merge(replace(actions(LAKE, [row]), key=pa.array([f"={event.key}"])), commit())
            self.applied += 1

    def settle(self) -> None:
        """Commit, publish and apply all changes."""
        while self.open:
            self.commit()
        self.publish()
        self.apply(len(self.log))

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.step()

    def _position(self) -> int:
        self.end += 1
        return self.end - 1

    # -- Offsets ------------------------------------------------------------------------------------------------------

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        self.step()
        return {PLACE: self.published}

    def committed_offsets(self) -> Mapping[TopicPartition, int]:
        self.step()
        return {PLACE: self.applied}

    # -- comparing ----------------------------------------------------------------------------------------------------

    def table(self, *, in_parts: bool = False) -> VerifiedTable:
        wanted = comparison(SCHEMA, self.lake.schema(), ["id"])
        paced = PacedSource(self.source, Pace(10**9, 60_000, lambda: self.time))
        source = paced if in_parts else self.source
        return VerifiedTable(SOURCE, CATALOG, wanted, source, _Moving(self), self.options.history)

    def verifier(
        self, folder: Path, *, show: bool = False, timeout: float = 60.0, in_parts: bool = False
    ) -> TableVerifier:
        clock = Clock(lambda: self.time, self.sleep)
        progress = LakeProgress(self.source, self, TOPIC, clock.now, clock.sleep)
        options = VerifyOptions(timeout, keep_values=show)
        return TableVerifier(self.table(in_parts=in_parts), progress, options, clock, folder)

    def differences(self, folder: Path, **how: Any) -> list[Difference]:
        return list(self.verifier(folder, **how).differences())

    def repair(self, folder: Path, differences: Sequence[Difference]) -> int:
        return self.repairing(folder).repair(differences)

    def repairing(self, folder: Path, paused: Callable[[], AbstractContextManager[None]] = nullcontext) -> TableRepair:
        sink = Sink("sink", TOPIC, "shop.item", PipelineOptions(), timeout=60.0)
        clock = Clock(lambda: self.time, self.sleep)
        return TableRepair(self.table(), self.verifier(folder), sink, self, clock, lambda: 10**15, paused)

    def corrupt(self, key: int, name: str | None) -> None:
        """Change a stored cell without a commit, of a history that of the last event; its stored version remains."""
        cells = self._events(key)[-1] if self.options.history else self.lake._stored.rows[f"={key}"].cells
        cells["name"] = pa.scalar(name, pa.string())

    def lose(self, key: int) -> None:
        """Remove a stored row without a commit, of a history all of its events."""
        if self.options.history:
            for event in self._events(key):
                self.lake._stored.history.remove(event)
        else:
            del self.lake._stored.rows[f"={key}"]

    def omit(self, key: int, value: str | None) -> None:
        """Make the last event of a key one that omits the name, which was ``value`` at the event before it, if any."""
        *before, last = self._events(key)
        for event in before:
            event["name"] = pa.scalar(value, pa.string())
        last["name"] = pa.scalar(None, pa.string())
        last[UNAVAILABLE] = pa.scalar(["name"], last[UNAVAILABLE].type)
        last[OPERATION] = pa.scalar("u", pa.string())

    def _events(self, key: int) -> list[dict[str, pa.Scalar]]:
        return [event for event in self.lake._stored.history if event["id"].as_py() == key]

    def stored(self) -> dict[int, str | None]:
        """Return the rows of the lake."""
        return {row["id"]: row["name"] for row in self.lake.rows().values()}


def _appended(row: Row) -> History:
    """Return the event of a row as the row of a history."""
    columns = [
        Column(field.name, field.schema, pa.array([row.cells[field.name]], LAKE.field(field.name).type))
        for field in SCHEMA.fields
    ]
    operation = pa.array(["d" if row.delete else "c"])
    nothing = pa.nulls(1, pa.list_(pa.string()))
    return History(SOURCE, operation, Versions.of(TOPIC, [row.last_version]), tuple(columns), nothing)


class WorldSource(MemoryRowSource):
    """The source database of the world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.add(CATALOG, SCHEMA)

    def scan(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[Sequence[Sequence[Any]]]:
        self._now()
        for piece in super().scan(catalog, columns):
            yield piece
            self._world.step()

    def scan_in_parts(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[TablePart]:
        self._now()
        for part in super().scan_in_parts(catalog, columns):
            yield part
            self._world.step()
            self._now()

    def fetch(self, catalog: CatalogTable, request: RowRequest) -> RowAnswer:
        self._now()
        answer = super().fetch(catalog, request)
        self._world.step()
        return answer

    def log_position(self) -> LogPosition:
        self._world.step()
        confirmed = (self._world.confirmed,) if self._world.confirms else None
        return LogPosition("postgresql", (self._world.end,), confirmed)

    def _now(self) -> None:
        self._world.step()
        self.set_rows(SOURCE, *({"id": key, "name": name} for key, name in self._world.rows.items()))


class _Moving:
    """A lake table that runs a step of the world before each call."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        if name in ("scan", "read", "last_states", "ledger", "stored", "merge"):
            self._world.before(name)
        return getattr(self._world.lake, name)
