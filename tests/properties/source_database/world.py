"""Consecutive workers over one group and one lakehouse, until all records are written and committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import lru_cache
from threading import Event, Thread
from typing import Any, TypeVar

from properties.source_database.failovers import advised_epoch, most_answers
from properties.source_database.judge import Judge
from properties.source_database.row_source import LaterSource
from properties.source_database.scenario import Place, Scenario, chance, simulate
from properties.source_database.sink import Fate, MortalLakehouse, ScriptedFeed
from properties.source_database.virtual_time import Killed, NothingLeft, VirtualLoop

from headrace.config import SinkConnectorConfig
from headrace.config.kafka import KafkaSettings
from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.ports import DeadLetterQueue, Divide, Feed, Messages, TableOptions
from headrace.runtime.task.asyncio_agent import AsyncioAgent
from headrace.runtime.task.flow_control import unlimited
from headrace.runtime.task.sink_task import SinkTask
from headrace.runtime.task.task_factory import SinkTaskFactory
from headrace.runtime.threads import WorkerThreads
from headrace_dev.memory import MemoryLakehouse

_Message = TypeVar("_Message")
LIVES = 12
TIMEOUT = 900.0
"""Virtual seconds within which a life has to come to rest."""
DELAYS = (0.01, 0.4, 3.0, 7.0)
NAMESPACE = "lake"


class World:
    """The state that outlives a worker."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.truth = simulate(scenario)
        self.judge = Judge(scenario, self.truth)
        self.lakehouse = MemoryLakehouse()
        self.fate = Fate(scenario.deaths)
        self.committed: dict[Place, int] = {}
        self.notes: dict[Place, str] = {}
        self.generation = 0
        self.chunks = 0
        self.lives = 0
        self.wrong: list[str] = []
        self.stops: list[BaseException] = []
        self.clock = 1_000.0
        self.overtaken: Life | None = None
        self.handed_back = Event()
        self.epoch = 0
        self.answers = 0
        self.version = 0

    def run(self) -> None:
        """Run workers until all offsets are committed, or a problem is found."""
        while not self.is_done and not self.wrong and not self.stops:
            if self.lives == LIVES + self.epoch:
                self.wrong.append(f"not done after {self.lives} lives")
                return
            Life(self).run()

    def finish(self) -> None:
        """Compare the tables at the end."""
        for number in range(self.scenario.setup.tables) if not (self.wrong or self.stops) else ():
            if difference := self.judge.at_end(number, self.rows(number)):
                self.wrong.append(difference)

    @property
    def is_done(self) -> bool:
        """Whether the group has committed all offsets."""
        return all(self.committed.get(place, 0) == end for place, end in self.truth.ends.items())

    def table_name(self, number: int) -> str:
        """The lake table of a source table."""
        return f"t{number}" if self.scenario.setup.shared_topic else f"shop_public_t{number}"

    def rows(self, number: int) -> list[Mapping[str, Any]]:
        """The rows of the lake table of a source table."""
        return list(self.lakehouse.table(NAMESPACE, self.table_name(number), TableOptions()).rows().values())

    def stop(self, failures: Sequence[BaseException]) -> None:
        """Handle the failures of a task: the operator sets the epoch that an error names, and restarts the task."""
        for failure in failures:
            epoch = advised_epoch(failure, self.scenario)
            if epoch is None:
                self.stops.append(failure)
            else:
                self.epoch = max(self.epoch, epoch)
                self.answers += 1
        if self.answers > (limit := most_answers(self.scenario, self.truth)):
            self.wrong.append(f"the epoch was raised {self.answers} times, although {limit} times should do")

    def judge_commit(self, name: str) -> None:
        """Judge a new commit of a table."""
        number = int(name[-1])
        if wrong := self.judge.at_commit(number, self.rows(number)):
            self.wrong.append(f"after a commit: {wrong}")

    def seen(self, version: int) -> None:
        """Record that records of this database version were read: later reads return no older version."""
        self.version = max(self.version, version)

    def answer_version(self) -> int:
        """The database version for a query: that of the newest record, or a later one."""
        last = len(self.truth.database.versions) - 1
        ahead = chance(self.scenario, self.version, self.lives, 11)
        if ahead % 2:
            self.version += ahead // 2 % (last - self.version + 1)
        return self.version


class Inline(Executor):
    """An executor that is never used: the loop calls functions at once."""


class Life:
    """One worker with its task, from its start to its death or to the end."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.lives += 1
        self.number = world.lives
        self.generation = world.generation
        self.task: SinkTask
        self._calls = 0
        self._pauses = 0
        self._is_dead = False
        self._thread: Thread | None = None
        self._released = Event()

    @property
    def is_overtaken(self) -> bool:
        """Whether the partitions belong to a successor, which this worker does not know yet."""
        return self.generation != self.world.generation

    def run(self) -> None:
        """Live."""
        loop = VirtualLoop(self._delay, self.world.clock)
        try:
            self._is_dead = not loop.run(self._main())
        except NothingLeft:
            self.world.wrong.append("the task waits for something that never happens")
        self.world.clock = max(self.world.clock, loop.time()) + 1
        self._released.set()
        if self._thread is not None:
            self._thread.join()

    def call(self) -> None:
        """Handle a call of a table: here a worker may be paused and fenced, or let the fenced worker resume."""
        if self._is_dead:
            raise Killed
        self._calls += 1
        overtaking = self.world.scenario.overtaking
        if overtaking is None:
            return
        if self.number == 1 and self._calls == overtaking.still:
            self._be_overtaken()
        elif self.world.overtaken is not None and self.number == 2 and self._calls == overtaking.again:
            self.world.handed_back.set()
            self.world.overtaken._released.wait()

    def before(self, point: str) -> None:
        """Call this before a step becomes durable. Raises Killed.

        A fenced worker is not killed: docs/guarantees.md excludes that under "A worker that stops responding".
        """
        if not self.is_overtaken:
            self.world.fate.before(point)

    def after(self, point: str) -> None:
        """Call this after a step has become durable. Raises Killed."""
        if not self.is_overtaken:
            self.world.fate.after(point)

    def _be_overtaken(self) -> None:
        self.world.generation += 1
        self.world.overtaken = self
        self._thread = Thread(target=self._successors, daemon=True)
        self._thread.start()
        self.world.handed_back.wait()

    def _successors(self) -> None:
        try:
            self.world.run()
        finally:
            self.world.handed_back.set()

    async def _main(self) -> None:
        world, failures = self.world, list[BaseException]()
        factory = SinkTaskFactory(
            _Feeds(self),
            MortalLakehouse(self),
            lambda database, options: LaterSource(world),
            WorkerThreads(Inline(), Inline(), Inline(), writers=2),
            unlimited(),
            sources={},
        )
        self.task = await factory("oracle", 0, config(world.scenario, world.epoch), failures.append)
        await self.task.start()
        loop = asyncio.get_running_loop()
        end = loop.time() + TIMEOUT
        while not (failures or world.is_done or self.is_overtaken):
            await asyncio.sleep(1.0)
            if loop.time() > end:
                world.wrong.append(f"not at rest: committed {world.committed} of {world.truth.ends}")
                break
        if self.is_overtaken:
            await asyncio.sleep(30)
        else:
            world.stop(failures)
        await self.task.stop()

    def _delay(self) -> float:
        self._pauses += 1
        number = chance(self.world.scenario, self._pauses, self.number, 9)
        return DELAYS[number // 100 % len(DELAYS)] if number % 100 < self.world.scenario.pace.slow else 0.0


class _Feeds:
    """``runtime.task_factory.Feeds`` of one life."""

    def __init__(self, life: Life) -> None:
        self._life = life

    async def start(self, worker: str = "") -> None:
        """Nothing to start."""

    def beat(self, callback: Callable[[], object]) -> None:
        """No thread of its own."""
        callback()

    def check(self, connector: str, settings: KafkaSettings) -> None:
        """Nothing to check."""

    def open(self, connector: str, task: int, settings: KafkaSettings, divide: Divide | None = None) -> Feed:
        """The feed of the life."""
        return ScriptedFeed(self._life, divide)

    def agent(self, name: str, body: Callable[[Messages[_Message]], Awaitable[None]]) -> AsyncioAgent[_Message]:
        """Agents without Faust."""
        return AsyncioAgent(name, body)

    def compacted(self, connector: str, task: int, settings: KafkaSettings) -> Any:
        """No topic is compacted."""
        return lambda topic: False

    async def dead_letter_queue(self, connector: str, task: int, settings: KafkaSettings) -> DeadLetterQueue | None:
        """There is none."""
        return None

    async def close(self) -> None:
        """Nothing to close."""


def config(scenario: Scenario, epoch: int) -> SinkConnectorConfig:
    """The connector's configuration."""
    setup, sink = scenario.setup, scenario.sink
    return _config(setup.shared_topic, setup.schemas, setup.dialect == "oracle", sink, epoch)


@lru_cache(512)
def _config(shared_topic: bool, schemas: bool, lobs: bool, sink: Any, epoch: int) -> SinkConnectorConfig:
    converter = "org.apache.kafka.connect.json.JsonConverter"
    given = {
        "name": "oracle",
        "connector.class": "LakehouseSink",
        "topics.regex": "shop.*",
        "table.namespace": NAMESPACE,
        "errors.isolation": "task",
        "key.converter": converter,
        "value.converter": converter,
        "key.converter.schemas.enable": str(schemas).lower(),
        "value.converter.schemas.enable": str(schemas).lower(),
        "batch.max.records": str(sink.max_records),
        "batch.linger.ms": str(sink.linger_ms),
        "reselect.unresolved.insert.mode": sink.unresolved,
        "reselect.null.values": str(sink.null_values).lower(),
        "reselect.cache.enabled": str(sink.cache).lower(),
        "reselect.cache.admission": "always",
        "source.position.epoch": str(epoch),
    }
    if lobs:
        given["lob.enabled"] = "true"
    if shared_topic:
        given["collection.name.format"] = "${source.table}"
    if sink.database:
        given |= {
            "reselect.database.hostname": "database",
            "reselect.database.user": "reader",
            "reselect.database.dbname": "shop",
        }
    return sink_connector_config(given, WorkerDefaults({}, "1.0"))


def played(scenario: Scenario) -> World:
    """Run a scenario to its end."""
    world = World(scenario)
    try:
        world.run()
    except Killed:  # outside of a loop
        world.wrong.append("killed outside of a loop")
    world.finish()
    return world
