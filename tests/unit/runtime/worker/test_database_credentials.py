"""Plug-ins that provide passwords for databases: found by entry point, called for each connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_oracle.driver import FakeDriver
from support.sources.oracle_tables import TABLE, orders_server

from headrace import extensions
from headrace.config.reselect import reselect_options
from headrace.config.validation import WorkerDefaults, validate
from headrace.core.model.errors import ConfigError, Retriable
from headrace.core.reselect.options import ReselectOptions
from headrace_app import composition
from headrace_connectors.sql import OracleRowSource

PLUGIN = '''
import itertools

def tokens(database):
    """A token per connection, as a cloud's signer makes it from user, host and region."""
    numbers = itertools.count(1)
    host, port = database.servers[0]
    region = database.credentials_options["region"]

    def token():
        return f"{database.user}@{host}:{port}/{region}/{next(numbers)}"

    return token

def broken(database):
    def token():
        raise ValueError("the-secret-of-the-signer")

    return token
'''
GIVEN = {
    "reselect.database.hostname": "db.example:5433",
    "reselect.database.user": "reader",
    "reselect.database.dbname": "shop",
    "reselect.database.credentials": "tokens",
    "reselect.database.credentials.region": "eu-central-1",
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a distribution with two plug-ins, and a row source that makes no connections."""
    (tmp_path / "signer.py").write_text(PLUGIN)
    folder = tmp_path / "signer-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: signer\nVersion: 1\n")
    (folder / "entry_points.txt").write_text(
        "[headrace.database_credentials]\ntokens = signer:tokens\nbroken = signer:broken\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    extensions._entry_points.cache_clear()
    yield
    extensions._entry_points.cache_clear()


def passwords(credentials: str) -> ReselectOptions:
    source = composition.row_source(reselect_options({**GIVEN, "reselect.database.credentials": credentials}))
    options: ReselectOptions = source._options  # type: ignore[attr-defined]  # what the plug-in was given to
    source.close()
    return options


def test_plugin_provides_a_password_for_each_connection(installed: None) -> None:
    """The plug-in gets the database and its own options; each call is a new token."""
    database = passwords("tokens").database
    assert database is not None
    assert database.current_password() == "reader@db.example:5433/eu-central-1/1"
    assert database.current_password() == "reader@db.example:5433/eu-central-1/2"


def test_expired_token_is_replaced(installed: None) -> None:
    """A pool whose token the server refuses is followed by one with a new token."""
    database = passwords("tokens").database
    server = orders_server()
    source = OracleRowSource(ReselectOptions(database=database), FakeDriver(server))
    assert source.catalog(TABLE) is not None
    server.password = "reader@db.example:5433/eu-central-1/2"
    server.failures.append(("execute", "ORA-03113: end-of-file on communication channel"))
    for _ in range(2):
        with pytest.raises(Retriable):
            source.catalog(TABLE)
    assert source.catalog(TABLE) is not None


def test_unexpected_errors_of_a_plugin_are_retried_without_their_text(installed: None) -> None:
    """The text of an error that the plug-in did not mean for operators may contain a secret."""
    database = passwords("broken").database
    assert database is not None
    with pytest.raises(Retriable, match="broken provides no password now: ValueError") as caught:
        database.current_password()
    assert "the-secret-of-the-signer" not in str(caught.value)


def test_plugin_that_is_not_installed_is_refused(installed: None) -> None:
    """The error lists the installed plug-ins."""
    with pytest.raises(ConfigError, match="'kerberos' is not installed; use one of: broken, tokens"):
        passwords("kerberos")


def test_options_of_a_plugin_are_accepted_only_beside_it() -> None:
    """Keys below reselect.database.credentials. are unknown options without a plug-in."""
    defaults = WorkerDefaults({}, "1")
    given = {**GIVEN, "name": "shop", "connector.class": "LakehouseSink", "topics": "a"}
    key = "reselect.database.credentials.region"
    assert not any(each.value.errors for each in validate(given, defaults).configs)
    del given["reselect.database.credentials"]
    errors = {each.definition.name: each.value.errors for each in validate(given, defaults).configs}
    assert "Unknown configuration" in errors[key][0]
