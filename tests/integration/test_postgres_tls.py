"""TLS and passwords of a real PostgreSQL: each wrong certificate and password is named, and passwords may change."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from support.servers.certificates import Authority, Identity

from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.core.model.errors import ConfigError, Retriable
from headrace.core.model.events import Column, TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.core.reselect.rows import RowRequest
from headrace.runtime.worker.config_providers import config_providers
from headrace_connectors.sql import PostgresRowSource, postgres_server
from headrace_dev.postgres import Postgres
from headrace_dev.server import wait_until

pytestmark = pytest.mark.stack

_RULES = """\
host all postgres 127.0.0.1/32 trust
hostssl all robot 127.0.0.1/32 cert
hostssl all all 127.0.0.1/32 scram-sha-256
"""
TABLE = TableId("shop", "postgres", "public", "notes")


@pytest.fixture(scope="module")
def authority() -> Authority:
    """Return the authority of the server's certificate."""
    return Authority()


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """Yield a server that takes logins over TLS only, with users ``reader`` (password) and ``robot`` (certificate)."""
    root = Path(tempfile.mkdtemp(prefix="headrace-tls-"))  # pytest closes its folders to the server's account
    root.chmod(0o755)
    server = Postgres(root)
    server.start()
    server.execute(
        "CREATE ROLE reader LOGIN PASSWORD 'first'; CREATE ROLE robot LOGIN;"
        "CREATE TABLE notes (k text PRIMARY KEY, v text); INSERT INTO notes VALUES ('a', 'found');"
        "GRANT SELECT ON notes TO reader, robot"
    )
    server.reload({}, _RULES)
    yield server
    server.stop()
    shutil.rmtree(root)


@pytest.fixture
def secured(server: Postgres, authority: Authority) -> Postgres:
    """Return the server with a valid certificate."""
    serve(server, authority.issue("server"), authority)
    return server


@pytest.fixture
def options(server: Postgres, authority: Authority, tmp_path: Path) -> DatabaseOptions:
    """Return valid options of ``reader``."""
    (tmp_path / "ca.pem").write_bytes(authority.pem())
    return DatabaseOptions(
        "localhost",
        server.port,
        "reader",
        "first",
        "postgres",
        sslmode="verify-full",
        sslrootcert=str(tmp_path / "ca.pem"),
    )


Opener = Callable[[DatabaseOptions], PostgresRowSource]


@pytest.fixture
def open_source(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    """Return a function that opens row sources, which are closed after the test."""
    monkeypatch.setattr(postgres_server, "CONNECT_SECONDS", 2)
    opened: list[PostgresRowSource] = []

    def open_one(database: DatabaseOptions) -> PostgresRowSource:
        opened.append(PostgresRowSource(ReselectOptions(database=database, visibility_check=False)))
        return opened[-1]

    yield open_one
    for source in opened:
        source.close()


def serve(server: Postgres, identity: Identity, clients: Authority) -> None:
    key = identity.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    server.use_certificate(identity.certificate_pem(), key, clients.pem())


def client_file(path: Path, identity: Identity, password: str | None = None) -> str:
    path.write_bytes(identity.pem(password))
    path.chmod(0o600)
    return str(path)


def read(source: PostgresRowSource) -> list[str]:
    catalog = source.catalog(TABLE)
    assert catalog is not None
    key = Column("k", Schema("string"), pa.array(["a"]))
    column = Column("v", Schema("string", optional=True), pa.array([], pa.string()))
    request = RowRequest(TABLE, (key,), (column,), np.ones((1, 1), np.bool_), np.full(1, -1, np.int64))
    return source.fetch(catalog, request).of_found(0)


def read_again(source: PostgresRowSource) -> list[str]:
    """Read as a task does, which repeats what is Retriable: the pool pauses between its attempts to connect."""

    def attempt() -> list[str]:
        try:
            return read(source)
        except Retriable:
            return []

    return wait_until(attempt, "row", 30)


def refusal(source: PostgresRowSource) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        source.check()
    return caught.value


# -- certificates -----------------------------------------------------------------------------------------------------


def test_verify_full_accepts_the_given_authority(
    secured: Postgres, options: DatabaseOptions, open_source: Opener
) -> None:
    """A row is read over TLS with sslmode=verify-full and the authority in sslrootcert."""
    source = open_source(options)
    source.check()
    assert read(source) == ["found"]


def test_unknown_authority_is_named(
    secured: Postgres, options: DatabaseOptions, open_source: Opener, tmp_path: Path
) -> None:
    """A certificate of another authority is refused with OpenSSL's reason, and the message names sslrootcert."""
    (tmp_path / "other.pem").write_bytes(Authority("other").pem())
    error = refusal(open_source(replace(options, sslrootcert=str(tmp_path / "other.pem"))))
    assert "certificate verify failed: self-signed certificate in certificate chain" in str(error)
    assert error.key == "reselect.database.sslrootcert"


def test_expired_certificate_is_named(
    server: Postgres, authority: Authority, options: DatabaseOptions, open_source: Opener
) -> None:
    """An expired certificate is refused with that reason, which libpq does not report."""
    serve(server, authority.issue("server", ends=timedelta(hours=-1)), authority)
    error = refusal(open_source(options))
    assert "certificate verify failed: certificate has expired" in str(error)
    assert "renew the certificate of the server" in str(error)


def test_other_host_name_is_named(secured: Postgres, options: DatabaseOptions, open_source: Opener) -> None:
    """A certificate for other names is refused by verify-full and accepted by verify-ca."""
    elsewhere = replace(options, hostname="127.0.0.2")
    secured.reload({"listen_addresses": "'127.0.0.1,127.0.0.2'"})
    secured.stop()  # addresses change with a restart only
    secured.start()
    error = refusal(open_source(elsewhere))
    assert "does not match host name" in str(error)
    assert error.key == "reselect.database.hostname"
    with pytest.raises(ConfigError, match=r"no pg_hba\.conf entry|password"):
        open_source(replace(elsewhere, sslmode="verify-ca", password="wrong")).check()


def test_missing_file_of_authorities_is_named(secured: Postgres, options: DatabaseOptions, open_source: Opener) -> None:
    """verify-full without a readable sslrootcert names the option."""
    assert refusal(open_source(replace(options, sslrootcert="/nowhere.pem"))).key == "reselect.database.sslrootcert"


def test_client_certificate_is_a_login(
    secured: Postgres, authority: Authority, options: DatabaseOptions, open_source: Opener, tmp_path: Path
) -> None:
    """A client's certificate with an encrypted key logs its user in."""
    file = client_file(tmp_path / "robot.pem", authority.issue("robot"), "key-password")
    robot = replace(options, user="robot", password=None, sslcert=file, sslkey=file, sslpassword="key-password")
    assert read(open_source(robot)) == ["found"]


@pytest.mark.parametrize(
    ("name", "ends", "signer", "message"),
    [
        ("robot", 1, "other", "the server has to trust the authority of reselect.database.sslcert"),
        ("robot", -1, "authority", "renew the client's certificate in reselect.database.sslcert"),
        ("reader", 1, "authority", "the name in the certificate of reselect.database.sslcert has to be the user's"),
        ("", 0, "", "set reselect.database.sslcert and sslkey"),
    ],
    ids=["authority", "expired", "name", "missing"],
)
def test_refused_client_certificates_are_named(
    secured: Postgres,
    authority: Authority,
    options: DatabaseOptions,
    open_source: Opener,
    tmp_path: Path,
    name: str,
    ends: int,
    signer: str,
    message: str,
) -> None:
    """Each reason for which the server refuses a client's certificate has its own answer."""
    robot = replace(options, user="robot", password=None)
    if name:
        issuer = authority if signer == "authority" else Authority(signer)
        file = client_file(tmp_path / "robot.pem", issuer.issue(name, ends=timedelta(hours=ends)))
        robot = replace(robot, sslcert=file, sslkey=file)
    error = refusal(open_source(robot))
    assert message in str(error)
    assert error.key == "reselect.database.sslcert"


# -- passwords --------------------------------------------------------------------------------------------------------


def test_wrong_password_is_named(secured: Postgres, options: DatabaseOptions, open_source: Opener) -> None:
    """A wrong password is refused with the option's name and without the password."""
    error = refusal(open_source(replace(options, password="guess")))
    assert error.key == "reselect.database.password"
    assert "correct reselect.database.password" in str(error)
    assert "guess" not in str(error)


def test_password_is_read_again_for_each_connection(
    secured: Postgres, options: DatabaseOptions, open_source: Opener, tmp_path: Path
) -> None:
    """The next connection uses the config provider's new value; until it has one, the refusal is Retriable."""
    secret = tmp_path / "secret.properties"
    secret.write_text("password=first\n")
    providers = config_providers(
        {
            "config.providers": "file",
            "config.providers.file.class": "FileConfigProvider",
            "config.providers.file.param.allowed.paths": str(tmp_path),
        }
    )
    given = {
        "name": "shop",
        "connector.class": "LakehouseSinkConnector",
        "topics": "shop",
        "reselect.database.hostname": "localhost",
        "reselect.database.port": str(options.port),
        "reselect.database.user": "reader",
        "reselect.database.password": f"${{file:{secret}:password}}",
        "reselect.database.dbname": "postgres",
        "reselect.database.sslmode": "verify-full",
        "reselect.database.sslrootcert": options.sslrootcert,
    }
    config = sink_connector_config(providers.properties(given), WorkerDefaults({}, "1"))
    database = providers.with_current_passwords(config, given).reselect.database
    assert database is not None
    source = open_source(database)
    source.check()
    assert read(source) == ["found"]

    secured.execute("ALTER ROLE reader PASSWORD 'second'")
    secured.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'")
    with pytest.raises(Retriable, match="Earlier connections were accepted"):
        read(source)
    secret.write_text("password=second\n")
    assert read_again(source) == ["found"]
    secured.execute("ALTER ROLE reader PASSWORD 'first'")


def test_expired_certificate_of_a_known_server_is_waited_for(
    secured: Postgres, authority: Authority, options: DatabaseOptions, open_source: Opener
) -> None:
    """After connections were accepted, an expired certificate is Retriable, and its renewal ends the error."""
    source = open_source(options)
    source.check()
    serve(secured, authority.issue("server", ends=timedelta(hours=-1)), authority)
    with pytest.raises(Retriable, match="certificate has expired"):
        read(source)
    serve(secured, authority.issue("server"), authority)
    assert read_again(source) == ["found"]
