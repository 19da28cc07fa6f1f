"""Secrets of a worker and of its connectors are nowhere but where their user has put them.

A real worker with data, wrong passwords and hostile connectors; then a search for each secret, also in Base64, in all
that leaves the process: logs, processes, files, answers, metrics, and every byte of every topic.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from recordings.records import RecordedRecord, publish
from support.records.envelopes import change, key

from headrace.rest.openapi import OPERATIONS
from headrace_dev.kafka import Kafka
from headrace_dev.postgres import Postgres
from headrace_dev.server import free_ports, http, wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark]

AVRO = "io.confluent.connect.avro.AvroConverter"
READ_SECONDS = 120
CLASS = {"connector.class": "LakehouseSink", "tasks.max": "1"}


class Secrets(dict[str, str]):
    """A random secret for each name that is used."""

    def __missing__(self, name: str) -> str:
        self[name] = f"SECRET-{name}-{secrets.token_hex(8)}"
        return self[name]

    def found_in(self, content: bytes) -> set[str]:
        """Return the names of the secrets in a content, also of those in Base64 with any text before them."""
        return {name for name, value in self.items() if any(form in content for form in _forms(value))}


def _forms(value: str) -> Iterator[bytes]:
    yield value.encode()
    for before in range(3):  # the code of the middle does not depend on what stands around it
        yield base64.b64encode(b"x" * before + value.encode())[4:-4]


@dataclass(frozen=True, slots=True)
class Secured:
    """A worker with secrets, the folder of everything that it writes, and its administrator's credentials."""

    worker: Worker
    folder: Path
    secrets: Secrets
    admin: tuple[str, str]
    bootstrap: str
    name: str

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send a request as the administrator."""
        return http.request(method, f"{self.worker.url}{path}", json=body, auth=self.admin, timeout=60)

    def states(self, connector: str) -> list[str]:
        """Return the states of a connector's tasks."""
        answer = self.call("GET", f"/connectors/{connector}/status")
        return [each["state"] for each in answer.json()["tasks"]] if answer.is_success else []


@pytest.fixture
def secured(stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Secured]:
    """A worker with passwords in each of its options, in its environment and in files."""
    name, known = unique("secrets"), Secrets()
    for folder in ("mounted", "own", "tmp"):
        (tmp_path / folder).mkdir()
    (tmp_path / "own" / "users.properties").write_text(f"admin={known['rest']}\n")
    (tmp_path / "own" / "worker.properties").write_text(f"jaas={known['worker-file']}\n")
    (tmp_path / "mounted" / "password").write_text(known["database"])
    (tmp_path / "mounted" / "link").symlink_to(tmp_path / "own" / "worker.properties")
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        **SHORT_LIVED,
        "group.id": name,
        "config.storage.topic": f"{name}-configs",
        "status.storage.topic": f"{name}-status",
        "rest.extension.classes": "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension",
        "rest.basic.auth.file": str(tmp_path / "own" / "users.properties"),
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{plain} username="app" password="{known["sasl"]}";',
        "ssl.key.password": known["ssl-key"],
        "ssl.truststore.password": known["ssl-truststore"],
        "spark.hadoop.fs.s3a.secret.key": known["s3"],
        "spark.sql.catalog.lake.token": known["catalog"],
        "config.providers": "dir,env,own",
        "config.providers.dir.class": "DirectoryConfigProvider",
        "config.providers.dir.param.allowed.paths": str(tmp_path / "mounted"),
        "config.providers.env.class": "EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": ".*",
        "config.providers.own.class": "FileConfigProvider",
        "spark.hadoop.fs.s3a.session.token": f"${{own:{tmp_path}/own/worker.properties:jaas}}",
        "spark.hadoop.fs.s3a.access.key": "${env:WORKER_SECRET}",
    }
    environment = {
        "WORKER_SECRET": known["worker-environment"],
        "CONNECT_SSL_KEYSTORE_PASSWORD": known["connect-environment"],
        "REGISTRY_SECRET": known["registry"],
        "TMPDIR": str(tmp_path / "tmp"),
    }
    worker = Worker(tmp_path, stack_kafka, tmp_path / "warehouse", properties=properties, environment=environment)
    worker.start()
    yield Secured(worker, tmp_path, known, ("admin", known["rest"]), stack_kafka.bootstrap_servers, name)
    worker.kill()


# -- places -----------------------------------------------------------------------------------------------------------


def in_answers(secured: Secured, connectors: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield the answer to each GET request that the API has, for each connector."""
    for operation in OPERATIONS:
        method, _, path = operation.partition(" ")
        if method != "get":
            continue
        for connector in connectors if "{name}" in path and "loggers" not in path else ("root",):
            filled = path.replace("{name}", connector).replace("{task}", "0").replace("{plugin}", "LakehouseSink")
            filled = filled.replace("{table}", "any").replace("{connector}", connector)
            answer = secured.call("GET", filled)
            yield f"GET {filled}", answer.content + str(answer.headers).encode()
    yield "GET expanded", secured.call("GET", "/connectors?expand=info&expand=status").content


def in_processes(secured: Secured) -> Iterator[tuple[str, bytes]]:
    """Yield arguments of the worker and all its children, and the environment of the children."""
    children = _descendants(secured.worker.server.pid)
    assert children, "the worker has a JVM"
    for pid in (secured.worker.server.pid, *children):
        yield f"arguments of {pid}", _proc(f"{pid}/cmdline")
    for pid in children:
        yield f"environment of {pid}", _proc(f"{pid}/environ")


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    tasks: list[str] = []
    with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended
        tasks += [task.name for task in Path(f"/proc/{pid}/task").iterdir()]
    for task in tasks:
        for child in _proc(f"{pid}/task/{task}/children").decode().split():
            found += [int(child), *_descendants(int(child))]
    return found


def _proc(path: str) -> bytes:
    """Return what the kernel shows of a process; nothing if the process or the thread has ended."""
    try:
        return Path("/proc", path).read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def in_files(secured: Secured) -> Iterator[tuple[str, bytes]]:
    """Yield each file below the test's folder but the operator's: logs, tables, temporary and crash files."""
    for path in secured.folder.rglob("*"):
        part = path.relative_to(secured.folder).parts
        if path.is_file() and part[0] not in ("mounted", "own") and part[-1] != "worker.properties":
            yield str(path.relative_to(secured.folder)), path.read_bytes()


def in_topics(secured: Secured) -> Iterator[tuple[str, bytes]]:
    """Yield each record of each topic, up to the end of each partition."""
    settings = {"group.id": "search", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": secured.bootstrap, **settings})
    try:
        topics = consumer.list_topics(timeout=10).topics
        places = [
            TopicPartition(name, number, OFFSET_BEGINNING)
            for name, topic in topics.items()
            for number in topic.partitions
        ]
        consumer.assign(places)
        ended, deadline = 0, time.monotonic() + READ_SECONDS
        while ended < len(places):
            assert time.monotonic() < deadline, f"{len(places) - ended} partitions are not read"
            for message in consumer.consume(1000, 1.0):
                if (error := message.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended += 1
                    continue
                content = (message.key() or b"") + (message.value() or b"") + repr(message.headers()).encode()
                yield f"{message.topic()}@{message.offset()}", content
    finally:
        consumer.close()


# -- the test ---------------------------------------------------------------------------------------------------------


def test_secrets_stay_where_they_belong(
    secured: Secured, stack_postgres: Postgres, unique: Callable[[str], str]
) -> None:
    """After data, errors and attacks a secret is nowhere but in the configuration of the connector that contains it."""
    known, topic, database = secured.secrets, unique("secret_rows"), unique("secret_shop")
    stack_postgres.create_database(database)
    stack_postgres.execute("CREATE TABLE items (id int PRIMARY KEY)", database)
    with stack_postgres.connect() as connection:
        connection.execute(f"CREATE ROLE {database} LOGIN PASSWORD '{known['database']}'".encode())
        connection.execute(f"GRANT CONNECT ON DATABASE {database} TO {database}".encode())
    with stack_postgres.connect(database) as connection:
        connection.execute(f"GRANT SELECT ON items TO {database}".encode())
    records = [RecordedRecord(topic, 0, n, 0, key({"id": n}), change("c", {"id": n}, n + 1), ()) for n in range(10)]
    records.append(RecordedRecord(topic, 0, 10, 0, b"{", b"{broken", ()))
    publish(secured.bootstrap, records)
    source = {
        "reselect.database.hostname": "127.0.0.1",
        "reselect.database.port": str(stack_postgres.port),
        "reselect.database.user": database,
        "reselect.database.dbname": database,
    }
    [closed] = free_ports(1)
    good = {
        **CLASS,
        **source,
        "topics": topic,
        "reselect.database.password": f"${{dir:{secured.folder}/mounted:password}}",
        "errors.tolerance": "all",
        "errors.log.enable": "true",
        "errors.log.include.messages": "true",
        "errors.deadletterqueue.topic.name": f"{topic}-letters",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    connectors: dict[str, dict[str, str]] = {
        "good": good,
        # Of this connector the user has put a password into the configuration, which is stored and shown.
        "plain": {**CLASS, **source, "topics": topic, "reselect.database.password": known["plain"]},
        "registry": {
            **CLASS,
            "topics": topic,
            "value.converter": AVRO,
            "value.converter.schema.registry.url": f"http://127.0.0.1:{closed}",
            "value.converter.basic.auth.credentials.source": "USER_INFO",
            "value.converter.basic.auth.user.info": "app:${env:REGISTRY_SECRET}",
        },
    }
    secured.call("PUT", "/admin/loggers/root", {"level": "DEBUG"}).raise_for_status()
    for name, config in connectors.items():
        assert secured.call("PUT", f"/connectors/{name}/config", config).is_success
    wait_until(lambda: secured.states("good") == ["RUNNING"], "a running connector", 120)
    wait_until(lambda: secured.states("plain") == ["FAILED"], "the refused password", 120)
    wait_until(lambda: _committed(secured, "good", topic) == len(records), "rows in the lake", 180)
    attack(secured)
    wrong = http.get(f"{secured.worker.url}/connectors", auth=("admin", known["wrong-user"]), timeout=30)
    assert wrong.status_code == httpx.codes.UNAUTHORIZED

    places = [*in_processes(secured), *in_answers(secured, connectors), *in_topics(secured)]
    secured.worker.stop()
    places += in_files(secured)
    leaks = {(place, name) for place, content in places for name in known.found_in(content)}
    documented = {(place, name) for place, name in leaks if name == "plain" and _documented(place, secured.name)}
    assert leaks - documented == set()
    assert documented, "the search finds what is there"
    assert len(places) > 50


def _documented(place: str, name: str) -> bool:
    """Whether a place shows the configuration that a user has submitted."""
    answers = ("GET /connectors/plain", "GET expanded")
    return place.startswith((f"{name}-configs@", *answers))


def _committed(secured: Secured, connector: str, topic: str) -> int:
    entries = secured.call("GET", f"/connectors/{connector}/offsets").json()["offsets"]
    return max(
        (each["offset"]["kafka_offset"] for each in entries if each["partition"]["kafka_topic"] == topic), default=0
    )


def attack(secured: Secured) -> None:
    """Try to make the worker show its own secrets: references in options that are shown, stored or sent elsewhere."""
    folder = secured.folder
    references = (
        "${env:WORKER_SECRET}",
        "${env:CONNECT_SSL_KEYSTORE_PASSWORD}",
        f"${{own:{folder}/own/worker.properties:jaas}}",
        f"${{dir:{folder}/own:users.properties}}",
        f"${{dir:{folder}/mounted:link}}",
        f"${{dir:{folder}/mounted/../own:worker.properties}}",
        f"${{dir:{folder}/headrace:worker.properties}}",
        "${own:/proc/self/environ:WORKER_SECRET}",
        "${dir:/proc/self:environ}",
    )
    options = (
        "topics",
        "table.namespace",
        "tasks.max",
        "transforms",
        "transforms.x.type",
        "reselect.database.hostname",
        "errors.deadletterqueue.topic.name",
        "consumer.override.client.id",
        "value.converter",
    )
    for reference in references:
        for option in options:
            config = {**CLASS, "name": "attack", "topics": "a", "transforms": "x", option: reference}
            path = "/connector-plugins/LakehouseSink/config/validate"
            answer = secured.call("PUT", path, config)
            created = secured.call("POST", "/connectors", {"name": "attack", "config": config})
            assert created.status_code == httpx.codes.BAD_REQUEST, (reference, option)
            for each in (answer, created):
                assert secured.secrets.found_in(each.content) == set(), (reference, option)
    allowed = f"${{dir:{folder}/mounted:password}}"
    for option in options:  # a secret of connectors may be used, and is not shown
        config = {**CLASS, "name": "attack", "topics": "a", option: allowed}
        answer = secured.call("PUT", "/connector-plugins/LakehouseSink/config/validate", config)
        assert secured.secrets.found_in(answer.content) == set(), option
        assert json.loads(answer.content)["name"]
