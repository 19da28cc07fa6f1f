"""The console on a real pipeline: Debezium, Kafka, Spark and a shop under load, in Chromium.

``HEADRACE_SCREENSHOTS=folder`` keeps the pictures of the documentation (docs/console/).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from chaos.lane import Lane
from playwright.sync_api import Browser, Page, expect
from support.kafka.kafka_harness import producer

from headrace_dev.demo.load import TABLES
from headrace_dev.server import wait_until
from headrace_dev.stack import Stack

pytestmark = [
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
]
NAME = "shop"
WIDTHS = (390, 1024, 1600)
SECONDS = 120
QUEUE = {
    "errors__deadletterqueue__topic__name": f"{NAME}-dead",
    "errors__deadletterqueue__topic__replication__factor": "1",
    "errors__deadletterqueue__context__headers__enable": "true",
}


@pytest.fixture(scope="module")
def lane(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """The five tables of a shop under load, which are verified every few seconds."""
    options = {"batch__linger__ms": "500", "verify__interval__ms": "5000", **QUEUE}
    with Lane(stack, NAME, tmp_path_factory.mktemp("console"), TABLES, **options) as lane:
        lane.begin_load(10)
        wait_until(lambda: proven_tables(lane) == len(TABLES), "a proof of every table", 300)
        yield lane


def proven_tables(lane: Lane) -> int:
    """Return how many tables were found equal to their source."""
    tables = lane.worker.call("GET", f"/connectors/{NAME}/tables")
    return sum(bool(table.get("verification", {}).get("proof")) for table in tables)


def opened(lane: Lane, browser: Browser, path: str, width: int = 1024, scheme: Any = "light") -> Page:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(SECONDS * 1000)
    expect.set_options(timeout=SECONDS * 1000)
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{lane.worker.url}{path}")
    return page


def test_every_page_shows_the_pipeline_and_is_accessible(lane: Lane, browser: Browser) -> None:
    """In each width and scheme; no page is wider than the screen."""
    table = f"/ui/connectors/{NAME}/tables/{NAME}_public_orders"
    pages = {
        "overview": ("/ui", "Nothing has failed"),
        "connector": (f"/ui/connectors/{NAME}", f"{NAME}_public_reviews"),
        "table": (table, "Proven equal"),
        "proof": ("/ui/proof", f"{NAME}_public_customers"),
        "doctor": (f"/ui/connectors/{NAME}/doctor", "Doctor"),
        "new-connector": ("/ui/new-connector", "topics.regex"),
        "dead-letters": (f"/ui/connectors/{NAME}/dead-letters", "By topic and reason"),
    }
    folder = os.environ.get("HEADRACE_SCREENSHOTS")
    for name, (path, content) in pages.items():
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                page = opened(lane, browser, path, width, scheme)
                expect(page.get_by_text(content).first).to_be_visible()
                if name == "table":
                    expect(page.locator("#freshness-chart canvas")).to_be_visible()
                    page.wait_for_timeout(6_000)  # for some points of the chart
                found = Axe().run(page)
                assert found.violations_count == 0, (name, width, scheme, found.generate_report())
                assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (name, width)
                if folder:
                    page.screenshot(path=Path(folder, f"{name}-{width}-{scheme}.png"))
                page.context.close()


def test_a_table_is_paused_and_resumed(lane: Lane, browser: Browser) -> None:
    """The state follows on the page, and so do the rows."""
    page = opened(lane, browser, f"/ui/connectors/{NAME}/tables/{NAME}_public_orders")
    state = page.locator("[sse-swap=table] .state").first
    page.locator("#pause").click()
    expect(state).to_have_text("PAUSED")
    page.locator("#resume").click()
    expect(state).to_have_text("RUNNING")
    page.context.close()


def test_a_failed_table_is_restarted(lane: Lane, stack: Stack, browser: Browser) -> None:
    """A record that is no JSON fails its table. When the operator has decided to skip it, a restart continues."""
    lane.worker.put_connector(NAME, lane.sink_config())
    topic = f"{NAME}.public.reviews"
    with producer(stack.kafka) as out:
        out.produce(topic, b"{broken", b"{not json")
    page = opened(lane, browser, f"/ui/connectors/{NAME}/tables/{NAME}_public_reviews")
    expect(page.locator("[sse-swap=table] .state").first).to_have_text("FAILED")
    overview = opened(lane, browser, "/ui")
    expect(overview.locator(".problems")).to_contain_text(f"{NAME}_public_reviews")
    lane.worker.put_connector(NAME, lane.sink_config(errors__tolerance="all"))
    page.locator("#restart").click()
    expect(page.locator("[sse-swap=table] .state").first).to_have_text("RUNNING")
    for each in (page, overview):
        each.context.close()


def test_dead_letters_are_replayed(lane: Lane, stack: Stack, browser: Browser) -> None:
    """A transform that cannot be applied sends changes to the queue; without it, a replay adds them to their table."""
    config = lane.sink_config(errors__tolerance="all")
    cast = {
        "transforms": "number",
        "transforms.number.type": "org.apache.kafka.connect.transforms.Cast$Value",
        "transforms.number.spec": "op:int32",
        "transforms.number.predicate": "reviews",
        "predicates": "reviews",
        "predicates.reviews.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.reviews.pattern": f"{NAME}.public.reviews",
        "verify.interval.ms": "0",
    }
    lane.worker.put_connector(NAME, config | cast)
    with stack.postgres.connect(NAME) as connection:  # also if the load has ended
        connection.execute("UPDATE reviews SET id = id WHERE id = (SELECT id FROM reviews LIMIT 1)")
    page = opened(lane, browser, f"/ui/connectors/{NAME}/dead-letters")
    letters = page.locator(".letter", has_text="TRANSFORMATION")
    for _ in range(SECONDS):
        if letters.count():
            break
        page.wait_for_timeout(1_000)
        page.reload()
    letters.first.locator("summary").click()
    expect(letters.first).to_contain_text("Cast")
    lane.worker.put_connector(NAME, config)
    replay = page.locator("[sse-swap=replay]")
    page.locator("#dry-run").click()
    expect(replay).to_contain_text("letters can be sent")
    expect(replay.locator(".state")).to_have_text("DONE")
    page.locator("#replay").click()
    expect(replay).to_contain_text("letters sent")
    expect(replay.locator(".state")).to_have_text("DONE")
    page.context.close()
    if folder := os.environ.get("HEADRACE_SCREENSHOTS"):  # before the replay the page is empty
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                page = opened(lane, browser, f"/ui/connectors/{NAME}/dead-letters", width, scheme)
                expect(page.locator(".letter").first).to_be_visible()
                page.screenshot(path=Path(folder, f"dead-letters-{width}-{scheme}.png"))
                page.context.close()
    ended = lane.worker.call("GET", f"/connectors/{NAME}/dead-letters/replay")["ended"]

    def is_proven() -> bool:
        tables = lane.worker.call("GET", f"/connectors/{NAME}/tables")  # a task that begins again may not know it yet
        reports = [each.get("verification", {}) for each in tables if each["table"] == f"{NAME}_public_reviews"]
        return any(report.get("equal") and report["proof"]["at"] > ended for report in reports)

    wait_until(is_proven, "a proof of the table after the replay", SECONDS)


def test_a_wrong_cell_is_shown_under_proof_and_repaired(lane: Lane, stack: Stack, browser: Browser) -> None:
    """By key and column; the repair is shown when the next verification has found the table equal."""
    key = 1_000_000_000  # the load leaves it alone
    values = f"{key}, 'a name', NULL, 0, false, NULL, '2026-01-01Z'"
    with stack.postgres.connect(NAME) as connection:
        connection.execute(f"INSERT INTO customers VALUES ({values})".encode())
    wait_until(lambda: any(row["id"] == key for row in lane.rows("customers")), "the row in the lake", 120)
    page = opened(lane, browser, "/ui/proof")
    lane.change_unseen(f"UPDATE customers SET name = 'unseen' WHERE id = {key}")
    expect(page.get_by_text(f"id={key}")).to_be_visible()
    expect(page.locator("main")).to_contain_text("DIFFERENT")
    lane.worker.put_connector(NAME, lane.sink_config(errors__tolerance="all", verify__repair="auto"))
    expect(page.get_by_text(f"id={key}")).to_have_count(0)
    expect(page.locator("main")).not_to_contain_text("DIFFERENT")
    page.context.close()
    lane.end_load()


def test_the_timeline_shows_what_was_done(lane: Lane, browser: Browser) -> None:
    """By which request, in each width and scheme."""
    table = f"{NAME}_public_orders"
    for verb in ("pause", "resume"):
        lane.worker.call("PUT", f"/connectors/{NAME}/tables/{table}/{verb}")
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            page = opened(lane, browser, "/ui/timeline", width, scheme)
            resumed = page.locator("tbody tr", has_text="Table resumed").first
            expect(resumed).to_contain_text(f"PUT /connectors/{NAME}/tables/{table}/resume")
            found = Axe().run(page)
            assert found.violations_count == 0, (width, scheme, found.generate_report())
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
            if folder := os.environ.get("HEADRACE_SCREENSHOTS"):
                page.screenshot(path=Path(folder, f"timeline-{width}-{scheme}.png"))
            page.context.close()
