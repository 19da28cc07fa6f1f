"""Tests of config providers: resolved values are used, and no response contains them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.validation import WorkerDefaults
from headrace.config.values import own_secrets
from headrace.core.connect.properties import replace_references
from headrace.core.model.errors import ConfigError
from headrace.runtime.worker.config_providers import ConfigProviders, config_providers, worker_providers
from headrace.runtime.worker.sink_connector import ConnectorValidator, LakehouseSinkConnector

JAVA = "org.apache.kafka.common.config.provider."
SECRET = "s3cret-value"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with an allowed properties file and mounted secret, and a file outside of the allowed paths."""
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "db.properties").write_text(f"password={SECRET}\ncount=many\nempty=\n")
    (tmp_path / "allowed" / "user").write_text("reader")
    (tmp_path / "other.properties").write_text(f"password={SECRET}\n")
    return tmp_path


def providers(folder: Path, environment: Mapping[str, str] | None = None) -> ConfigProviders:
    """Return all three providers, limited to one folder and to environment variables that begin with ``DB_``."""
    allowed = {f"config.providers.{name}.param.allowed.paths": str(folder / "allowed") for name in ("file", "dir")}
    worker = {
        "config.providers": "file, dir, env",
        "config.providers.file.class": f"{JAVA}FileConfigProvider",
        "config.providers.dir.class": "DirectoryConfigProvider",
        "config.providers.env.class": f"{JAVA}EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "DB_.*",
        **allowed,
    }
    return config_providers(worker, environment=(environment or {}).get)


@pytest.mark.parametrize(
    ("value", "resolved"),
    [
        ("${file:F/db.properties:password}", SECRET),
        ("user=${dir:F:user} password=${file:F/db.properties:password};", f"user=reader password={SECRET};"),
        ("${env:DB_USER}", "app"),
        ("${file:F/db.properties:empty}", ""),
        ("${file:F/db.properties:unknown}", None),
        ("${unknown:F/db.properties:password}", None),
        ("${env:DB_NONE}", None),
        ("${dir:F:none}", None),
        ("${dir:F:../../other.properties}", None),
        ("${source.table}", None),
    ],
)
def test_references(folder: Path, value: str, resolved: str | None) -> None:
    """A reference without a provider or a value stays unchanged (connect.md section 10)."""
    value = value.replace("F/", f"{folder}/allowed/").replace("dir:F:", f"dir:{folder}/allowed:")
    found = providers(folder, {"DB_USER": "app", "HOME": "/root"}).properties({"k": value})
    assert found == {"k": value if resolved is None else resolved}


# -- what connectors may read -----------------------------------------------------------------------------------------


def refusal(resolving: ConfigProviders, reference: str) -> str:
    resolved = resolving.resolve({"k": reference})
    assert resolved.properties == {"k": reference}
    return resolved.problems["k"]


@pytest.mark.parametrize(
    "reference",
    [
        "${env:HOME}",
        "${env:DB_USER2\nX}",
        "${file:F/../other.properties:password}",
        "${file:F2/db.properties:password}",
        "${file:/proc/self/environ:DB_USER}",
        "${file:other.properties:password}",
        "${dir:F/..:other.properties}",
        "${dir:/etc:passwd}",
        "${file:F/link.properties:password}",
        "${dir:F/folder:other.properties}",
        "${file:F/\0:password}",
        f"${{file:F/{'x' * 5000}:password}}",
    ],
)
def test_what_is_not_allowed_is_an_error(folder: Path, reference: str) -> None:
    """Other names, paths above or beside the folder, and symbolic links out of it are refused, without a value."""
    (folder / "allowed2").mkdir()
    (folder / "allowed2" / "db.properties").write_text(f"password={SECRET}\n")
    (folder / "allowed" / "link.properties").symlink_to(folder / "other.properties")
    (folder / "allowed" / "folder").symlink_to(folder)
    reference = reference.replace(":F", f":{folder}/allowed")
    problem = refusal(providers(folder, {"HOME": SECRET, "DB_USER": SECRET}), reference)
    assert SECRET not in problem
    assert "param." in problem or "Could not read" in problem


@pytest.mark.parametrize(
    ("reference", "limit"),
    [
        ("${file:F/db.properties:password}", "config.providers.file.param.allowed.paths"),
        ("${dir:F:user}", "config.providers.dir.param.allowed.paths"),
        ("${env:DB_USER}", "config.providers.env.param.allowlist.pattern"),
    ],
)
def test_connectors_read_nothing_by_default(folder: Path, reference: str, limit: str) -> None:
    """A provider without a limit resolves nothing for connectors; the worker file itself may use it."""
    classes = {"file": "FileConfigProvider", "dir": "DirectoryConfigProvider", "env": "EnvVarConfigProvider"}
    worker = {"config.providers": "file,dir,env", **{f"config.providers.{n}.class": c for n, c in classes.items()}}
    reference = reference.replace(":F", f":{folder}/allowed")
    assert f"the worker does not set {limit}" in refusal(config_providers(worker), reference)
    own = worker_providers(worker, {"DB_USER": "app"}.get).properties({"k": reference})
    assert own["k"] in (SECRET, "reader", "app")


def test_connectors_never_read_what_is_the_workers(folder: Path) -> None:
    """Limits that allow everything still exclude the worker's file, keys, references, environment, and the kernel's."""
    file = folder / "worker.properties"
    (folder / "tls.pem").write_text(SECRET)
    (folder / "mounted").write_text(SECRET)
    (folder / "link").symlink_to(folder / "tls.pem")
    given = {
        "config.providers": "file,dir,env",
        "config.providers.file.class": "FileConfigProvider",
        "config.providers.file.param.allowed.paths": "/",
        "config.providers.dir.class": f"{JAVA}DirectoryConfigProvider",
        "config.providers.dir.param.allowed.paths": "/",
        "config.providers.env.class": "EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": ".*",
        "ssl.keystore.location": str(folder / "tls.pem"),
        "ssl.keystore.password": f"${{file:{folder}/allowed/db.properties:password}}",
        "sasl.jaas.config": f"x ${{env:KAFKA}} ${{dir:{folder}:mounted}}",
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    environment = dict.fromkeys(("KAFKA", "CONNECT_SASL_JAAS_CONFIG", "HEADRACE_REST_TOKEN", "SHOP"), SECRET)
    resolving = config_providers(given, own_secrets(file, given), environment.get)
    for reference in (
        f"${{file:{file}:sasl.jaas.config}}",
        f"${{dir:{folder}:tls.pem}}",
        f"${{dir:{folder}:link}}",
        f"${{file:{folder}/allowed/db.properties:password}}",
        f"${{file:{folder}/allowed/../allowed/db.properties:password}}",
        f"${{dir:{folder}/allowed:db.properties}}",
        f"${{dir:{folder}:mounted}}",
        f"${{file:{folder}/mounted:{SECRET}}}",
        "${env:KAFKA}",
        "${env:CONNECT_SASL_JAAS_CONFIG}",
        "${env:HEADRACE_REST_TOKEN}",
        "${file:/proc/self/environ:PATH}",
        "${dir:/proc/self:cmdline}",
    ):
        assert "worker" in refusal(resolving, reference), reference
    free = {"count": f"${{file:{folder}/allowed/db.properties:count}}", "shop": "${env:SHOP}"}
    assert resolving.properties(free) == {"count": "many", "shop": SECRET}


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("allowed.paths", "secrets"), ("allowlist.pattern", "x"), ("allowed.path", "/secrets")],
)
def test_wrong_parameters_of_a_provider_are_refused(parameter: str, value: str) -> None:
    """A misspelt limit would limit nothing or everything; relative folders depend on where the worker was started."""
    option = f"config.providers.file.param.{parameter}"
    given = {"config.providers": "file", "config.providers.file.class": "FileConfigProvider", option: value}
    with pytest.raises(ConfigError, match=rf"^{re.escape(option)}: ") as caught:
        config_providers(given)
    assert caught.value.key == option


def test_files_that_are_no_secrets_are_refused(folder: Path) -> None:
    """A pipe would hold the worker, and a large file would fill its memory."""
    os.mkfifo(folder / "allowed" / "pipe")
    with (folder / "allowed" / "large").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("pipe", "large"):
        assert "Could not read" in refusal(providers(folder), f"${{dir:{folder}/allowed:{name}}}")


def test_a_file_that_cannot_be_read_is_an_error_at_its_key(folder: Path) -> None:
    """A file that cannot be read is an error of the option, instead of an unresolved value."""
    (folder / "allowed" / "half.properties").write_text("password=a\\u12")
    for name in ("none", "half"):
        reference = f"${{file:{folder}/allowed/{name}.properties:password}}"
        with pytest.raises(
            ConfigError, match=rf"^reselect\.database\.password: Could not read properties from file /.*/{name}"
        ):
            providers(folder).properties({"reselect.database.password": reference})


@pytest.mark.parametrize("wanted", ["", "FileConfgProvider", "io.strimzi.kafka.KubernetesSecretConfigProvider"])
def test_unknown_providers_are_refused(wanted: str) -> None:
    """The worker refuses an unknown config provider class at its start."""
    with pytest.raises(ConfigError, match=r"^config\.providers\.x\.class: there is no config provider"):
        config_providers({"config.providers": "x", "config.providers.x.class": wanted})


def test_no_response_contains_the_value_of_a_reference(folder: Path) -> None:
    """Neither values nor errors of a validation contain a resolved value, of the same or of another option."""
    file = f"{folder}/allowed/db.properties"
    config = {
        "name": "shop",
        "connector.class": "LakehouseSink",
        "topics": f"${{file:{file}:password}}",
        "errors.deadletterqueue.topic.name": SECRET,
        "tasks.max": f"${{file:{file}:count}}",
        "batch.linger.ms": f"${{file:{folder}/allowed/none:x}}",
    }
    validator = ConnectorValidator(LakehouseSinkConnector(WorkerDefaults({}, "1"), providers(folder)))
    infos = {info.definition.name: info.value for info in validator.validate("LakehouseSink", config).configs}
    neutral = (
        "Invalid value for configuration '{}': the value resolved from the config provider reference failed validation"
    )
    assert infos["tasks.max"].errors == (neutral.format("tasks.max"),)
    assert infos["topics"].errors == (neutral.format("topics"),)
    assert infos["batch.linger.ms"].errors == (f"Could not read properties from file {folder}/allowed/none",)
    shown = [each for value in infos.values() for each in (value.value or "", *value.errors)]
    assert [text for text in shown if SECRET in text] == [SECRET]  # the option that contains it as plain text
    assert infos["topics"].value == config["topics"]


def test_a_secret_with_a_line_end_is_masked(folder: Path) -> None:
    """An error masks a mounted secret that ends with a newline, also where the message omits the newline."""
    (folder / "allowed" / "mounted").write_text(f"{SECRET}\n")
    queue = f"${{dir:{folder}/allowed:mounted}}"
    config = {"name": "shop", "connector.class": "LakehouseSink", "topics": SECRET}
    validator = ConnectorValidator(LakehouseSinkConnector(WorkerDefaults({}, "1"), providers(folder)))
    answer = validator.validate("LakehouseSink", {**config, "errors.deadletterqueue.topic.name": queue})
    [message] = answer.errors()
    assert f"The DLQ topic '{queue}'" in message
    assert SECRET not in message


@pytest.mark.parametrize("option", ["transforms", "predicates", "reselect.databases", "post.processors"])
@pytest.mark.parametrize("value", [SECRET, f"first,{SECRET}", f"{SECRET}, second-part"])
def test_a_secret_is_masked_in_names_of_options(folder: Path, option: str, value: str) -> None:
    """Aliases become parts of the names of options, of their groups and of messages, also if a secret is a list."""
    (folder / "allowed" / "alias").write_text(value)
    config = {
        "name": "shop",
        "connector.class": "LakehouseSink",
        "topics": "a",
        option: f"a,${{dir:{folder}/allowed:alias}}",
    }
    validator = ConnectorValidator(LakehouseSinkConnector(WorkerDefaults({}, "1"), providers(folder)))
    answer = validator.validate("LakehouseSink", config)
    assert answer.error_count
    assert SECRET not in repr(answer)


@pytest.mark.parametrize("prefix", ["", "post.processors.r.", "r."])
def test_nothing_is_shown_of_options_under_a_prefix(folder: Path, prefix: str) -> None:
    """A response lists prefixed options without their prefix, with unresolved references and errors of files."""
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
    validator = ConnectorValidator(LakehouseSinkConnector(WorkerDefaults({}, "1"), providers(folder)))
    answer = validator.validate("LakehouseSink", config)
    infos = {info.definition.name: info.value for info in answer.configs}
    assert infos["reselect.database.user"].value == config[f"{prefix}reselect.database.user"]
    assert "failed validation" in infos["reselect.database.port"].errors[0]
    assert infos["reselect.database.password"].errors == (f"Could not read properties from file {folder}/allowed/none",)
    assert answer.error_count == 2
    assert SECRET not in repr(answer)


def test_a_missing_file_is_reported_for_unlisted_keys(folder: Path) -> None:
    """Validation reports a missing file also for unlisted options, because a task resolves every option."""
    config = {"name": "shop", "connector.class": "LakehouseSink", "topics": "a"}
    validator = ConnectorValidator(LakehouseSinkConnector(WorkerDefaults({}, "1"), providers(folder)))
    option = "admin.override.client.id"
    answer = validator.validate("LakehouseSink", {**config, option: f"${{file:{folder}/allowed/none:x}}"})
    errors = {info.definition.name: info.value.errors for info in answer.configs if info.value.errors}
    assert errors == {option: (f"Could not read properties from file {folder}/allowed/none",)}


@given(st.text(alphabet="${}:ab\n", max_size=20))
def test_references_are_searched_in_any_text(value: str) -> None:
    """Any text without a known provider stays unchanged."""
    assert replace_references(value, lambda provider, path, key: None) == value
