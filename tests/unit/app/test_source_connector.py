"""Where ``headrace doctor --debezium`` reads the source connector from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.config.source_connector import SourceConnectorSettings
from headrace.core.model.errors import ConfigError, Retriable
from headrace_app.source_connector import read_source_connector

NONE = SourceConnectorSettings()
CONFIG = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "topic.prefix": "shop"}


@pytest.mark.parametrize(
    ("document", "name", "version"),
    [
        ({"name": "shop", "config": CONFIG, "tasks": [], "type": "source"}, "shop", None),
        ({"name": "shop", "config": CONFIG, "version": "3.7.0.Final"}, "shop", "3.7.0.Final"),
        ({**CONFIG, "name": "shop"}, "shop", None),
        (CONFIG, "file", None),
    ],
    ids=["answer", "with version", "configuration with name", "configuration"],
)
def test_forms_of_a_file(tmp_path: Path, document: object, name: str, version: str | None) -> None:
    file = tmp_path / "file.json"
    file.write_text(json.dumps(document))
    source = read_source_connector(str(file), NONE)
    assert source is not None
    assert (source.name, source.version, source.system) == (name, version, "postgresql")
    assert source.config["topic.prefix"] == "shop"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read"),
        ("[]", "has no connector.class"),
        ('{"config": {}}', "has no connector.class"),
        ('{"connector.class": "io.confluent.JdbcSource"}', "io.confluent.JdbcSource is not a connector of Debezium"),
    ],
)
def test_what_is_no_source_connector(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        read_source_connector(str(file), NONE)


@pytest.mark.parametrize("url", ["http://connect:8083", "http://connect:8083/connectors/", "http://c/connectors/a/b"])
def test_an_address_that_is_none_of_a_connector(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of a connector"):
        read_source_connector(url, NONE)


def test_no_answer_and_credentials() -> None:
    """The message does not repeat a password."""
    with pytest.raises(Retriable, match="does not answer"):
        read_source_connector("http://127.0.0.1:1/connectors/shop", NONE)
    with pytest.raises(ConfigError, match="contains credentials") as error:
        read_source_connector("http://user:secret@connect:8083/connectors/shop", NONE)
    assert "secret" not in str(error.value)
