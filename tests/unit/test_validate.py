"""Tests of ``headrace validate``, which validates files as the REST API does, without a worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.rest.asgi import request
from support.rest.stand_in import StandInTasks, application
from support.rest.worker_api import Api

from headrace.config import WorkerConfig
from headrace.runtime.worker.worker import Worker
from headrace_app.command import main
from headrace_dev.memory.stores import MemoryStores

GOOD = {"connector.class": "LakehouseSink", "topics": "shop.public.items"}
BAD = {**GOOD, "insert.mode": "update", "use.reduction.buffer": "true", "topcs": "x"}


def written(folder: Path, document: Any, name: str = "shop.json") -> str:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def test_a_valid_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A valid file gives one line and exit status 0, in each format of connector files."""
    body = written(tmp_path, {"name": "shop", "config": GOOD})
    flat = written(tmp_path, {"name": "shop", **GOOD}, "flat.json")
    properties = written(
        tmp_path, "".join(f"{k}={v}\n" for k, v in {"name": "shop", **GOOD}.items()), "shop.properties"
    )
    assert main(["validate", body, flat, properties]) == 0
    assert capsys.readouterr().out == "".join(f"{path}: valid\n" for path in (body, flat, properties))


def test_every_error_is_reported_at_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each error names its option, with the equivalent of another sink's option or a suggestion for a misspelt one."""
    path = written(tmp_path, {"name": "shop", "config": BAD})
    assert main(["validate", path, written(tmp_path, {"name": "shop", **GOOD}, "good.json")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{path}: 3 error(s)"
    assert lines[1].startswith("  insert.mode: Invalid value update")
    assert "Debezium's JDBC sink; here: not needed" in lines[2]
    assert lines[3].endswith("Did you mean 'topics'?")
    assert lines[4].endswith("good.json: valid")


def test_an_error_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error of two options is one line with both names. A message that begins with its option does not repeat it."""
    both = written(tmp_path, {"name": "shop", **GOOD, "topics.regex": "shop.*"}, "both.json")
    assert main(["validate", both]) == 1
    sentence = "topics and topics.regex are mutually exclusive options, but both are set."
    assert capsys.readouterr().out == f"{both}: 1 error(s)\n  topics, topics.regex: {sentence}\n"
    fields = written(tmp_path, {"name": "shop", **GOOD, "table.metadata.fields": "nope"}, "fields.json")
    assert main(["validate", fields]) == 1
    assert "  table.metadata.fields: nope is not a metadata field" in capsys.readouterr().out


def test_the_file_of_another_sink_is_answered_with_the_guide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of Debezium's JDBC sink as it is names the guide and the keys to replace, without their values."""
    of_jdbc = {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics": "shop.public.items",
        "connection.url": "jdbc:postgresql://lake.example/shop",
    }
    assert main(["validate", written(tmp_path, {"name": "shop", "config": of_jdbc})]) == 1
    output = capsys.readouterr().out
    assert "It is the class of Debezium's JDBC sink. To move its connector (docs/migration.md), set" in output
    assert "replace these keys: connection.url (in the worker file: warehouse" in output
    assert "lake.example" not in output


def test_files_that_cannot_be_validated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown class is an error of the file with status 1. A missing file gives status 2."""
    assert main(["validate", written(tmp_path, {"name": "shop", "connector.class": "FileStreamSink"})]) == 1
    output = capsys.readouterr().out
    assert "Failed to find any class" in output
    assert "run other connectors, such as Debezium's source connectors, in Kafka Connect" in output
    assert main(["validate", str(tmp_path / "none.json")]) == 2
    assert "none.json: cannot be read as a connector" in capsys.readouterr().out


def test_a_catalog_that_the_worker_does_not_have_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The names of catalogs are those of the worker file. Without a worker file they are not known."""
    properties = "bootstrap.servers=a:1\nspark.sql.catalog.cold=org.apache.iceberg.spark.SparkCatalog\n"
    worker_file = written(tmp_path, properties, "worker.properties")
    cold = written(tmp_path, {"name": "shop", **GOOD, "table.catalog": "cold"}, "cold.json")
    old = written(tmp_path, {"name": "shop", **GOOD, "table.catalog": "old"}, "old.json")
    assert main(["validate", "--worker", worker_file, cold, old]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{cold}: valid", f"{old}: 1 error(s)"]
    assert lines[2].startswith(
        "  table.catalog: the worker file has no catalog 'old', only lake, cold; correct the name"
    )
    assert main(["validate", old]) == 0
    in_folders = written(tmp_path, {"name": "shop", **GOOD, "table.catalog": "cold", "table.format": "delta"})
    assert main(["validate", "--worker", worker_file, in_folders]) == 1
    assert "Delta tables are in folders of the worker's warehouse, and in no catalog" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"reselect.cache.enabled": "true", "reselect.cache.type": "redis"},
            "reselect.cache.type: no plug-in 'redis' is installed on this worker (entry point "
            "headrace.reselect_caches; installed: memory, rocksdb); correct the name, or install the plug-in",
        ),
        (
            {
                "reselect.database.hostname": "db",
                "reselect.database.user": "reader",
                "reselect.database.dbname": "shop",
                "reselect.database.credentials": "vault",
            },
            "reselect.database.credentials: no plug-in 'vault' is installed on this worker (entry point "
            "headrace.database_credentials; installed: none); correct",
        ),
    ],
)
def test_a_plugin_that_is_not_installed_is_refused(
    given: dict[str, str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the option and those plug-ins that are installed."""
    assert main(["validate", written(tmp_path, {"name": "shop", **GOOD, **given})]) == 1
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("name", ["shop.yaml", "shop.YML"])
def test_yaml_is_not_read_as_properties(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file in YAML is refused with the formats that are read, although Java reads ``key: value`` as a property."""
    path = written(tmp_path, "".join(f"{key}: {value}\n" for key, value in {"name": "shop", **GOOD}.items()), name)
    assert main(["validate", path]) == 2
    assert capsys.readouterr().out.startswith(f"{path}: YAML is not read; write the connector as .json or .properties")


def test_json_is_recognized_by_its_content(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that begins with a brace is JSON, whatever its name is."""
    path = written(tmp_path, {"name": "shop", "config": GOOD}, "shop.conf")
    assert main(["validate", path]) == 0
    assert capsys.readouterr().out == f"{path}: valid\n"


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), ("a=\\u12", "Malformed"), ("é", "decode byte")]
)
def test_a_worker_file_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, reason: str
) -> None:
    """The error names a worker file that cannot be read and the reason, with exit status 2."""
    worker = tmp_path / "worker.properties"
    if content is not None:
        worker.write_text(content, encoding="latin-1")
    connector = written(tmp_path, {"name": "shop", **GOOD})
    assert main(["validate", "--worker", str(worker), connector]) == 2
    error = capsys.readouterr().err
    assert f"{worker}: cannot be read as a worker's configuration" in error
    assert reason in error


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"name": "shop", "config": GOOD}, "conflicts with Connect worker group connect-shop"),
        ({"name": "a", "config": {**GOOD, "name": "b"}}, "doesn't match connector name in the URL"),
        ({"name": "a/b", "config": GOOD}, "cannot be addressed in a URL"),
        ({"name": "a", "config": {**GOOD, "topics": ["a", "b"]}}, "cannot be read as a connector: the value of topics"),
    ],
)
@pytest.mark.anyio
async def test_files_that_the_rest_api_refuses_are_not_valid(
    body: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command refuses the names, groups and formats that POST /connectors of a distributed worker refuses."""
    worker_file = written(tmp_path, "bootstrap.servers=127.0.0.1:9092\ngroup.id=connect-shop\n", "worker.properties")
    assert main(["validate", "--worker", worker_file, written(tmp_path, body)]) > 0
    assert words in capsys.readouterr().out
    api = Api(**{"group.id": "connect-shop"})
    await api.worker.start()
    answer = await api.call("POST", "/connectors", body)
    await api.worker.stop()
    assert answer.status in (400, 500)


@pytest.mark.anyio
@pytest.mark.parametrize("config", [GOOD, BAD])
async def test_the_answer_is_that_of_the_rest_api(
    config: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--json`` prints the response of PUT …/config/validate of a worker with the same file."""
    properties = {
        "bootstrap.servers": "127.0.0.1:9092",
        "group.id": "cluster",
        "value.converter.schemas.enable": "false",
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    worker_file = written(tmp_path, text, "worker.properties")
    main(["validate", "--json", "--worker", worker_file, written(tmp_path, {"name": "shop", "config": config})])
    storage = {"config.storage.topic": "c", "status.storage.topic": "s"}
    of_file = WorkerConfig({**properties, **storage})
    worker = Worker(of_file, MemoryStores(), StandInTasks(), ("127.0.0.1", 1))
    await worker.start()
    app = application(worker)
    path = "/connector-plugins/LakehouseSink/config/validate"
    body = json.dumps({"name": "shop", **config}).encode()
    answer = await request(app, "PUT", path, {"Content-Type": "application/json"}, body)
    await worker.stop()
    assert json.loads(capsys.readouterr().out) == answer.json()
