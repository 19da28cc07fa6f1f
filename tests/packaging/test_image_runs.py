"""The image in a restricted container: a read-only root, no capabilities, a uid without a name.

Needs an image (``make image``) and a container engine: ``ENGINE=podman`` for another one than docker, with options if
necessary.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from recordings.records import RecordedRecord, publish
from support.records.envelopes import key, whole_change

from headrace_dev.demo.compare import lake_rows
from headrace_dev.kafka import Kafka
from headrace_dev.server import LOOPBACK, free_ports, http, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.long]

IMAGE = "headrace:dev"
UID = "1000680000:0"  # as OpenShift assigns it: without an entry in /etc/passwd, with the group root


@pytest.fixture
def engine() -> list[str]:
    """The command of the container engine; skips if there is none, or no image."""
    command = shlex.split(os.environ.get("ENGINE", "docker"))
    if shutil.which(command[0]) is None:
        pytest.skip(f"no container engine {command[0]}; ENGINE names another one")
    if subprocess.run([*command, "image", "inspect", IMAGE], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{command[0]} has no image {IMAGE}: run 'make image'")
    return command


@pytest.fixture
def container(engine: list[str], stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[str]:
    """The URL of a worker in a container on the network of the host; its tables are below ``tmp_path``."""
    name = unique("image")
    url = f"http://{LOOPBACK}:{free_ports(1)[0]}"
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    warehouse.chmod(0o777)
    options = {
        "CONNECT_BOOTSTRAP_SERVERS": stack_kafka.bootstrap_servers,
        "CONNECT_GROUP_ID": name,
        "CONNECT_CONFIG_STORAGE_TOPIC": f"{name}-configs",
        "CONNECT_CONFIG_STORAGE_REPLICATION_FACTOR": "1",
        "CONNECT_STATUS_STORAGE_TOPIC": f"{name}-status",
        "CONNECT_STATUS_STORAGE_REPLICATION_FACTOR": "1",
        "CONNECT_LISTENERS": url,
        "CONNECT_WAREHOUSE": str(warehouse),
        "CONNECT_SPARK_DRIVER_MEMORY": "1g",
    }
    bounds = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", UID]
    if "podman" in engine[0]:
        bounds.append("--passwd=false")  # it adds an entry otherwise; docker and containerd do not
    volumes = ["--tmpfs", "/tmp", "--volume", f"{warehouse}:{warehouse}"]  # noqa: S108 - in the container
    environment = [f"--env={option}={value}" for option, value in options.items()]
    _run(engine, "run", "--detach", "--name", name, "--network", "host", *bounds, *volumes, *environment, IMAGE)
    try:
        wait_until(lambda: _answers(url), "the worker in the container", 120)
        yield url
    finally:
        print(_run(engine, "logs", name))
        _run(engine, "rm", "--force", name)


def test_rows_go_from_a_broker_to_a_table(
    container: str, stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Spark starts without a user name, and its files are on the volumes."""
    topic = unique("image-items")
    stack_kafka.create_topic(topic)
    rows = [{"id": number, "name": f"item {number}"} for number in range(1000)]
    events = [
        RecordedRecord(
            topic, 0, offset, 1_700_000_000_000, key({"id": offset}), whole_change("c", None, row, offset), ()
        )
        for offset, row in enumerate(rows)
    ]
    publish(stack_kafka.bootstrap_servers, events)
    connector = {"connector.class": "LakehouseSink", "topics": topic, "collection.name.format": "items"}
    http.put(f"{container}/connectors/items/config", json=connector, timeout=60).raise_for_status()
    table = tmp_path / "warehouse" / "headrace" / "items"
    wait_until(lambda: len(lake_rows(table)) == len(rows), "the rows in the table", 180)
    assert sorted(lake_rows(table), key=lambda row: row["id"]) == rows


def _run(engine: list[str], *arguments: str) -> str:
    answer = subprocess.run(
        [*engine, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


def _answers(url: str) -> bool:
    try:
        return http.get(f"{url}/health", timeout=5).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
