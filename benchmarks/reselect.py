"""``make bench``, second part: the cost of reselecting the values that placeholder events omit.

Debezium's own reselect post-processor and Headrace read the same rows again from the same database; every event is of
another row. Each is measured with its reselect and without; the difference, divided by the events, is what one
placeholder costs: CPU time of the process that reads again and of the database, both. ``QUICK=1`` is a short form that
proves that the benchmark works; its figures mean little.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from benchmarks.cpu import cpu_of
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.merge.fold import fold
from headrace.core.model.events import Changes
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace_app.interpreter import tune_interpreter
from headrace_connectors.sql import PostgresRowSource
from headrace_dev.connect import debezium_postgres
from headrace_dev.server import wait_until
from headrace_dev.stack import Stack

DATABASE, TABLE = "perf", "public.docs"
PLAIN, RESELECTING = "plain", "reselecting"
"""The source connectors, and their topic prefixes."""
VALUE = 4096
"""Bytes of each value that events omit."""
_NO_LEADER_YET = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
BATCH = 10_000
WARM_UP, ROUNDS = 3, 3
"""Rounds that are not measured, until the JVM has compiled what is hot, and those that are; the median counts."""
SHORT_ROUNDS = 9
"""As many of Headrace's: each takes a third of a second of CPU, of which the machine's neighbours are a part."""
POST_PROCESSOR = {
    "post.processors": "reselector",
    "post.processors.reselector.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
    "post.processors.reselector.reselect.null.values": "false",
}
ENOUGH = 6.0
"""The minimum factor by which Headrace must be cheaper, with its cache off."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a run over all events: CPU seconds of the process that reselects and of the database, and time."""

    process: float
    database: float
    seconds: float

    def since(self, before: Cost) -> Cost:
        """Return what was used after ``before``."""
        return Cost(self.process - before.process, self.database - before.database, self.seconds - before.seconds)


@dataclass(frozen=True, slots=True)
class Finding:
    """One implementation of reselect: its runs, and those of the same work without reselect."""

    name: str
    events: int
    runs: Sequence[Cost]
    without: Sequence[Cost]

    @property
    def marginal(self) -> Cost:
        """Return CPU microseconds for one placeholder event."""
        micros = 1e6 / self.events
        process = _median(self.runs, "process") - _median(self.without, "process")
        database = _median(self.runs, "database") - _median(self.without, "database")
        return Cost(process * micros, database * micros, 0.0)

    @property
    def cpu(self) -> float:
        """Return the CPU time of process and database together."""
        return self.marginal.process + self.marginal.database

    def line(self) -> str:
        """Return the line of the table."""
        rate = self.events / _median(self.runs, "seconds")
        parts = f"{self.marginal.process:>9.1f} {self.marginal.database:>9.1f}"
        return f"{self.name:<32} {rate:>10,.0f} {self.cpu:>12.1f} {parts}"


def _median(runs: Sequence[Cost], what: str) -> float:
    return statistics.median(getattr(run, what) for run in runs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print the results. Return 1 if a value is wrong or Headrace is not cheap enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, one round")
    parser.add_argument("--logs", type=Path, default=Path(".logs"), help="where logs go if something fails")
    chosen = parser.parse_args(arguments)
    rows, rounds, short = (2_000, 1, 1) if chosen.quick else (20_000, ROUNDS, SHORT_ROUNDS)
    tune_interpreter()  # as the worker does
    with Stack("kafka", "postgres", "connect", logs=chosen.logs, sustained=True) as stack:
        bench = Benchmark(stack, rows, rounds, short)
        bench.load()
        debezium = bench.debezium()
        headrace = bench.headrace()
    return report(debezium, headrace, rows, binding=not chosen.quick)


def report(debezium: Finding, headrace: Sequence[Finding], rows: int, *, binding: bool) -> int:
    """Print the table and the result, and return the exit status."""
    print(f"\nreselect of {rows:,} placeholder events, each of another row, 4 KB each")
    print("CPU is microseconds an event: with reselect minus without")
    print(f"{'':<32} {'events/s':>10} {'CPU':>12} {'process':>9} {'database':>9}")
    for finding in (debezium, *headrace):
        print(finding.line())
    times = debezium.cpu / headrace[0].cpu
    print(f"bench: a placeholder costs Headrace {times:.1f} times less CPU than Debezium's post-processor, cache off")
    return 1 if binding and times < ENOUGH else 0


class Benchmark:
    """One table, and the cost to reselect its rows."""

    def __init__(self, stack: Stack, rows: int, rounds: int, short_rounds: int) -> None:
        self._stack = stack
        self._rows = rows
        self._rounds = rounds
        self._short_rounds = short_rounds

    def load(self) -> None:
        """Create a table of which every row has a value that is stored out of line."""
        self._stack.postgres.create_database(DATABASE)
        with self._connect() as connection:
            connection.execute(
                "CREATE TABLE docs (id int PRIMARY KEY, n int NOT NULL, big text) WITH (autovacuum_enabled = false)"
            )
            connection.execute("ALTER TABLE docs ALTER big SET STORAGE EXTERNAL")
            connection.execute(
                "INSERT INTO docs SELECT id, 0, repeat(md5(id::text), 128) FROM generate_series(1, %s) id",
                (self._rows,),
            )
            connection.execute("VACUUM ANALYZE docs")

    # -- Debezium -----------------------------------------------------------------------------------------------------

    def debezium(self) -> Finding:
        """Run the source connector with its post-processor, and without; both write the events to Kafka."""
        runs = {}
        for name, settings in ((PLAIN, {}), (RESELECTING, POST_PROCESSOR)):
            with self._connector(name, settings):
                rounds = [self._debezium_round(name, number) for number in range(WARM_UP + self._rounds)]
            runs[name] = rounds[WARM_UP:]
        return Finding("Debezium's post-processor", self._rows, runs[RESELECTING], runs[PLAIN])

    @contextmanager
    def _connector(self, name: str, settings: dict[str, str]) -> Iterator[None]:
        connect, postgres = self._stack.connect, self._stack.postgres
        config = debezium_postgres(postgres, DATABASE, name, snapshot__mode="no_data") | settings
        connect.put_connector(name, config)
        wait_until(lambda: self._slot_is_active(name), f"replication by {name}")
        yield
        connect.delete_connector(name)
        wait_until(lambda: not self._slot_is_active(name), f"end of {name}")
        with self._connect() as connection:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))

    def _slot_is_active(self, name: str) -> bool:
        statement = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        with self._connect() as connection:
            return connection.execute(statement, (name,)).fetchone() == (True,)

    def _debezium_round(self, name: str, number: int) -> Cost:
        """Update every row. Debezium decodes the log when the transaction commits; the measurement begins there."""
        expected = (number + 1) * self._rows
        with self._connect() as connection:
            connection.execute("VACUUM docs")
            with connection.transaction():
                connection.execute("UPDATE docs SET n = n + 1")
                before = self._cost(self._stack.connect.server.pid)
        servers = self._stack.kafka.bootstrap_servers
        wait_until(lambda: end_of(servers, f"{name}.{TABLE}") >= expected, f"events of {name}", 300, 0.02)
        return self._cost(self._stack.connect.server.pid).since(before)

    # -- Headrace -----------------------------------------------------------------------------------------------------

    def headrace(self) -> list[Finding]:
        """Decode, fold and reselect the last events of the connector without post-processor."""
        records = last_records(self._stack.kafka.bootstrap_servers, f"{PLAIN}.{TABLE}", self._rows)
        off = self._options()
        without = self._headrace_rounds(records, replace(off, source_reads="none"), check=False)
        cached = replace(off, cache_enabled=True, cache_max_size=2 * self._rows, cache_max_bytes=1 << 30)
        always = replace(cached, cache_admission="always")
        return [
            Finding(f"Headrace, cache {name}", self._rows, self._headrace_rounds(records, options, warm=warm), without)
            for name, options, warm in (
                ("off", off, False),
                ("cold", cached, False),
                ("cold, always admitted", always, False),
                ("warm", always, True),
            )
        ]

    def _options(self) -> ReselectOptions:
        database = DatabaseOptions("127.0.0.1", self._stack.postgres.port, "postgres", "", DATABASE)
        return ReselectOptions(null_values=False, database=database)

    def _headrace_rounds(
        self, records: Sequence[Record], options: ReselectOptions, *, check: bool = True, warm: bool = False
    ) -> list[Cost]:
        runs = []
        post = self._reselect(options)
        for number in range(1 + self._short_rounds):
            if not warm:
                post.close()
                post = self._reselect(options)
            shifted = [replace(record, offset=record.offset + number * len(records)) for record in records]
            runs.append(self._run(shifted, post, check))
        post.close()
        return runs[1:]

    @staticmethod
    def _reselect(options: ReselectOptions) -> Reselect:
        post = Reselect(options, PostgresRowSource(options))
        post.cache.assign([(f"{PLAIN}.{TABLE}", 0)])
        post.check()
        return post

    def _run(self, records: Sequence[Record], post: Reselect, check: bool) -> Cost:
        decoder = TopicDecoder(f"{PLAIN}.{TABLE}", EnvelopeOptions(), post.catalog)
        before, values = self._cost(None), []
        for begin in range(0, len(records), BATCH):
            [changes] = decoder.decode(records[begin : begin + BATCH]).events
            assert isinstance(changes, Changes)
            actions = post.resolve(fold(changes)).actions
            post.cache.commit(actions.table)
            values.append(next(column.values for column in actions.columns if column.name == "big"))
        cost = self._cost(None).since(before)
        read = sum(int(pc.sum(pc.binary_length(column)).as_py() or 0) for column in values)
        assert not check or read == VALUE * len(records), "a value was not read again"
        return cost

    # -- measuring ----------------------------------------------------------------------------------------------------

    def _cost(self, process: int | None) -> Cost:
        """Return the cost so far of ``process`` and its children, or of this process alone, and of the database.

        The JVM's compiler threads are excluded: they work only at the beginning.
        """
        used = None if process is None else cpu_of(process)
        own = time.process_time() if used is None else used.total - used.compiler
        return Cost(own, cpu_of(self._stack.postgres.server.pid).total, time.perf_counter())

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return self._stack.postgres.connect(DATABASE)


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of a Kafka record that the decoder reads."""

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int
    timestamp: int
    headers: Sequence[tuple[str, bytes]] = ()


def end_of(servers: str, topic: str) -> int:
    """The next offset of a topic of one partition; 0 while there is none, or while it has no leader yet."""
    consumer = _consumer(servers)
    try:
        if topic not in consumer.list_topics(timeout=10).topics:
            return 0
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
    except KafkaException as error:
        if error.args[0].code() in _NO_LEADER_YET:
            return 0
        raise
    finally:
        consumer.close()


def last_records(servers: str, topic: str, count: int) -> list[Record]:
    """The last ``count`` records of a topic of one partition."""
    begin = end_of(servers, topic) - count
    consumer = _consumer(servers)
    consumer.assign([TopicPartition(topic, 0, begin)])
    found: list[Record] = []
    while len(found) < count:
        found += [_record(message) for message in consumer.consume(1000, 10.0)]
    consumer.close()
    return found


def _record(message: Message) -> Record:
    return Record(message.key(), message.value(), 0, message.offset(), message.timestamp()[1], message.headers() or ())


def _consumer(servers: str) -> Consumer:
    return Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False, "log_level": 0})


if __name__ == "__main__":
    sys.exit(main())
