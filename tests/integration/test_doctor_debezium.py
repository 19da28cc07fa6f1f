"""The doctor on a real Connect worker, by command and by REST: bad settings are found, and good ones are silent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.repository.headrace_command import headrace
from support.rest.worker_api import Api

from headrace.config.source_connector import SourceConnectorSettings
from headrace.core.doctor.debezium import SinkOptions, findings
from headrace.core.doctor.source_connector import SourceConnector
from headrace.rest.source_connector import examined_source_connector
from headrace_dev.connect import debezium_postgres
from headrace_dev.demo import show
from headrace_dev.server import LOOPBACK, wait_until
from headrace_dev.stack import Stack

pytestmark = pytest.mark.stack

Run = Callable[..., tuple[int, list[str]]]

GOOD = {
    "skipped__operations": "none",
    "heartbeat__interval__ms": "500",
    "signal__data__collection": "public.debezium_signal",
}
BAD = {
    "skipped__operations": "d",
    "unavailable__value__placeholder": "absent",
    "snapshot__mode": "no_data",
    "slot__drop__on__stop": "true",
    "event__processing__failure__handling__mode": "warn",
    "decimal__handling__mode": "double",
    "post__processors": "reselect",
    "reselect__type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
    "reselect__reselect__cache__enabled": "true",
    "transforms": "flat",
    "transforms__flat__type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms__flat__delete__tombstone__handling__mode": "drop",
}


@pytest.fixture
def pipeline(stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[tuple[str, Run]]:
    """A name for database and connectors, and what runs the command with a source connector of these settings."""
    name = unique("examined")
    stack.postgres.create_database(name)
    stack.postgres.execute("CREATE TABLE orders (id int PRIMARY KEY, price numeric)", name)
    worker = tmp_path / "worker.properties"
    worker.write_text(f"bootstrap.servers={stack.kafka.bootstrap_servers}\nwarehouse={tmp_path / 'warehouse'}\n")
    connector = tmp_path / "connector.json"
    config = {
        "connector.class": "LakehouseSink",
        "topics": f"{name}.public.orders",
        "reselect.database.hostname": LOOPBACK,
        "reselect.database.port": str(stack.postgres.port),
        "reselect.database.user": "postgres",
        "reselect.database.password": "unused",
        "reselect.database.dbname": name,
    }
    connector.write_text(json.dumps({"name": name, "config": config}))

    def is_streaming() -> bool:
        slot = b"SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        with stack.postgres.connect() as connection:
            return connection.execute(slot, [name]).fetchone() == (True,)

    def run(*arguments: str, **settings: str) -> tuple[int, list[str]]:
        stack.connect.put_connector(name, debezium_postgres(stack.postgres, name, name, **settings))
        stack.postgres.execute("INSERT INTO orders VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET price = 2", name)
        wait_until(lambda: f"{name}.public.orders" in stack.kafka.topics(), "topic of the table", 60)
        wait_until(is_streaming, "active replication slot", 60)  # the doctor reports one that nobody reads
        url = f"{stack.connect.url}/connectors/{name}"
        return headrace(tmp_path, "doctor", worker, connector, "--debezium", url, *arguments)

    yield name, run
    stack.connect.delete_connector(name)


def test_good_settings_are_silent(pipeline: tuple[str, Run]) -> None:
    _, run = pipeline
    assert run(**GOOD) == (0, ["nothing found"])


def test_the_settings_of_the_demo_are_silent(stack: Stack) -> None:
    source = SourceConnector("shop", show.source_config(stack), "3.7.0.Final")
    assert list(findings(source, SinkOptions(pattern=show.sink_config(stack)["topics.regex"]))) == []


def test_bad_settings(pipeline: tuple[str, Run], stack: Stack) -> None:
    """Debezium accepts all of them. Its version is read, so that defects are known."""
    name, run = pipeline
    status, lines = run("--json", **BAD)
    diagnosis = json.loads("\n".join(lines))
    assert (status, diagnosis["not_checked"]) == (2, [])
    rules = [finding["rule"] for finding in diagnosis["findings"]]
    assert rules == [
        "debezium-deletes-dropped",
        "debezium-operations-skipped",
        "debezium-placeholder",
        "debezium-slot-dropped",
        "debezium-defect",
        "debezium-events-skipped",
        "debezium-mode-differs",
        "debezium-no-heartbeat",
        "debezium-no-positions",
        "debezium-no-signals",
        "debezium-snapshot-mode",
        "debezium-values-rounded",
    ]
    source = examined_source_connector(SourceConnectorSettings(url=f"{stack.connect.url}/connectors/{name}"))
    assert source is not None
    assert source.version == "3.7.0.Final"


def test_a_connector_that_does_not_exist(pipeline: tuple[str, Run], stack: Stack, tmp_path: Path) -> None:
    """The other parts are checked all the same."""
    _, run = pipeline
    run(**GOOD)
    wrong = f"{stack.connect.url}/connectors/nothing"
    status, lines = headrace(
        tmp_path, "doctor", tmp_path / "worker.properties", tmp_path / "connector.json", "--debezium", wrong
    )
    assert status == 3
    reason = "not checked: debezium: source connector nothing: Connector nothing not found; check --debezium"
    assert lines[0] == reason


@pytest.mark.anyio
async def test_over_rest(pipeline: tuple[str, Run], stack: Stack) -> None:
    """The worker looks at ``source.connector.url``: it finds the same as the command, and its page shows it."""
    name, run = pipeline
    found = json.loads("\n".join(run("--json", **BAD)[1]))["findings"]
    api = Api()
    await api.worker.start()
    await api.create(**{"source.connector.url": f"{stack.connect.url}/connectors/{name}"})
    answer = (await api.call("GET", "/connectors/shop/doctor")).json()

    def of_debezium(findings: Sequence[dict[str, str]]) -> list[str]:
        return [finding["rule"] for finding in findings if finding["rule"].startswith("debezium-")]

    assert of_debezium(answer["findings"]) == of_debezium(found)
    page = (await api.call("GET", "/ui/connectors/shop/doctor")).body.decode()
    assert "debezium-deletes-dropped" in page
    assert "was not checked" not in page
    await api.worker.stop()
