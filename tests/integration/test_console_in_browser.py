"""The console in Chromium: every page is live, its buttons work, and axe finds no violation of WCAG 2.2 AA.

``HEADRACE_SCREENSHOTS=folder`` keeps a picture of each page in each width and scheme.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from support.rest.letters import QUEUE, add_change, add_letter, names
from support.rest.worker_api import Api, detailed_table, failed_table, table_report

from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.status import TableReport
from headrace.core.connect.table_activity import LastBatch
from headrace.core.connect.timeline import Kind, Trigger, TriggerType
from headrace.core.model.errors import BadRecord
from headrace.core.model.proof import DifferingRow, Proof, VerificationReport
from headrace.ports import TopicPartition
from headrace.rest.server import Endpoint, RestServer, bind
from headrace_dev.memory.row_source import MemoryRowSource

pytestmark = pytest.mark.stack
PAGES = {"overview": "/ui", "connector": "/ui/connectors/shop", "table": "/ui/connectors/shop/tables/items"}
LETTERS = "/ui/connectors/shop/dead-letters"
OTHERS = {
    "proof": "/ui/proof",
    "doctor": "/ui/connectors/shop/doctor",
    "dead-letters": LETTERS,
    "new-connector": "/ui/new-connector",
    "timeline": "/ui/timeline",
}
LOADED = ".state.failed, .finding, .letter, #errors li"
"""What a page shows when it is complete, in the state of the tests."""
DATABASE = {f"reselect.database.{name}": "shop" for name in ("hostname", "user", "password", "dbname")}
expect.set_options(timeout=60_000)  # a busy machine makes a worker look less often
WIDTHS, SCHEMES = (390, 1024, 1600), ("light", "dark")
HOSTILE = "<img src=x onerror=alert(1)>"


class Served:
    """A worker with one connector on a port, in a thread with an event loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._listener = bind("127.0.0.1", 0)
        port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.run(self._start(port))

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine in the worker's loop."""
        running: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return running.result(30)

    async def _start(self, port: int) -> None:
        self.api = Api(host="127.0.0.1", port=port, open_source=lambda database, options: MemoryRowSource())
        self.api.stores.topics.offsets[TopicPartition("shop.public.orders", 0)] = 1  # of a table that does not exist
        self._server = RestServer(self.api.app, [Endpoint(self._listener)])
        self._server.start()
        await self.api.worker.start()
        await self.api.create(**DATABASE, **QUEUE)
        await add_change(self.api, 3, "row")
        await add_letter(self.api, 4, b"{", error=BadRecord(HOSTILE), headers=[(HOSTILE, b"")])
        await add_letter(self.api, 5, b"{", topic=HOSTILE)
        await add_letter(self.api, 6, b"{", days_ago=30)
        await self.api.until("RUNNING", "RUNNING")
        patch = Trigger(TriggerType.REQUEST, "PATCH", "/connectors/shop/config", "ann")
        record = self.api.worker.timeline.record
        record(Kind.CONFIG_CHANGED, "shop", "batch.linger.ms, tasks.max", trigger=patch)
        record(Kind.SCHEMA_CHANGED, "shop", "added price double", task=0, table="items")
        for _ in range(3):
            record(Kind.TABLE_FAILED, "shop", f"{HOSTILE}: the cause", task=0, table=HOSTILE)
        observer = self.api.metrics.task("shop", 0, lambda topic: None)
        observer.on_chunk_decoded(TopicPartition("shop.public.orders", 0), 1200, 0)
        self._merge = observer.stage("items", "merge")  # it runs until the end
        self._merge.__enter__()
        self.show(TableState.FAILED)

    def show(self, state: TableState) -> None:
        """Let the table items have this state, and a hostile error."""
        now = time.time()
        error = replace(failed_table("items"), trace=f"{HOSTILE}: the cause\n\tat write(lane.py:1)")
        batch = LastBatch(120, 20_000, 0.21, now, now - 1)
        proof = Proof("postgresql:26715448", now - 4000, 1_204_311)
        rows = (DifferingRow({"id": HOSTILE}, "both", ("name", HOSTILE)), DifferingRow({"id": "7"}, "lake"))
        verified = VerificationReport(
            3600.0, "shop.items", now - 9000, proof, differing=2, undecided=1, rows=rows, ended=now
        )
        items = TableReport("items", state, ["shop.items"], 7, 900, now - 4, now - 5, batch, error, 10.0)
        items = replace(items, verification=verified, details=detailed_table("items", HOSTILE).details)
        self.api.tasks.tasks["shop-0"].tables = [items, table_report("orders"), table_report(HOSTILE)]

    def close(self) -> None:
        """Stop the worker, then the server."""
        self._merge.__exit__(None, None, None)
        self.run(self.api.worker.stop())
        self.run(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A worker whose table items has failed."""
    served = Served()
    yield served
    served.close()


@pytest.fixture
def opened(browser: Browser, served: Served) -> Iterator[Callable[..., Page]]:
    """Opens pages. Afterwards, no page may have reported an error or a violation of its security policy."""
    served.show(TableState.FAILED)
    errors: list[str] = []
    contexts = []

    def open_page(path: str, width: int = 1024, scheme: Any = "light") -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        page.goto(served.url + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


def screenshot(page: Page, name: str) -> None:
    """Keep a picture of the complete page, if the environment says where."""
    if folder := os.environ.get("HEADRACE_SCREENSHOTS"):
        page.screenshot(path=Path(folder, f"{name}.png"), full_page=True)


@pytest.mark.parametrize("name", {**PAGES, **OTHERS})
@pytest.mark.parametrize(
    "screens",
    [((390, "light"), (1600, "dark")), pytest.param([*product(WIDTHS, SCHEMES)], marks=pytest.mark.long)],
    ids=["two", "all"],
)
def test_no_violation_of_accessibility(
    name: str, screens: Sequence[tuple[int, str]], opened: Callable[..., Page]
) -> None:
    """No page is wider than the screen. The long form has each width in each scheme."""
    for width, scheme in screens:
        page = opened((PAGES | OTHERS)[name], width, scheme)
        expect(page.locator(LOADED).first).to_be_visible()
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (width, scheme)
        screenshot(page, f"{name}-{width}-{scheme}")


BROKEN_WORDS = """() => {
  const broken = [], cells = document.querySelectorAll(".scroll td, .scroll tbody th, .letter summary");
  for (const cell of cells) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      for (const word of texts.currentNode.data.matchAll(/\\S+/g)) {
        const range = document.createRange();
        range.setStart(texts.currentNode, word.index);
        range.setEnd(texts.currentNode, word.index + word[0].length);
        if (range.getClientRects().length > 1) broken.push(word[0]);
      }
    }
  }
  return [cells.length, broken];
}"""
"""The number of cells that have names or reasons, and the words that lie on several lines."""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["dead-letters", "timeline"])
def test_names_and_reasons_break_between_words(name: str, width: int, opened: Callable[..., Page]) -> None:
    page = opened(OTHERS[name], width)
    expect(page.locator(LOADED).first).to_be_visible()
    cells, broken = page.evaluate(BROKEN_WORDS)
    assert cells > 0
    assert broken == []


def test_the_busiest_step_of_a_connector_is_marked(opened: Callable[..., Page]) -> None:
    """A merge that runs keeps a thread busy, also before it ends."""
    page = opened(PAGES["connector"])
    expect(page.locator(".flow .bottleneck h3")).to_contain_text("Merge")


def test_a_page_shows_a_change_without_a_reload(served: Served, opened: Callable[..., Page]) -> None:
    """And the chart of freshness gets points."""
    page = opened(PAGES["table"])
    expect(page.locator(".state").first).to_have_text("FAILED")
    served.show(TableState.RUNNING)
    expect(page.locator(".state").first).to_have_text("RUNNING")
    expect(page.locator("#freshness-chart canvas")).to_be_visible()


def test_a_connector_is_paused_and_resumed_by_keyboard(served: Served, opened: Callable[..., Page]) -> None:
    """Pausing asks first; the focus stays on the button while the state changes."""
    page = opened(PAGES["connector"])
    questions: list[str] = []

    def accept(dialog: Any) -> None:
        questions.append(dialog.message)
        dialog.accept()

    page.on("dialog", accept)
    page.locator("#pause").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_have_text("Pause: accepted")
    expect(page.locator("[sse-swap=connector] .state").first).to_have_text("PAUSED")
    assert page.evaluate("document.activeElement.id") == "pause"
    assert [question.partition("?")[0] for question in questions] == ["Pause connector shop"]
    page.locator("#resume").focus()
    page.keyboard.press("Enter")
    expect(page.locator("[sse-swap=connector] .state").first).to_have_text("RUNNING")


def test_a_connector_is_created_through_the_form(served: Served, opened: Callable[..., Page]) -> None:
    """Errors follow what is typed, each at its option; a misspelt option gets a suggestion."""
    page = opened("/ui/new-connector")
    page.get_by_label("name (required)").fill("made")
    page.get_by_label("topics", exact=True).fill("shop.public.orders,shop.public.odrers")
    page.get_by_label("tasks.max", exact=True).fill("0")
    page.get_by_label("One key=value").fill(f"tabel.format=delta\n{HOSTILE}=1\ntransforms=route")
    errors = page.locator("#errors")
    expect(errors).to_contain_text("Unknown configuration 'tabel.format'. Did you mean 'table.format'")
    expect(errors).to_contain_text("Unknown configuration '<img src'")
    assert page.locator("main img").count() == 0
    expect(page.locator("[id='error-tasks.max']")).to_contain_text("Value must be at least 1")
    expect(page.locator("#others-known")).to_contain_text("transforms.route.type")
    errors.get_by_role("link", name="tasks.max").click()
    assert page.evaluate("document.activeElement.id") == "option-tasks.max"
    page.keyboard.press("Control+A")
    page.keyboard.type("1")
    page.get_by_label("One key=value").fill("table.namespace=made")
    expect(page.locator("#verdict")).to_have_text("The configuration is valid.")
    page.locator("#preview").click()
    expect(page.locator("#previewed tbody tr")).to_have_text("shop.public.orders1shop_public_orders")
    expect(page.locator("#previewed")).to_contain_text("Do not exist yet: shop.public.odrers")
    screenshot(page, "new-connector-preview")
    page.locator("#create").press("Enter")
    expect(page.locator("h1")).to_have_text("made")
    config = served.run(served.api.call("GET", "/connectors/made/config")).json()
    assert config == {
        "name": "made",
        "connector.class": "LakehouseSinkConnector",
        "topics": "shop.public.orders,shop.public.odrers",
        "tasks.max": "1",
        "table.namespace": "made",
    }
    served.run(served.api.call("DELETE", "/connectors/made"))


def test_a_secret_is_hidden_in_the_form(opened: Callable[..., Page]) -> None:
    """The request as JSON and as curl are there to be shared."""
    page = opened("/ui/new-connector")
    page.get_by_label("reselect.database.password").fill("s3cr3t")
    page.get_by_label("One key=value").fill("consumer.override.sasl.jaas.config=s3cr3t")
    for shown in ("#json", "#curl"):
        expect(page.locator(shown)).to_contain_text('"consumer.override.sasl.jaas.config": "[hidden]"')
        expect(page.locator(shown)).to_contain_text('"reselect.database.password": "[hidden]"')
    assert "s3cr3t" not in page.locator("main").inner_text()


def test_dead_letters_are_replayed_by_keyboard(served: Served, opened: Callable[..., Page]) -> None:
    """A letter shows its error when it is opened. A dry run writes nothing, and a replay asks first."""
    page = opened(PAGES["connector"])
    page.get_by_role("link", name="Dead letters").click()
    letter = page.locator(".letter", has_text="at offset 4")
    letter.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(letter.get_by_text(f"{HOSTILE}").first).to_be_visible()
    assert page.locator("img").count() == 0
    questions: list[str] = []

    def accept(dialog: Any) -> None:
        questions.append(dialog.message)
        dialog.accept()

    page.on("dialog", accept)
    page.locator("#dry-run").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_have_text("Dry run: accepted")
    replay = page.locator("[sse-swap=replay]")
    expect(replay).to_contain_text("3 letters can be sent, 1 are too old")
    expect(replay.locator(".state")).to_have_text("DONE")
    page.locator("#replay").focus()
    page.keyboard.press("Enter")
    expect(replay).to_contain_text("3 of 3 letters sent, 2 cannot be used")
    expect(replay.locator(".state")).to_have_text("DONE")
    cancel = page.locator("#cancel-replay")
    expect(cancel).to_be_hidden()
    replay.locator("p").first.evaluate("shown => { shown.dataset.cancellable = '' }")  # as while it runs
    expect(cancel).to_be_visible()
    assert [question.partition("?")[0] for question in questions] == ["Replay the dead letters of connector shop"]
    assert names(served.api) == ["row"]
    expect(page.locator("tbody")).not_to_have_count(0)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    screenshot(page, "dead-letters-replayed")
    page.get_by_role("link", name=HOSTILE).first.click()
    expect(page.get_by_text("Only those of topic")).to_be_visible()
    expect(page.locator(".letter")).to_have_count(1)


def test_a_failed_table_is_restarted(served: Served, opened: Callable[..., Page]) -> None:
    page = opened(PAGES["overview"])
    page.get_by_role("link", name="items").first.click()
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator("#restart").click()
    expect(page.locator("#message")).to_have_text("Restart table: accepted")
    assert served.api.tasks.tasks["shop-0"].calls[-1] == "restart items"


def test_a_live_part_is_not_replaced_between_press_and_release(served: Served, opened: Callable[..., Page]) -> None:
    """A link that was replaced meanwhile would get no click."""
    page = opened(PAGES["overview"])
    page.evaluate("document.body.addEventListener('htmx:sseBeforeMessage', () => { document.body.id = 'arrived' })")
    page.get_by_role("link", name="items").first.hover()
    page.mouse.down()
    try:
        served.run(served.api.call("PUT", "/connectors/shop/pause"))
        expect(page.locator("#arrived")).to_be_attached()
        page.mouse.up()
        expect(page.locator("#restart")).to_be_visible()
    finally:
        served.run(served.api.call("PUT", "/connectors/shop/resume"))


def test_the_timeline_is_live_and_chosen_by_kind(served: Served, opened: Callable[..., Page]) -> None:
    """The links of a connector and a table lead to their events."""
    page = opened(PAGES["connector"])
    page.get_by_role("link", name="Timeline").click()
    expect(page.locator("h1")).to_have_text("Timeline of shop")
    expect(page.locator("tbody")).to_contain_text("added price double")
    newest = page.locator("tbody tr").first

    async def pause_and_resume() -> None:
        await served.api.call("PUT", "/connectors/shop/pause")
        await served.api.call("PUT", "/connectors/shop/resume")

    served.run(pause_and_resume())
    expect(newest).to_contain_text("PUT /connectors/shop/resume")
    page.get_by_label("Kind").select_option("Table failed")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(newest).to_contain_text(f"{HOSTILE}: the cause")
    assert page.locator("main img").count() == 0
    page = opened(PAGES["table"])
    page.get_by_role("link", name="Timeline").click()
    expect(page.locator("tbody")).to_contain_text("added price double")
    expect(page.locator("tbody")).not_to_contain_text("the cause")


def test_hostile_texts_are_shown_as_texts(opened: Callable[..., Page]) -> None:
    """In the names of tables and in errors, also those of the REST API's answers."""
    for name in PAGES:
        page = opened(PAGES[name])
        expect(page.get_by_text(HOSTILE).first).to_be_visible()
        assert page.locator("img").count() == 0


def test_an_answer_that_refuses_is_shown(served: Served, browser: Browser) -> None:
    """With the cause that the REST API names."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(served.url + PAGES["table"])
    page.on("dialog", lambda dialog: dialog.accept())
    served.api.tasks.tasks["shop-0"].tables = []
    page.locator("#restart").click()
    expect(page.locator("#message.failed")).to_contain_text("Connector shop has no table items")
    context.close()
