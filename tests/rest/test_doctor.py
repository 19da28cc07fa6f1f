"""``GET /connectors/{name}/doctor`` and its page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from support.rest.worker_api import Api
from support.servers.http_registry import Server
from support.sources.oracle_tables import orders_server, row_source

from headrace.ports import TopicPartition
from headrace_dev.memory.row_source import MemoryRowSource

pytestmark = pytest.mark.anyio

DATABASE = {
    "reselect.database.hostname": "db",
    "reselect.database.user": "headrace",
    "reselect.database.password": "secret",
    "reselect.database.dbname": "shop",
}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A worker whose database has no table."""
    api = Api(open_source=lambda database, options: MemoryRowSource())
    await api.worker.start()
    yield api
    await api.worker.stop()


async def test_a_finding_says_what_will_happen_what_was_seen_and_what_to_do(api: Api) -> None:
    await api.create(topics="shop.public.orders", **DATABASE)
    api.stores.topics.offsets[TopicPartition("shop.public.orders", 0)] = 1
    answer = (await api.call("GET", "/connectors/shop/doctor")).json()
    assert answer == {
        "findings": [
            {
                "rule": "missing",
                "severity": "WARNING",
                "subject": "public.orders",
                "consequence": "it fails",
                "evidence": "there is no table",
                "remedy": "add it",
            }
        ],
        "not_checked": [],
    }
    page = (await api.call("GET", "/ui/connectors/shop/doctor")).body.decode()
    assert "public.orders: there is no table." in page


async def test_nothing_to_find(api: Api) -> None:
    await api.create(**{"topics": "", "topics.regex": "shop.*", **DATABASE})
    assert (await api.call("GET", "/connectors/shop/doctor")).json() == {"findings": [], "not_checked": []}
    assert "Nothing was found." in (await api.call("GET", "/ui/connectors/shop/doctor")).body.decode()


async def test_what_does_not_answer_is_no_error() -> None:
    api = Api()
    await api.worker.start()
    await api.create(**DATABASE)
    answer = (await api.call("GET", "/connectors/shop/doctor")).json()
    assert answer["not_checked"] == ['source: database "shop" does not answer']
    assert [finding["rule"] for finding in answer["findings"]] == 4 * ["topic-missing"]
    await api.create("other")
    answer = (await api.call("GET", "/connectors/other/doctor")).json()
    assert answer["not_checked"] == ["source: the connector names no database; set reselect.database.*"]
    await api.worker.stop()


async def test_an_unknown_connector(api: Api) -> None:
    for path in ("/connectors/no/doctor", "/ui/connectors/no/doctor"):
        assert (await api.call("GET", path)).status == 404


async def test_a_clock_that_differs() -> None:
    """It is compared with that of the worker."""
    source = MemoryRowSource()
    source.clock_ahead = 7.5
    api = Api(open_source=lambda database, options: source)
    await api.worker.start()
    await api.create(**{"topics": "", "topics.regex": "shop.*", **DATABASE})
    [finding] = (await api.call("GET", "/connectors/shop/doctor")).json()["findings"]
    assert (finding["rule"], finding["severity"]) == ("worker-clock-source", "WARNING")
    assert "wrong by 7.5 s" in finding["consequence"]
    await api.worker.stop()


async def test_an_information(api: Api) -> None:
    """A release that no test runs with does no harm that is known."""
    api.stores.topics.release = "3.9"
    await api.create(**{"topics": "", "topics.regex": "shop.*", **DATABASE})
    [finding] = (await api.call("GET", "/connectors/shop/doctor")).json()["findings"]
    assert (finding["rule"], finding["severity"]) == ("version-untested", "INFORMATION")
    page = (await api.call("GET", "/ui/connectors/shop/doctor")).body.decode()
    assert '<span class="state ">INFORMATION</span>' in page


async def test_a_clock_that_is_not_reported(api: Api) -> None:
    """The reason says what is missing."""
    api.stores.topics.no_clock = "these brokers do not report a time"
    await api.create(**{"topics": "", "topics.regex": "shop.*", **DATABASE})
    answer = (await api.call("GET", "/connectors/shop/doctor")).json()
    assert answer == {"findings": [], "not_checked": ["clock of Kafka: these brokers do not report a time"]}


PLUGIN = "io.debezium.connector.postgresql.PostgresConnector"


@pytest.fixture
def connect() -> Iterator[Server]:
    """The REST API of the source connector's worker."""
    server = Server()
    config = {"connector.class": PLUGIN, "skipped.operations": "d", "database.password": "secret"}
    server.answers["/connectors/shop-source"] = 200, {"name": "shop-source", "config": config}
    server.answers["/connector-plugins"] = 200, [{"class": PLUGIN, "type": "source", "version": "3.7.0.Final"}]
    yield server
    server.close()


async def test_the_source_connector(api: Api, connect: Server) -> None:
    """Its settings and its release are read with the connector's credentials; the page says whether it is checked."""
    await api.create(**{"topics": "", "topics.regex": "shop.*", **DATABASE})
    page = (await api.call("GET", "/ui/connectors/shop/doctor")).body.decode()
    assert "Debezium's connector was not checked" in page
    named = {"source.connector.url": f"{connect.url}/connectors/shop-source"}
    login = {"source.connector.user": "ann", "source.connector.password": "s"}
    await api.create("named", **{"topics": "", "topics.regex": "shop.*", **DATABASE, **named, **login})
    answer = (await api.call("GET", "/connectors/named/doctor")).json()
    assert answer["not_checked"] == []
    assert answer["findings"][0]["rule"] == "debezium-operations-skipped"
    assert "secret" not in str(answer)
    assert {headers["Authorization"] for _, headers in connect.asked} == {"Basic YW5uOnM="}
    page = (await api.call("GET", "/ui/connectors/named/doctor")).body.decode()
    assert "debezium-operations-skipped" in page
    assert "was not checked" not in page


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((404, {"message": "Connector shop-source not found"}), "Connector shop-source not found; check "),
        ((401, {}), "refused (401); set source.connector.user and source.connector.password, or "),
        ((500, {"message": "broken"}), "debezium: source connector shop-source: broken"),
        ((200, ["no connector"]), "has no connector.class, so it describes no connector"),
        ((200, {"config": {"connector.class": "io.confluent.Jdbc"}}), "io.confluent.Jdbc is not a connector of "),
        ((200, b"<html>"), "the answer is not JSON"),
    ],
    ids=["unknown", "refused", "error", "no connector", "no Debezium", "no JSON"],
)
async def test_a_source_connector_that_cannot_be_checked(
    api: Api, connect: Server, answer: tuple[int, object], reason: str
) -> None:
    """The other parts are checked all the same."""
    connect.answers["/connectors/shop-source"] = answer
    url = f"{connect.url}/connectors/shop-source"
    await api.create(topics="shop.public.orders", **{"source.connector.url": url}, **DATABASE)
    api.stores.topics.offsets[TopicPartition("shop.public.orders", 0)] = 1
    found = (await api.call("GET", "/connectors/shop/doctor")).json()
    [not_checked] = found["not_checked"]
    assert not_checked.startswith("debezium: ")
    assert reason in not_checked
    assert [finding["rule"] for finding in found["findings"]] == ["missing"]


async def test_a_release_that_is_not_known(api: Api, connect: Server) -> None:
    """Any answer about the plug-ins is possible: the address may be another program's."""
    url = f"{connect.url}/connectors/shop-source"
    await api.create(**{"topics": "", "topics.regex": "shop.*", "source.connector.url": url}, **DATABASE)
    for plugins in ({}, [PLUGIN], [{"class": PLUGIN}], [{"class": "other", "version": "1"}]):
        connect.answers["/connector-plugins"] = 200, plugins
        answer = (await api.call("GET", "/connectors/shop/doctor")).json()
        assert answer["not_checked"] == ["debezium: known defects: no version of shop-source is no release"]


async def test_a_database_of_which_only_the_clock_is_checked() -> None:
    """Oracle, whose stand-in has stopped its clock."""
    api = Api(open_source=lambda database, options: row_source(orders_server()))
    await api.worker.start()
    await api.create(**{"topics": "", "topics.regex": "shop.*", **DATABASE, "reselect.database.type": "oracle"})
    answer = (await api.call("GET", "/connectors/shop/doctor")).json()
    assert [finding["rule"] for finding in answer["findings"]] == ["worker-clock-source"]
    assert answer["not_checked"] == ["source: of reselect.database.type=oracle only the clock is checked"]
    await api.worker.stop()
