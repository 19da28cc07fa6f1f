"""A Kafka broker of one node in KRaft mode, on 127.0.0.1 only (``stack.md`` section 3)."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from headrace_dev import jars
from headrace_dev.java import java, jvm_options
from headrace_dev.server import LOOPBACK, Server, free_ports, wait_until

LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
"""


class Kafka:
    """A broker with its own data folder; ``kill`` and ``start`` keep the data.

    ``sustained``: see ``jvm_options``. ``options`` are more options of the JVM, ``users`` those of SCRAM with their
    passwords.
    """

    def __init__(
        self,
        root: Path,
        settings: Mapping[str, str] | None = None,
        *,
        sustained: bool = False,
        options: Sequence[str] = (),
        users: Mapping[str, str] | None = None,
    ) -> None:
        self._jvm = (*jvm_options(sustained=sustained), *options)
        self._users = dict(users or {})
        self.port, controller = free_ports(2)
        self.bootstrap_servers = f"{LOOPBACK}:{self.port}"
        self._folder = root / "kafka"
        self._folder.mkdir(mode=0o755)
        self._settings = _settings(self._folder, self.port, controller) | dict(settings or {})
        self._class_path = f"{jars.folder('kafka')}/*"
        self.server = Server("kafka", self._java("-Xmx512m", "kafka.Kafka", self._file), self._folder)

    def start(self) -> None:
        """Start and wait until the broker answers. The first start formats the data folder."""
        if not self._file.exists():
            self._format()
        self.server.start(self._answers)

    def stop(self) -> None:
        """Shut down gracefully; the data stay."""
        self.server.stop()

    def kill(self) -> None:
        """Send SIGKILL; the data stay as they are at that moment."""
        self.server.kill()

    def cut(self, topic: str, partition: int, end: int) -> None:
        """Lose the records of a partition from an offset on, as a broker does that ends before it has flushed them.

        The broker is killed and started again. ``end`` must be the first offset of a batch.
        """
        self.kill()
        [log] = (self._folder / "data" / f"{topic}-{partition}").glob("*.log")
        content, at = log.read_bytes(), 0
        while at < len(content):
            offset, length = _BATCH.unpack_from(content, at)
            if offset >= end:
                break
            at += _BATCH.size + length
        if at == len(content) or offset != end:
            raise ValueError(f"{log}: no batch begins at offset {end}")
        with log.open("r+b") as file:
            file.truncate(at)
        self.start()

    def admin(self) -> AdminClient:
        """Return a client for topics, groups and offsets."""
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until the broker lists it. A topic that exists is not changed."""
        admin = self.admin()  # its futures die with it
        try:
            admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))])[name].result(timeout=30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        wait_until(lambda: name in self.topics(), f"topic {name}")

    def topics(self) -> list[str]:
        """Return the names of all topics except Kafka's internal ones."""
        return sorted(name for name in self.admin().list_topics(timeout=60).topics if not name.startswith("__"))

    @property
    def _file(self) -> Path:
        return self._folder / "server.properties"

    def _answers(self) -> bool:
        try:
            return bool(self.admin().list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _format(self) -> None:
        (self._folder / "log4j2.properties").write_text(LOGGING)
        self._file.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        # A cluster id is any 16 bytes in URL-safe base64. Stacks do not connect to each other, so all have the same id.
        arguments: list[str | Path] = ["format", "--standalone", "-t", _CLUSTER, "-c", self._file]
        for user, password in self._users.items():
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                arguments += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
        subprocess.run(self._java("-Xmx128m", "kafka.tools.StorageTool", *arguments), check=True, capture_output=True)

    def _java(self, heap: str, *arguments: str | Path) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"
        return [java(), heap, *self._jvm, logging, "-cp", self._class_path, *map(str, arguments)]


_BATCH = struct.Struct(">qi")
"""The begin of a batch of records: its first offset, and the length of what follows."""

_CLUSTER = "aGVhZHJhY2UtZGV2LTAwMA"


def _settings(folder: Path, port: int, controller: int) -> dict[str, str]:
    broker, quorum = f"{LOOPBACK}:{port}", f"{LOOPBACK}:{controller}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{quorum}",
        "advertised.listeners": f"PLAINTEXT://{broker},CONTROLLER://{quorum}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.bootstrap.servers": quorum,
        "log.dirs": str(folder / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # After a kill the broker can register again only when its old session has expired.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        "log.cleaner.dedupe.buffer.size": "16777216",
    }
