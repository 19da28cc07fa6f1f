"""Spark's JVM and its executors trust the certificates of a file in each format, and no secret is in their options."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers.certificates import PASSWORD, Authority

from headrace.config.engine import EngineSettings
from headrace.core.connect.typed_options import parse_options
from headrace.core.model.errors import ConfigError
from headrace_connectors.lakehouse.lakehouse import SparkLakehouse
from headrace_connectors.lakehouse.spark_settings import TrustStore, settings
from headrace_dev.java import java

LOCATION, PASSWORD_OPTION = "jvm.ssl.truststore.location", "jvm.ssl.truststore.password"
DRIVER, EXECUTORS = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
PROPERTY = "-Djavax.net.ssl.trustStore"


@pytest.fixture(params=["PEM", "PKCS12"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TrustStore]:
    """A store of two authorities, which was read from a file."""
    one, other = Authority("one"), Authority("other")
    file = tmp_path / "trusted"
    file.write_bytes(
        one.pem() + other.pem() if request.param == "PEM" else one.identity.pkcs12(other.identity.certificate)
    )
    store = TrustStore(str(file), PASSWORD if request.param == "PKCS12" else None)
    yield store
    store.remove()


def test_java_reads_the_store_without_a_password(store: TrustStore) -> None:
    """Java's own tool finds each certificate as a trusted one."""
    store.write()
    store.write()
    assert store.path.stat().st_mode & 0o077 == 0
    command = [str(Path(java()).with_name("keytool")), "-list", "-keystore", str(store.path)]
    listed = subprocess.run(command, input="\n", capture_output=True, text=True, check=True).stdout
    assert listed.count("trustedCertEntry") == 2
    store.remove()
    store.remove()
    assert not store.path.exists()


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """The message names the option and the file, before Spark starts."""
    file = tmp_path / "ca.crt"
    with pytest.raises(ConfigError, match=rf"^{LOCATION}: {file} cannot be read: No such file"):
        SparkLakehouse(str(tmp_path), {}, [], limits=parse_options(EngineSettings, {LOCATION: str(file)}))
    file.write_bytes(Authority().identity.pkcs12())
    with pytest.raises(ConfigError, match=rf"^{LOCATION}: {file} cannot be read: .*password") as refused:
        TrustStore(str(file), "wrong-one")
    assert "wrong-one" not in str(refused.value)


def test_the_operators_own_trust_store_comes_last() -> None:
    """Of two equal properties Java takes the last one."""
    options = settings("/w", {DRIVER: f"{PROPERTY}=/own.p12"}, [], trusted=Path("/t.p12"))[DRIVER].split()
    assert [each for each in options if each.startswith(PROPERTY)] == [f"{PROPERTY}=/t.p12", f"{PROPERTY}=/own.p12"]


def test_executors_on_other_machines_get_the_store() -> None:
    """Spark sends the file to their working folder. Local threads of the driver need none."""
    spark = {"spark.master": "spark://m:7077", "spark.files": "/a.txt", EXECUTORS: "-Da=b"}
    chosen = settings("/w", spark, [], trusted=Path("/tmp/t.p12"))  # noqa: S108 - not opened
    assert chosen["spark.files"] == "/a.txt,/tmp/t.p12"
    assert chosen[EXECUTORS] == f"{PROPERTY}=t.p12 -Da=b"
    local = settings("/w", {}, [], trusted=Path("/tmp/t.p12"))  # noqa: S108 - not opened
    assert not {"spark.files", EXECUTORS} & local.keys()
    without = settings("/w", spark, [])
    assert (without["spark.files"], without[EXECUTORS]) == ("/a.txt", "-Da=b")
    assert PROPERTY not in without[DRIVER]


def test_the_password_is_in_no_option(tmp_path: Path) -> None:
    """The settings of Spark contain neither the password nor the operator's file."""
    file = tmp_path / "trusted.p12"
    file.write_bytes(Authority().identity.pkcs12())
    limits = parse_options(EngineSettings, {LOCATION: str(file), PASSWORD_OPTION: PASSWORD})
    lake = SparkLakehouse(str(tmp_path), {"spark.master": "spark://m:7077"}, [], limits=limits)
    assert PASSWORD not in str(lake._settings)
    assert str(file) not in str(lake._settings)
