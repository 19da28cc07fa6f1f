"""Flink SQL with Iceberg's upsert sink, as a user would write it: one job manager and one task manager, parallelism 1.

A checkpoint is a commit. In format version 2 an update is an equality delete and a row, so that the sink reads nothing
of the table. Updates need the row before the change (``REPLICA IDENTITY FULL`` in PostgreSQL), which the load has.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contestants import TIMEOUT, Course, Effort
from benchmarks.cpu import Cpu, cpu_of, wait_until_quiet
from benchmarks.lake import FLINK, MEASURED, REHEARSAL, WARM_UP
from benchmarks.workload import TOPIC
from headrace_dev import jars
from headrace_dev.java import java
from headrace_dev.server import LOOPBACK, Server, free_ports, http, wait_until
from headrace_dev.versions import FLINK as VERSION
from headrace_dev.versions import FLINK_ICEBERG

NAME = f"Flink {VERSION}, Iceberg {FLINK_ICEBERG}"
_SOURCES = Path(__file__).with_name("java")
_ONLY_FOR_CLIENT = ("flink-table-planner", "flink-table-api-scala", "scala-")
_ENDED = ("FAILED", "CANCELED", "FINISHED")

# What the configuration of Flink's distribution opens for Kryo and others.
_OPENED = ("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util", "util.concurrent")
_JVM = (
    "-XX:-UsePerfData",
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in (*_OPENED, f"{_OPENED[-1]}.atomic")),
    *(f"--add-opens=java.base/sun.{package}=ALL-UNNAMED" for package in ("nio.ch", "net.util")),
)
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
"""


class Flink:
    """A cluster with its own folder. ``checkpoint`` is the interval of checkpoints, in milliseconds."""

    def __init__(self, root: Path, checkpoint: int) -> None:
        self._folder = root / f"flink-{checkpoint}"
        self._folder.mkdir()
        self._classes = self._folder / "classes"
        rpc, self._rest, data, blobs = free_ports(4)
        settings = {
            "jobmanager.rpc.address": LOOPBACK,
            "jobmanager.rpc.port": rpc,
            "jobmanager.bind-host": LOOPBACK,
            "jobmanager.memory.process.size": "1600m",
            "rest.address": LOOPBACK,
            "rest.bind-address": LOOPBACK,
            "rest.port": self._rest,
            "rest.bind-port": self._rest,
            "taskmanager.host": LOOPBACK,
            "taskmanager.bind-host": LOOPBACK,
            "taskmanager.data.port": data,
            "blob.server.port": blobs,
            "taskmanager.memory.process.size": "4g",
            "taskmanager.numberOfTaskSlots": 1,
            "parallelism.default": 1,
            "execution.checkpointing.interval": f"{checkpoint}ms",
            "execution.checkpointing.dir": f"file://{self._folder}/checkpoints",
            "io.tmp.dirs": str(self._folder / "scratch"),
        }
        (self._folder / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))
        (self._folder / "log4j2.properties").write_text(_LOGGING)
        (self._folder / "scratch").mkdir()
        libraries = jars.folder("flink")
        self._classes.mkdir()
        compiler = [str(Path(java()).with_name("javac")), "-cp", f"{libraries}/*", "-d", str(self._classes)]
        subprocess.run([*compiler, *map(str, _SOURCES.glob("*.java"))], check=True)
        self._client_path = f"{self._classes}:{libraries}/*"
        # The client plans. In the managers the Scala API would replace Kryo's settings, and Iceberg's sink would fail.
        kept = [path for path in jars.resolve("flink") if not path.name.startswith(_ONLY_FOR_CLIENT)]
        self._manager_path = ":".join(map(str, (self._classes, *kept)))
        self._servers: list[Server] = []

    def start(self) -> None:
        """Start both managers, with the memory that Flink's own scripts would give them."""
        runtime, configuration = "org.apache.flink.runtime", ("--configDir", str(self._folder))
        for name, parameters, main in (
            ("flink-jobs", "GET_JM_RESOURCE_PARAMS", f"{runtime}.entrypoint.StandaloneSessionClusterEntrypoint"),
            ("flink-tasks", "GET_TM_RESOURCE_PARAMS", f"{runtime}.taskexecutor.TaskManagerRunner"),
        ):
            calculate = self._java(
                self._manager_path, (), f"{runtime}.util.bash.BashJavaUtils", parameters, *configuration
            )
            output = subprocess.run(calculate, check=True, stdout=subprocess.PIPE, text=True).stdout
            results = [line.partition("RESULT:")[2] for line in output.splitlines() if "RESULT:" in line]
            command = self._java(self._manager_path, results[0].split(), main, *configuration, *results[1].split())
            server = Server(name, command, self._folder)
            self._servers.append(server)
            server.start(lambda: True)
        wait_until(self._has_slot, "slot of Flink", 60.0)

    def _java(self, path: str, options: Sequence[str], main: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"
        return [java(), *options, *_JVM, logging, "-cp", path, main, *arguments]

    def _has_slot(self) -> bool:
        try:
            return bool(http.get(f"{self.url}/overview", timeout=5).json().get("slots-available"))
        except Exception:
            return False

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._rest}"

    def run(self, statements: Sequence[str]) -> str:
        """Run statements, of which one starts a job; return the job's id."""
        file = self._folder / "statements.sql"
        file.write_text("\n\n".join(statements))
        done = subprocess.run(
            self._java(self._client_path, ("-Xmx1g",), "RunSql", str(file), str(self._folder)),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"Flink does not run the statements:\n{done.stderr[-4000:]}")
        return done.stdout.split()[-1]

    def state(self, job: str) -> str:
        """Return the state of a job. Raises RuntimeError with the cause of a failed one."""
        state: str = http.get(f"{self.url}/jobs/{job}", timeout=30).json()["state"]
        if state in ("FAILED", "FAILING", "RESTARTING"):
            causes = http.get(f"{self.url}/jobs/{job}/exceptions", timeout=30).json()
            raise RuntimeError(f"Flink's job is {state}:\n{str(causes)[:4000]}")
        return state

    def cancel(self, job: str) -> None:
        """End a job that runs."""
        http.patch(f"{self.url}/jobs/{job}", timeout=30).raise_for_status()
        wait_until(lambda: self.state(job) in _ENDED, "end of Flink's job", 60.0)

    def cpu(self) -> Cpu:
        """Return the CPU time of both managers; the client that submits a job is not counted."""
        return sum((cpu_of(server.pid) for server in self._servers), Cpu())

    def rest(self, seconds: float) -> None:
        """Wait at most ``seconds`` until the compilers of the task manager are idle."""
        wait_until_quiet(self._servers[-1].pid, seconds)

    @property
    def pids(self) -> list[int]:
        """Return the processes of both managers."""
        return [server.pid for server in self._servers]

    def stop(self) -> None:
        """Stop both managers."""
        for server in reversed(self._servers):
            server.stop()

    def log_end(self) -> str:
        """Return the ends of both logs."""
        return "\n".join(server.log_end(30) for server in self._servers)


@contextmanager
def running(root: Path, checkpoint: int) -> Iterator[Flink]:
    """Run a cluster within the block."""
    flink = Flink(root, checkpoint)
    try:
        flink.start()
        yield flink
    except Exception as error:
        raise RuntimeError(f"{error}; ends of Flink's logs:\n{flink.log_end()}") from error
    finally:
        flink.stop()


def run_flink(course: Course) -> Effort:
    """Let Flink read the topic three times, as the other contestants do; a job ends at the end of the topic."""
    with running(course.root, 10_000) as flink:
        for table in (WARM_UP, REHEARSAL):
            _read_once(flink, course, table)
        flink.rest(course.rest)
        before, begin = flink.cpu(), time.monotonic()
        _read_once(flink, course, MEASURED)
        return Effort(time.monotonic() - begin, flink.cpu().since(before))


def _read_once(flink: Flink, course: Course, table: str) -> None:
    bounded = {"scan.bounded.mode": "latest-offset"}
    job = flink.run(upsert_statements(course.kafka.bootstrap_servers, course.warehouse, table, bounded))
    wait_until(lambda: flink.state(job) in _ENDED, f"end of Flink's job for {table}", TIMEOUT, pause=0.1)


def upsert_statements(
    bootstrap_servers: str, warehouse: Path, table: str, options: Mapping[str, str] | None = None
) -> list[str]:
    """Return the statements of a job that keeps a table equal to the topic. ``options`` are more of the source."""
    return [
        catalog(warehouse),
        "CREATE TEMPORARY FUNCTION connect_decimal AS 'ConnectDecimal'",
        "CREATE TEMPORARY TABLE changes (id BIGINT, name STRING, email STRING, balance BYTES, qty INT, active BOOLEAN, "
        "score DOUBLE, created BIGINT, updated TIMESTAMP_LTZ(6), note STRING, PRIMARY KEY (id) NOT ENFORCED) "
        f"WITH ({source(bootstrap_servers, TOPIC, options)})",
        f"INSERT INTO lake.{FLINK}.{table} SELECT id, name, email, connect_decimal(balance), qty, active, score, "
        # Flink reads milliseconds at most; the load has no microseconds here.
        "CAST(TO_TIMESTAMP_LTZ(created / 1000, 3) AS TIMESTAMP(6)), updated, note FROM changes",
    ]


def catalog(warehouse: Path) -> str:
    """Return the statement for the catalog of a folder."""
    options = {"type": "iceberg", "catalog-type": "hadoop", "warehouse": f"file://{warehouse}"}
    return f"CREATE CATALOG lake WITH ({_options(options)})"


def source(bootstrap_servers: str, topic: str, options: Mapping[str, str] | None = None) -> str:
    """Return the options of a topic with Debezium's events and their schemas."""
    return _options(
        {
            "connector": "kafka",
            "topic": topic,
            "properties.bootstrap.servers": bootstrap_servers,
            "properties.group.id": "flink",
            "scan.startup.mode": "earliest-offset",
            "format": "debezium-json",
            "debezium-json.schema-include": "true",
            "debezium-json.timestamp-format.standard": "ISO-8601",
            **(options or {}),
        }
    )


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}'='{value}'" for name, value in options.items())
