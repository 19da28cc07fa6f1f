"""What other packages add to a worker by entry points, and the errors for those that do not fit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import extensions
from headrace.config import WorkerConfig
from headrace.config.reselect import reselect_options
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.model.errors import ConfigError
from headrace.core.reselect.cache.rows import CacheLimits
from headrace.ports import RowStoreOptions
from headrace.transforms import registry
from headrace_app import composition
from headrace_app.command import main

Install = Callable[..., None]
"""Installs the package ``extras`` 1.0 with a source and entry points, one per group."""
OPTIONS = RowStoreOptions(CacheLimits(), "shop", 0, {"size": "7"})
DATABASE = {"reselect.database.hostname": "db", "reselect.database.user": "u", "reselect.database.dbname": "shop"}
PACKAGE = """
from headrace.core.connect.config_def import ConfigDef
from headrace.core.reselect.cache.rows import MemoryRowStore
from headrace.transforms.options import PluginClass
from headrace_dev.memory import MemoryRowSource

class Store(MemoryRowStore):
    def __init__(self, options):
        super().__init__(options.limits)
        self.properties = options.properties

class Source(MemoryRowSource):
    def __init__(self, options):
        super().__init__()
        self.user = options.database.user

class Decoder:
    def __init__(self, topic, options):
        self.topic = topic
    def decode(self, records): ...

def credentials(database):
    return lambda: f"password of {database.user}"

def transforms():
    yield PluginClass("com.example.Rename", ConfigDef(()), lambda values: lambda record: record)

def predicates():
    return [PluginClass("com.example.IsLarge", ConfigDef(()), lambda values: lambda record: True)]

def own():
    return [PluginClass("org.apache.kafka.connect.transforms.Filter", ConfigDef(()), lambda values: None)]

class Half:
    def get(self, key): ...

def half(options):
    return Half()

def without_options():
    return Half()

text = "text"

def texts():
    return ["text"]
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a package until the end of the test."""
    caches = (extensions._entry_points, registry.transforms, registry.predicates)

    def installed(source: str = PACKAGE, **entries: str) -> None:
        (tmp_path / "extras.py").write_text(source)
        folder = tmp_path / "extras-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: extras\nVersion: 1.0\n")
        lines = [f"[headrace.{group}]\n{entry}\n" for group, entry in entries.items()]
        (folder / "entry_points.txt").write_text("".join(lines))
        monkeypatch.syspath_prepend(tmp_path)
        for each in caches:
            each.cache_clear()

    yield installed
    sys.modules.pop("extras", None)
    for each in caches:
        each.cache_clear()


def test_a_package_adds_to_each_extension_point(install: Install) -> None:
    """The worker uses what a package adds beside its own parts, and gives it the options that it needs."""
    install(
        reselect_caches="redis = extras:Store",
        row_sources="mysql = extras:Source",
        database_credentials="vault = extras:credentials",
        sources="vitess = extras:Decoder",
        transforms="more = extras:transforms",
        predicates="more = extras:predicates",
    )
    assert composition.CACHES.names() == ["memory", "redis", "rocksdb"]
    store = composition.row_store("redis", OPTIONS)
    assert store.properties == {"size": "7"}  # type: ignore[attr-defined]
    database = reselect_options({**DATABASE, "reselect.database.credentials": "vault"}).database
    assert database is not None
    source = composition.DATABASES.load("mysql")(reselect_options(DATABASE))
    assert source.user == "u"  # type: ignore[attr-defined]
    assert composition.CREDENTIALS.load("vault")(database)() == "password of u"
    decoders = composition.SOURCES.load_all()
    assert sorted(decoders) == ["cassandra", "vitess"]
    assert decoders["vitess"]("topic", EnvelopeOptions()).topic == "topic"  # type: ignore[attr-defined]
    assert registry.find("Rename", registry.transforms()) is not None
    assert registry.find("IsLarge", registry.predicates()) is not None


def test_own_parts_have_precedence(install: Install) -> None:
    """A package cannot replace a part of Headrace by using its name."""
    before = registry.transforms()["org.apache.kafka.connect.transforms.Filter"].options
    install(reselect_caches="rocksdb = extras:half", transforms="own = extras:own")
    assert composition.CACHES.load("rocksdb") is composition.CACHES.built_in["rocksdb"]
    assert registry.transforms()["org.apache.kafka.connect.transforms.Filter"].options == before


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("absent:open", "it cannot be loaded: ModuleNotFoundError: No module named 'absent'"),
        ("extras:absent", "it cannot be loaded: AttributeError"),
        ("extras:text", "it is no function that accepts 1 argument(s)"),
        ("extras:without_options", "it is no function that accepts 1 argument(s)"),
        (
            "extras:half",
            "it returned an object of type Half without close, drop, drop_table, durable, evicted, holds, "
            "keys, load, oldest, put, save, size, which is no headrace.core.reselect.cache.rows.RowStore",
        ),
    ],
)
def test_an_extension_that_does_not_fit_is_refused(entry: str, problem: str, install: Install) -> None:
    """The error names the entry point, its package, the problem and what to do."""
    install(reselect_caches=f"redis = {entry}")
    with pytest.raises(ConfigError) as caught:
        composition.row_store("redis", OPTIONS)
    message = str(caught.value)
    assert message.startswith(
        f"entry point 'redis' of headrace.reselect_caches ({entry}, package extras 1.0): {problem}"
    ), message
    assert message.endswith("; correct the package, or remove it from this worker")


@pytest.mark.parametrize(
    ("group", "entry", "problem"),
    [
        ("transforms", "extras:texts", "it returned an object of type str, no PluginClass"),
        ("predicates", "extras:half", "it is no function that accepts 0 argument(s)"),
        ("sources", "extras:half", "it is no function that accepts 2 argument(s)"),
    ],
)
def test_a_worker_does_not_start_with_an_unusable_extension(
    group: str, entry: str, problem: str, install: Install, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Extensions that apply to any connector are loaded at the start, and the command ends with the error."""
    install(**{group: f"wrong = {entry}"})
    properties = {"bootstrap.servers": "127.0.0.1:1", "listeners": "http://127.0.0.1:0", "warehouse": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"entry point 'wrong' of headrace\.") as caught:
        composition.connectors(WorkerConfig(properties, distributed=False))
    assert problem in str(caught.value)


def test_the_command_reports_an_unusable_extension(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command ends with one line and exit status 2, not with a stack trace."""
    install(transforms="wrong = extras:texts")
    connector = tmp_path / "shop.json"
    connector.write_text('{"name": "shop", "config": {"connector.class": "LakehouseSink", "topics": "a"}}')
    assert main(["validate", str(connector)]) == 2
    assert "entry point 'wrong' of headrace.transforms (extras:texts, package extras 1.0)" in capsys.readouterr().err
