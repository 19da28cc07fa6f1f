"""Config providers: what a reference stands for is used everywhere and shown nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.validation import WorkerDefaults
from headrace.core.connect.config_references import replace_references
from headrace.core.model.errors import ConfigError
from headrace.runtime.worker.config_providers import ConfigProviders, config_providers
from headrace.runtime.worker.connector_validator import ConnectorValidator
from headrace.runtime.worker.plugins import LakehouseSinkConnector, Plugins

JAVA = "org.apache.kafka.common.config.provider."
SECRET = "s3cret-value"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A properties file and a mounted secret, and one that nobody may read."""
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "db.properties").write_text(f"password={SECRET}\ncount=many\nempty=\n")
    (tmp_path / "allowed" / "user").write_text("reader")
    (tmp_path / "other.properties").write_text(f"password={SECRET}\n")
    return tmp_path


def providers(folder: Path, environment: Mapping[str, str] | None = None) -> ConfigProviders:
    """All three kinds, the files bounded to one folder and the environment to names that begin with DB_."""
    allowed = {f"config.providers.{name}.param.allowed.paths": str(folder / "allowed") for name in ("file", "dir")}
    worker = {
        "config.providers": "file, dir, env",
        "config.providers.file.class": f"{JAVA}FileConfigProvider",
        "config.providers.dir.class": "DirectoryConfigProvider",
        "config.providers.env.class": f"{JAVA}EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "DB_.*",
        **allowed,
    }
    return config_providers(worker, (environment or {}).get)


@pytest.mark.parametrize(
    ("value", "resolved"),
    [
        ("${file:F/db.properties:password}", SECRET),
        ("user=${dir:F:user} password=${file:F/db.properties:password};", f"user=reader password={SECRET};"),
        ("${env:DB_USER}", "app"),
        ("${file:F/db.properties:empty}", ""),
        ("${file:F/db.properties:unknown}", None),
        ("${nobody:F/db.properties:password}", None),
        ("${env:HOME}", None),
        ("${env:DB_NONE}", None),
        ("${dir:F:none}", None),
        ("${dir:F:../../other.properties}", None),
        ("${file:F/../other.properties:password}", None),
        ("${source.table}", None),
    ],
)
def test_references(folder: Path, value: str, resolved: str | None) -> None:
    """A reference that nobody knows, or that may not be read, stays as it is (connect.md section 10)."""
    value = value.replace("F/", f"{folder}/allowed/").replace("dir:F:", f"dir:{folder}/allowed:")
    found = providers(folder, {"DB_USER": "app", "HOME": "/root"}).properties({"k": value})
    assert found == {"k": value if resolved is None else resolved}


def test_a_place_that_cannot_be_read_is_an_error_at_its_key(folder: Path) -> None:
    """Not a value that looks like a password."""
    (folder / "allowed" / "half.properties").write_text("password=a\\u12")
    for name in ("none", "half"):
        reference = f"${{file:{folder}/allowed/{name}.properties:password}}"
        with pytest.raises(
            ConfigError, match=rf"^reselect\.database\.password: Could not read properties from file /.*/{name}"
        ):
            providers(folder).properties({"reselect.database.password": reference})


@pytest.mark.parametrize("wanted", ["", "FileConfgProvider", "io.strimzi.kafka.KubernetesSecretConfigProvider"])
def test_unknown_providers_are_refused(wanted: str) -> None:
    """At the start of the worker, with a suggestion where one is close."""
    with pytest.raises(ConfigError, match=r"^config\.providers\.x\.class: there is no config provider"):
        config_providers({"config.providers": "x", "config.providers.x.class": wanted})


def test_no_answer_shows_what_a_reference_stands_for(folder: Path) -> None:
    """Neither the values of a validation nor its errors, of the key itself or of another one."""
    file = f"{folder}/allowed/db.properties"
    config = {
        "name": "shop",
        "connector.class": "LakehouseSink",
        "topics": f"${{file:{file}:password}}",
        "errors.deadletterqueue.topic.name": SECRET,
        "tasks.max": f"${{file:{file}:count}}",
        "batch.linger.ms": f"${{file:{folder}/allowed/none:x}}",
    }
    validator = ConnectorValidator(Plugins([LakehouseSinkConnector()]), WorkerDefaults({}, "1"), providers(folder))
    infos = {info.definition.name: info.value for info in validator.validate("LakehouseSink", config).configs}
    neutral = (
        "Invalid value for configuration '{}': the value resolved from the config provider reference failed validation"
    )
    assert infos["tasks.max"].errors == (neutral.format("tasks.max"),)
    assert infos["topics"].errors == (neutral.format("topics"),)
    assert infos["batch.linger.ms"].errors == (f"Could not read properties from file {folder}/allowed/none",)
    shown = [each for value in infos.values() for each in (value.value or "", *value.errors)]
    assert [text for text in shown if SECRET in text] == [SECRET]  # where it was given in clear
    assert infos["topics"].value == config["topics"]


def test_a_line_end_behind_a_secret_shows_nothing(folder: Path) -> None:
    """Mounted secrets often have one, and messages have the value without it."""
    (folder / "allowed" / "mounted").write_text(f"{SECRET}\n")
    queue = f"${{dir:{folder}/allowed:mounted}}"
    config = {"name": "shop", "connector.class": "LakehouseSink", "topics": SECRET}
    validator = ConnectorValidator(Plugins([LakehouseSinkConnector()]), WorkerDefaults({}, "1"), providers(folder))
    answer = validator.validate("LakehouseSink", {**config, "errors.deadletterqueue.topic.name": queue})
    [message] = answer.errors()
    assert f"The DLQ topic '{queue}'" in message
    assert SECRET not in message


@pytest.mark.parametrize("prefix", ["", "post.processors.r.", "r."])
def test_nothing_is_shown_of_options_under_a_prefix(folder: Path, prefix: str) -> None:
    """Answers have them under their bare names, so that is where references and missing files are told."""
    file = f"{folder}/allowed/db.properties"
    config = {
        "name": "shop",
        "connector.class": "LakehouseSink",
        "topics": "a",
        "post.processors": "r",
        "post.processors.r.type": "ReselectColumns",
        f"{prefix}reselect.database.hostname": "h",
        f"{prefix}reselect.database.dbname": "d",
        f"{prefix}reselect.database.user": f"${{file:{file}:password}}",
        f"{prefix}reselect.database.password": f"${{file:{folder}/allowed/none:x}}",
        f"{prefix}reselect.database.port": f"${{file:{file}:count}}",
    }
    validator = ConnectorValidator(Plugins([LakehouseSinkConnector()]), WorkerDefaults({}, "1"), providers(folder))
    answer = validator.validate("LakehouseSink", config)
    infos = {info.definition.name: info.value for info in answer.configs}
    assert infos["reselect.database.user"].value == config[f"{prefix}reselect.database.user"]
    assert "failed validation" in infos["reselect.database.port"].errors[0]
    assert infos["reselect.database.password"].errors == (f"Could not read properties from file {folder}/allowed/none",)
    assert answer.error_count == 2
    assert SECRET not in repr(answer)


def test_a_missing_file_is_told_of_keys_that_no_list_has(folder: Path) -> None:
    """A task resolves every key at its start, those without effect as well."""
    config = {"name": "shop", "connector.class": "LakehouseSink", "topics": "a"}
    validator = ConnectorValidator(Plugins([LakehouseSinkConnector()]), WorkerDefaults({}, "1"), providers(folder))
    option = "admin.override.client.id"
    answer = validator.validate("LakehouseSink", {**config, option: f"${{file:{folder}/allowed/none:x}}"})
    told = {info.definition.name: info.value.errors for info in answer.configs if info.value.errors}
    assert told == {option: (f"Could not read properties from file {folder}/allowed/none",)}


@given(st.text(alphabet="${}:ab\n", max_size=20))
def test_any_text_can_be_looked_through(value: str) -> None:
    """What nobody knows comes back as it was."""
    assert replace_references(value, lambda provider, path, key: None) == value
