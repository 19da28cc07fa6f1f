"""The options of reselect are those of Debezium; an invalid value is an error that names its key."""

from __future__ import annotations

import pytest

from headrace.config.reselect import reselect_options
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.core.reselect.rules import ColumnFilter

TABLE = TableId("shop", "inventory", "public", "orders")
TYPE = "io.debezium.processors.reselect.ReselectColumnsPostProcessor"
NAMED = {"post.processors": "reselector", "post.processors.reselector.type": TYPE}


@pytest.mark.parametrize("prefix", ["", "post.processors.reselector.", "reselector."])
def test_keys_bare_and_prefixed(prefix: str) -> None:
    """DBZ-9170: an option may have no prefix, the full prefix, or the processor's name as prefix."""
    options = reselect_options({**NAMED, f"{prefix}reselect.cache.enabled": "true"})
    assert options.cache_enabled


def test_type_of_a_post_processor_is_required() -> None:
    """DBZ-8901: a post processor without a type fails at start."""
    with pytest.raises(ConfigError, match="Missing required configuration") as caught:
        reselect_options({"post.processors": "reselector"})
    assert caught.value.key == "post.processors.reselector.type"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reselect.error.handling.mode", "explode"),
        ("reselect.null.values", "maybe"),
        ("reselect.batch.max.keys", "many"),
        ("binary.handling.mode", "rot13"),
        ("reselect.columns.include.list", "(unclosed"),
        ("reselect.columns.include.list", r"\Qliteral\E"),
        ("reselect.columns.exclude.list", "trailing\\"),
    ],
)
def test_wrong_values_name_their_key(key: str, value: str) -> None:
    """Unknown words, texts for numbers, and invalid patterns are configuration errors that name the key."""
    with pytest.raises(ConfigError) as caught:
        reselect_options({key: value})
    assert caught.value.key == key


def test_both_lists_are_refused() -> None:
    """An include list and an exclude list together are an error, although Debezium ignores the exclude list."""
    with pytest.raises(ConfigError, match="both set"):
        ColumnFilter("a", "b")


@pytest.mark.parametrize(
    ("include", "matches"),
    [
        ("public.orders:big", True),
        (r"PUBLIC\.ORDERS:BIG", True),
        (r"public\.orders:b", False),
        (r" other , public\.orders:(big|doc) ", True),
        (r"public\.orders:b\,ig", False),
        ("", True),
    ],
)
def test_patterns_match_the_whole_name(include: str, matches: bool) -> None:
    """The include list is separated by commas; each pattern matches complete names in any case."""
    assert ColumnFilter(include).matches(TABLE, "big") is matches


def test_exclude_list() -> None:
    """The exclude list matches all columns except those that match a pattern."""
    columns = ColumnFilter(exclude=r".*:big")
    assert not columns.matches(TABLE, "big")
    assert columns.matches(TABLE, "doc")


def test_mode_is_trimmed_and_of_any_case() -> None:
    """The error handling mode is read in any case and without surrounding spaces, as in Debezium."""
    assert reselect_options({"reselect.error.handling.mode": " FAIL "}).error_handling_mode == "fail"


@pytest.mark.parametrize(
    ("given", "port"), [({}, 5432), ({"type": "oracle"}, 1521), ({"type": "ORACLE", "port": "1"}, 1)]
)
def test_port_is_that_of_the_databases_kind(given: dict[str, str], port: int) -> None:
    """``reselect.database.type`` selects the row source and its default port."""
    properties = {f"reselect.database.{name}": value for name, value in {"hostname": "db", **given}.items()}
    database = reselect_options(properties).database
    assert database is not None
    assert (database.port, database.type) == (port, given.get("type", "postgresql").lower())


def test_the_representation_hides_the_password() -> None:
    """The representation of the options, which may be logged, does not contain the password."""
    options = reselect_options({"reselect.database.hostname": "db", "reselect.database.password": "hunter2"})
    assert options.database is not None
    assert options.database.password == "hunter2"
    assert "hunter2" not in repr(options)


@pytest.mark.parametrize(
    ("hostname", "servers"),
    [
        ("db", [("db", 5432)]),
        ("replica:5433, db", [("replica", 5433), ("db", 5432)]),
        ("::1", [("::1", 5432)]),
        ("[::1]:5433,[fe80::2]", [("::1", 5433), ("fe80::2", 5432)]),
    ],
)
def test_hostname_lists_servers(hostname: str, servers: list[tuple[str, int]]) -> None:
    """A hostname lists servers with optional ports; an IPv6 address with a port needs brackets."""
    options = reselect_options({"reselect.database.hostname": hostname})
    assert options.database is not None
    assert list(options.database.servers) == servers


@pytest.mark.parametrize("hostname", ["db:", "db:http", "db:0", " , "])
def test_hostname_that_names_no_server(hostname: str) -> None:
    """An invalid port and an empty list are configuration errors of ``reselect.database.hostname``."""
    with pytest.raises(ConfigError) as caught:
        reselect_options({"reselect.database.hostname": hostname})
    assert caught.value.key == "reselect.database.hostname"


def test_answers_of_replicas_without_the_check_are_not_cached() -> None:
    """``reselect.md`` section 3.4: without the visibility check on replicas the cache is off, even if it is enabled."""
    given = {"reselect.cache.enabled": "true", "reselect.read.from": "replica"}
    assert reselect_options(given).caches
    assert not reselect_options({**given, "reselect.visibility.check": "off"}).caches
