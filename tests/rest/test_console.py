"""The console: what pages show, to whom, and that texts of others stay texts."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import pyarrow as pa
import pytest
from starlette.types import Message
from support.fix_asyncio import eventually
from support.rest.asgi import request
from support.rest.secured import ANN, BOB, EVE, users
from support.rest.worker_api import SHOP, Api, detailed_table, failed_table, leader_and_follower, table_report

from headrace.config.rest_options import BASIC_AUTH_EXTENSION
from headrace.core.connect.lifecycle import State, TableState
from headrace.core.connect.status import TableReport
from headrace.core.connect.table_activity import TableActivity
from headrace.core.model.proof import DifferingRow, Proof, VerificationReport
from headrace.rest.console import pages, rendering, views

pytestmark = pytest.mark.anyio
HOSTILE = "<script>alert(1)</script>'\"&"


async def page(api: Api, path: str, status: int = 200) -> str:
    """The HTML of a page."""
    answer = await api.call("GET", path)
    assert answer.status == status
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.body.decode()


def failed(table: str, cause: str = "the cause") -> TableReport:
    error = replace(failed_table(table), trace=f"{cause}\n\tat a line")
    return TableReport(table, TableState.FAILED, [f"shop.{table}"], 3, 400, None, None, None, error)


async def test_the_overview_names_what_has_failed_with_its_cause(api: Api) -> None:
    """Only the first line of a trace, with a link to the table."""
    api.tasks.tasks["shop-0"].tables = [failed("items"), table_report("orders")]
    html = await page(api, "/ui")
    link = '<a href="./ui/connectors/shop/tables/items">items</a>'
    assert f"{link} of shop since <time>2023-11-14T22:13:20Z</time>: the cause" in html
    assert "at a line" not in html
    assert "Nothing has failed" not in html
    assert "at a line" in await page(api, "/ui/connectors/shop/tables/items")


def test_every_state_has_a_place_in_the_overview() -> None:
    """Also that of a connector which is being deleted."""
    connectors = {
        state: {"connector": {"state": state, "worker_id": "w"}, "tasks": [{"id": 0, "state": state, "worker_id": "w"}]}
        for state in State
    }
    shown = views.overview(connectors, [], [])
    assert {entry["name"] for entry in shown["connectors"]} == set(State)
    assert dict(shown["counts"]["tasks"]) == dict.fromkeys(State, 1)


async def test_the_overview_says_that_nothing_is_wrong(api: Api) -> None:
    api.tasks.tasks["shop-0"].tables = [table_report("orders")]
    assert "Nothing has failed" in await page(api, "/ui")


def verified(table: str, **report: Any) -> TableReport:
    """A table with a proof of three hours ago, unless the report says otherwise."""
    proof = Proof("postgresql:123", time.time() - 10_800, 7)
    report = {"proof": proof, "ended": time.time(), **report}
    return replace(table_report(table), verification=VerificationReport(3600.0, f"shop.{table}", 0.0, **report))


async def test_the_proof_page_shows_what_differs_first(api: Api) -> None:
    """Equal tables have their position and their age; rows that differ are named by key and column."""
    rows = (DifferingRow({"id": "41"}, "both", ("name",)),)
    api.tasks.tasks["shop-0"].tables = [
        verified("equal"),
        verified("wrong", differing=1, rows=rows),
        verified("failed", error="no grant", not_compared=("mail", "<made>")),
        table_report("unverified"),
    ]
    html = await page(api, "/ui/proof")
    names = re.findall(r"/tables/(\w+)\">", html)
    assert names == ["wrong", "failed", "equal"]
    assert "1 of 3" in html
    assert "<code>postgresql:123</code>" in html
    assert "<code>id=41</code>" in html
    assert "no grant (not compared, because transforms change them: mail, &lt;made&gt;)" in html
    assert "(3 h ago)" in await page(api, "/ui")
    assert "<code>id=41</code>" in await page(api, "/ui/connectors/shop/tables/wrong")


async def test_without_verifications_the_pages_say_how_to_begin(api: Api) -> None:
    api.tasks.tasks["shop-0"].tables = [table_report("orders")]
    assert "verify.interval.ms" in await page(api, "/ui/proof")
    assert "not verified" in await page(api, "/ui")


@pytest.mark.parametrize(
    "path", ["/ui", "/ui/proof", "/ui/new-connector", "/ui/connectors/shop", "/ui/connectors/shop/tables/orders"]
)
async def test_every_address_is_relative(api: Api, path: str) -> None:
    """So that pages work behind a proxy that adds a prefix."""
    api.tasks.tasks["shop-0"].tables = [table_report("orders")]
    html = await page(api, path)
    addresses = re.findall(r'(?:href|src|sse-connect|hx-put|hx-post)="([^"]*)"', html)
    assert len(addresses) > 8
    for address in addresses:
        if address.startswith(("#", "data:")):
            continue
        assert not address.startswith("/")
        assert not urlsplit(address).scheme
        target = urlsplit(urljoin(f"http://worker{path}", address)).path
        method = "OPTIONS" if target.startswith("/connectors/") else "HEAD"
        if not target.endswith("/events"):
            assert (await api.call(method, target)).status == 200, target


@pytest.mark.parametrize("path", ["/ui/", "/ui/connectors/shop/?table=a"])
async def test_an_address_that_ends_with_a_slash_is_another_one(api: Api, path: str) -> None:
    """Events have no slash at their end, and relative addresses in them would be those of another page."""
    answer = await api.call("GET", path)
    assert answer.status == 307
    target = urlsplit(urljoin(f"http://worker/prefix{path}", answer.headers["location"]))
    assert f"{target.path}?{target.query}".rstrip("?") == f"/prefix{path}".replace("/?", "?").rstrip("/")


async def test_texts_of_others_stay_texts() -> None:
    """Names of connectors and tables, values of options and errors are never HTML. A script runs from a file only."""
    api = Api()
    await api.worker.start()
    name = HOSTILE.replace("/", "")
    await api.create(name)
    await api.until("RUNNING", "RUNNING", name=name)
    api.tasks.tasks[f"{name}-0"].tables = [failed(name, HOSTILE)]
    quoted = quote(name, safe="")
    connector = f"/ui/connectors/{quoted}"
    for path in ("/ui", connector, f"{connector}?table={quoted}", f"{connector}/tables/{quoted}"):
        answer = await api.call("GET", path)
        html = answer.body.decode()
        assert "alert(1)" in html
        scripts = re.findall(r"<script[^>]*>", html)
        assert all(re.fullmatch(r'<script defer src="[./]*ui/static/[a-z0-9.-]+">', script) for script in scripts)
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert f'"{name}' not in html
    await api.worker.stop()


async def test_a_reader_sees_no_buttons(tmp_path: Path) -> None:
    """And the REST API, to which buttons send requests, refuses its requests."""
    api = Api(**{"rest.extension.classes": BASIC_AUTH_EXTENSION, **users(tmp_path)})
    await api.worker.start()
    body = json.dumps({"name": "shop", "config": SHOP}).encode()
    await request(api.app, "POST", "/connectors", {**ANN, "Content-Type": "application/json"}, body)
    await api.until("RUNNING", "RUNNING")
    shown = {}
    for role, header in {"reader": EVE, "operator": BOB}.items():
        html = (await request(api.app, "GET", "/ui/connectors/shop", header)).body.decode()
        shown[role] = re.findall(r'<button id="([a-z-]+)"', html)
    assert shown == {"reader": [], "operator": ["pause", "resume", "stop", "restart", "restart-failed"]}
    assert (await request(api.app, "PUT", "/connectors/shop/pause", EVE)).status == 403
    for path in ("/ui", "/ui/static/console.js", "/ui/events"):
        assert (await request(api.app, "GET", path)).status == 401
    await api.worker.stop()


async def test_the_form_of_a_new_connector_has_every_option(api: Api) -> None:
    """With its documentation and default, in the groups of the validation; the class is that of the worker."""
    html = await page(api, "/ui/new-connector")
    answer = await api.call(
        "PUT", "/connector-plugins/LakehouseSink/config/validate", {"connector.class": "LakehouseSink"}
    )
    options = {info["definition"]["name"] for info in answer.json()["configs"]} - {"connector.class"}
    assert set(re.findall(r'name="([^"]+)" data-option', html)) == options
    assert set(re.findall(r"<legend>([^<]+)</legend>", html)) == {*answer.json()["groups"], "Other options"}
    assert 'placeholder="${topic}"' in html
    assert "Topics to read, one table each." in html


async def test_only_an_administrator_may_create_a_connector(tmp_path: Path) -> None:
    """Others see no link, and the page says which role it needs."""
    api = Api(**{"rest.extension.classes": BASIC_AUTH_EXTENSION, **users(tmp_path)})
    await api.worker.start()
    seen = {}
    for role, header in {"reader": EVE, "operator": BOB, "admin": ANN}.items():
        overview = (await request(api.app, "GET", "/ui", header)).body.decode()
        form = await request(api.app, "GET", "/ui/new-connector", header)
        seen[role] = ("new-connector" in overview, form.status, b"needs the role admin" in form.body)
    assert seen == {"reader": (False, 403, True), "operator": (False, 403, True), "admin": (True, 200, False)}
    await api.worker.stop()


async def test_tables_of_other_workers_are_shown() -> None:
    """Any worker answers for the cluster."""
    async with leader_and_follower("127.0.0.1") as (leader, follower):
        await leader.create(**{"tasks.max": "2"})
        await leader.until("RUNNING", "RUNNING", "RUNNING")
        for api in (leader, follower):
            for name, task in api.tasks.tasks.items():
                task.tables = [table_report(f"table-of-{name}")]
        html = await page(follower, "/ui/connectors/shop")
        assert "table-of-shop-0" in html
        assert "table-of-shop-1" in html


async def test_secrets_are_hidden(api: Api) -> None:
    """Options of the type password, others by their names, and credentials in addresses. A reference is no secret."""
    secrets = {
        "reselect.database.hostname": "db",
        "reselect.database.dbname": "shop",
        "reselect.database.password": "s3cr3t-1",
        "consumer.override.sasl.jaas.config": 'x required password="s3cr3t-2";',
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://user:s3cr3t-3@registry:8081",
        "reselect.database.user": "${env:USER_OF_DB}",
    }
    created = await api.create("secret", **secrets)
    assert created.status == 201, created.body
    html = await page(api, "/ui/connectors/secret")
    assert "s3cr3t" not in html
    assert html.count("[hidden]") == 6
    assert "${env:USER_OF_DB}" in html
    assert "Secrets are hidden" in html


async def test_an_unknown_connector_is_a_page(api: Api) -> None:
    assert "Connector no not found" in await page(api, "/ui/connectors/no", 404)
    assert "Connector no not found" in await page(api, "/ui/connectors/no/tables/a", 404)
    assert "has no table no" in await page(api, "/ui/connectors/shop/tables/no")


async def test_a_worker_that_starts_says_so() -> None:
    assert "still starting up" in await page(Api(), "/ui")


async def test_a_part_is_sent_again_when_it_has_changed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its complete content; others are not. The stream ends when the worker stops."""
    monkeypatch.setattr(rendering, "_SECONDS", 0.01)
    monkeypatch.setattr(rendering, "_PAUSE", 0)
    task = api.tasks.tasks["shop-0"]
    task.tables = [table_report("orders")]
    sent: list[Message] = []

    def events() -> list[str]:
        text = b"".join(message.get("body", b"") for message in sent).decode()
        return re.findall(r"^event: (\w+)", text, re.MULTILINE)

    received = asyncio.create_task(request(api.app, "GET", "/ui/connectors/shop/events", sent=sent))
    await eventually(lambda: events() == ["connector", "flow", "tables", "problem"])
    task.tables = [failed("orders")]
    await eventually(lambda: events() == ["connector", "flow", "tables", "problem", "tables"])
    await api.worker.stop()
    await asyncio.wait_for(received, 60)


async def test_a_page_of_500_tables_is_small_and_fast(api: Api) -> None:
    """The worst 50 are shown, and a search finds the others."""
    api.tasks.tasks["shop-0"].tables = [
        *(table_report(f"table_{number:03}") for number in range(499)),
        failed("table_499"),
    ]
    html = await page(api, "/ui/connectors/shop")
    assert html.count('<tr><th scope="row"><a') == 50
    assert "50 of 500 tables" in html
    assert html.index("table_499") < html.index("table_000")
    assert "table_321" in await page(api, "/ui/connectors/shop?table=321")
    assert len(html) < 40_000
    seconds = []
    for _ in range(3):
        began = time.process_time()
        await page(api, "/ui/connectors/shop")
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.3


async def test_the_page_of_a_table_has_its_details(api: Api) -> None:
    """Batches, operations, reselect, files and columns, in words and with their shares."""
    api.tasks.tasks["shop-0"].tables = [detailed_table("orders")]
    html = await page(api, "/ui/connectors/shop/tables/orders")
    shown = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html))
    for text in (
        "1 creates, 3 updates",
        "full: batch.max.records",
        "note-3: 4,711",
        "4 changes: 1 creates (25 %), 3 updates (75 %)",
        "SELECTs3, 1 failed",
        "Rows requested5, 1 no longer existed",
        "Cache hits3 of 4 (75 %)",
        "3 by the column cache, 1 by the source database",
        "Size46 MiB",
        "Rows750",
        "Data files12",
        "Delete files and vectors3",
        "Deleted rows in the files250 (25 %)",
        "Last compaction2023-11-14T22:13:20Z",
        "Complete up to2023-11-14T22:13:20Z",
        "2023-11-14T22:13:22Z: note was removed (STRING)",
        "2023-11-14T22:13:20Z: id was retyped, from INT to BIGINT",
        "2 columns",
    ):
        assert text in shown, text


async def test_columns_and_topics_of_others_stay_texts(api: Api) -> None:
    api.tasks.tasks["shop-0"].tables = [detailed_table("orders", HOSTILE)]
    html = await page(api, "/ui/connectors/shop/tables/orders")
    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;alert(1)") == 4


async def test_details_that_are_not_known_are_named(api: Api) -> None:
    """Of a quiet table, and of a table of a worker of an earlier release, which sends none."""
    api.tasks.tasks["shop-0"].tables = [table_report("orders")]
    html = await page(api, "/ui/connectors/shop/tables/orders")
    assert "None since the task started" in html
    assert "The files are known after the first batch" in html
    assert views.table(table_report("orders").document(0, 0.0))["batches"]["batches"] == []


async def test_a_table_of_many_columns_is_sent_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its columns are a part that changes seldom; each change of its freshness would send them again otherwise."""
    monkeypatch.setattr(rendering, "_SECONDS", 0.01)
    monkeypatch.setattr(rendering, "_PAUSE", 0)
    task, activity = api.tasks.tasks["shop-0"], TableActivity()
    activity.on_columns(pa.schema([(f"column_{number}", pa.string()) for number in range(1000)]), 0.0)
    sent: list[Message] = []

    def events() -> list[str]:
        text = b"".join(message.get("body", b"") for message in sent).decode()
        return re.findall(r"^event: (\w+)", text, re.MULTILINE)

    for waiting in (1, 2):
        report = replace(table_report("orders"), waiting_events=waiting)
        task.tables = [replace(report, details=partial(activity.details, None, None, None))]
        if waiting == 1:
            path = "/ui/connectors/shop/tables/orders/events"
            received = asyncio.create_task(request(api.app, "GET", path, sent=sent))
            await eventually(lambda: events() == ["table", "resnapshot", "batches", "lake", "columns", "problem"])
    await eventually(lambda: events()[6:] == ["table"])
    await api.worker.stop()
    await asyncio.wait_for(received, 60)


async def test_a_page_that_takes_long_does_not_delay_the_stop(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream pauses for a multiple of the time that it takes, and ends with the worker all the same."""
    monkeypatch.setattr(rendering, "_SECONDS", 0.01)
    monkeypatch.setattr(rendering, "_PAUSE", 1e6)
    sent: list[Message] = []
    received = asyncio.create_task(request(api.app, "GET", "/ui/events", sent=sent))
    await eventually(lambda: len(sent) > 1)
    await api.worker.stop()
    await asyncio.wait_for(received, 60)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1.0 KiB"), (48_210_433, "46 MiB"), (5 * 2**40, "5.0 TiB")],
)
def test_sizes_have_units(number: int, text: str) -> None:
    assert views.size(number) == text


def test_scripts_of_other_projects_are_as_their_packages_contain_them() -> None:
    """Nobody can change one unnoticed, or add one without its license."""
    folder = Path(pages.__file__).with_name("static")
    sums = dict(reversed(line.split()) for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.min.*")} == sums
    licenses = (folder / "LICENSES.txt").read_text()
    assert [name for name in sums if name not in licenses] == []
