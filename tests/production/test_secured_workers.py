"""Three worker processes on Kafka that forward to each other over https, as ``curl`` and ``kc`` meet them."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.kafka.kafka_harness import producer
from support.records.envelopes import change, key
from support.rest.secured import tls, users
from support.servers.certificates import Authority
from support.servers.token_issuer import token_issuer

from headrace_dev.kafka import Kafka
from headrace_dev.server import LOOPBACK, free_ports, wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.production,
    pytest.mark.long,
    pytest.mark.anyio,
    pytest.mark.timeout(600),
]


class SecuredProcess(Worker):
    """A worker whose URL is https; ``ca`` is the authority of its certificate."""

    def __init__(self, root: Path, kafka: Kafka, name: str, properties: Mapping[str, str], ca: Path) -> None:
        [port] = free_ports(1)
        listener = {"listeners": f"https://{LOOPBACK}:{port}", **properties}
        super().__init__(root, kafka, root / "warehouse", name=name, port=port, properties=listener)
        self.url = listener["listeners"]
        self._trusted = ssl.create_default_context(cafile=str(ca))

    def answers(self) -> bool:
        """Return whether the worker answers over https. Its health needs no credentials."""
        try:
            return httpx.get(f"{self.url}/health", verify=self._trusted, timeout=5).is_success
        except httpx.TransportError:
            return False


@dataclass(frozen=True, slots=True)
class Cluster:
    """Three workers, and options of curl for callers: admin, operator, reader, nobody, wrong."""

    workers: list[SecuredProcess]
    callers: Mapping[str, str]
    ca: Path

    def curl(self, caller: str, method: str, url: str, body: Any = None) -> tuple[int, Any]:
        """Send a request with ``curl``. Returns the status and the JSON of the answer."""
        options = [f'url = "{url}"', f'request = "{method}"', f'cacert = "{self.ca}"', self.callers[caller]]
        if body is not None:
            options += ['header = "Content-Type: application/json"', f"data = {json.dumps(json.dumps(body))}"]
        command = ["curl", "--silent", "--show-error", "--write-out", "\n%{http_code}", "--config", "-"]
        done = subprocess.run(command, input="\n".join(options), capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr
        text, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(text) if text else None

    def states(self, worker: SecuredProcess, connector: str) -> list[str]:
        """The states of a connector and its tasks, as one of the workers reports them."""
        status, found = self.curl("reader", "GET", f"{worker.url}/connectors/{connector}/status")
        return [each["state"] for each in (found["connector"], *found["tasks"])] if status == 200 else []

    def until(self, connector: str, *states: str) -> None:
        """Wait until every worker reports these states."""
        for worker in self.workers:
            wait_until(
                lambda worker=worker: self.states(worker, connector) == [*states], f"{states} of {connector}", 90
            )


@pytest.fixture(params=["basic", "bearer"])
async def cluster(
    request: pytest.FixtureRequest, stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]
) -> AsyncIterator[Cluster]:
    """Three processes of one cluster, with passwords or with tokens of a provider."""
    async with AsyncExitStack() as stack:
        if request.param == "basic":
            options = users(tmp_path)
            logins = {"admin": "ann:ann's password", "operator": "bob:bob-password", "reader": "eve:eve-password"}
            callers = {role: f'user = "{login}"' for role, login in logins.items()}
            callers |= {"nobody": "", "wrong": 'user = "ann:wrong"'}
        else:
            issuer = await stack.enter_async_context(token_issuer())
            options = issuer.options()
            roles = {"admin": "admin", "operator": "operate", "reader": "read"}
            callers = {name: f'oauth2-bearer = "{issuer.token(role)}"' for name, role in roles.items()}
            callers |= {"nobody": "", "wrong": f'oauth2-bearer = "{issuer.token("admin", exp=1)}"'}
        name = unique("secured")
        properties = {
            "group.id": name,
            "config.storage.topic": f"{name}-configs",
            "status.storage.topic": f"{name}-status",
            "spark.driver.memory": "1g",
            **SHORT_LIVED,
            **options,
            **tls(tmp_path, Authority()),
        }
        ca = tmp_path / "ca.pem"
        workers = [SecuredProcess(tmp_path, stack_kafka, f"worker-{n}", properties, ca) for n in range(3)]
        try:
            for worker in workers:
                await asyncio.to_thread(worker.start)
            yield Cluster(workers, callers, ca)
        finally:
            for worker in workers:
                worker.kill()


async def test_requests_reach_the_right_worker_with_their_credentials(
    cluster: Cluster, stack_kafka: Kafka, unique: Callable[[str], str]
) -> None:
    """Each worker creates a connector, whose tables and offsets all of them show; 401 and 403 without the right."""
    await asyncio.to_thread(live, cluster, stack_kafka, unique("life"))


def live(cluster: Cluster, kafka: Kafka, name: str) -> None:
    """Lead connectors through their lives over every worker."""
    for worker, connector in ((each, f"{name}-{number}") for number, each in enumerate(cluster.workers)):
        topics = [f"{connector}.{letter}" for letter in "abc"]
        for topic in topics:
            kafka.create_topic(topic)
        config = {"connector.class": "LakehouseSink", "tasks.max": "3", "topics": ",".join(topics)}
        body = {"name": connector, "config": {**config, "batch.linger.ms": "0"}}
        path = f"{worker.url}/connectors"
        for caller, expected in (("nobody", 401), ("wrong", 401), ("reader", 403), ("operator", 403), ("admin", 201)):
            assert cluster.curl(caller, "POST", path, body)[0] == expected, (caller, path)
        cluster.until(connector, *("RUNNING",) * 4)
        with producer(kafka) as out:
            for topic in topics:
                out.produce(topic, change("c", {"id": 1}, 100, table=topic.rpartition(".")[2]), key({"id": 1}))
        for each, caller in itertools.product(cluster.workers, ("admin", "reader")):
            tables = f"{each.url}/connectors/{connector}/tables"
            wait_until(lambda at=tables, caller=caller: len(cluster.curl(caller, "GET", at)[1]) == 3, "3 tables", 120)
            assert cluster.curl("wrong", "GET", tables)[0] == 401
        for number in range(3):
            task = f"{path}/{connector}/tasks/{number}/restart"
            assert cluster.curl("reader", "POST", task)[0] == 403
            assert cluster.curl("operator", "POST", task)[0] == 204
        cluster.until(connector, *("RUNNING",) * 4)
        assert cluster.curl("operator", "PUT", f"{path}/{connector}/stop")[0] == 204
        cluster.until(connector, "STOPPED")
        wait_until(
            lambda at=path, who=connector: cluster.curl("operator", "DELETE", f"{at}/{who}/offsets")[0] == 200,
            "offsets",
            60,
        )
        kc(cluster, worker.url, connector)
        assert cluster.curl("operator", "DELETE", f"{path}/{connector}")[0] == 403
        assert cluster.curl("admin", "DELETE", f"{path}/{connector}")[0] == 204
    assert cluster.curl("reader", "GET", f"{cluster.workers[0].url}/connectors") == (200, [])


def kc(cluster: Cluster, url: str, connector: str) -> None:
    """``kc`` resumes a connector with the operator's password, and neither as the reader nor without one."""
    if "user" not in cluster.callers["admin"]:
        return  # kc knows passwords only
    for auth, expected in (([], "401"), (["--auth", "eve:eve-password"], "403"), (["--auth", "bob:bob-password"], "")):
        program = Path(sys.executable).parent / "kc"
        command = [str(program), "--url", url, *auth, "resume", connector]
        done = subprocess.run(
            command, env={"REQUESTS_CA_BUNDLE": str(cluster.ca), "PATH": ""}, capture_output=True, text=True, timeout=60
        )
        printed = done.stdout + done.stderr
        assert expected in printed
        assert ("Error" in printed) == bool(expected), printed  # kc exits with 0 after an error
    cluster.until(connector, *("RUNNING",) * 4)
